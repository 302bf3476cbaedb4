"""The main loop of a kernel: puts up the wall, then runs the cells that the kernel host sends, one after the other.

Frames from the kernel host: `start` once, then `run` or `variables`, and `results` for each `calls`. Frames to it: `ready` or `failed`,
then for each cell `started`, `output`, `display` and `calls` in their order, and `end`; for each task with variables `started` and `end`.
"""

import faulthandler
import importlib
import os
import signal
import sys

import gentools
import mcptools

from . import installed, tool_calls, walls
from .cell_threads import CellThreads
from .channel import Channel
from .gateway import Gateway
from .output import Output
from .shell import Shell
from .variables import Variables

#: The packages in the folder of the tools: workspaces have none of these names.
_PACKAGES = (mcptools, gentools)

_MAX_DEFINED = 100
_MAX_NAMES = 200
_MAX_NAME = 256
_MAX_MESSAGE = 4_096


def main():
    channel = Channel()
    try:
        cells = _start(channel, channel.receive())
    except Exception as error:
        channel.send(type="failed", reason=f"{type(error).__name__}: {error}"[:_MAX_MESSAGE])
        return
    channel.send(type="ready", pid=os.getpid())
    while (frame := cells.next()) is not None:
        cells.run(frame)


def _start(channel, setup):
    walls.put_up(setup)
    # What C code, crashes and forked children write. Its order with `sys.stdout` is approximate.
    os.dup2(1, 2)
    faulthandler.enable(2)
    # Not before the wall stands: names of this environment change how programs and libraries start.
    os.environ.clear()
    os.environ.update(setup["env"])
    os.chdir(setup["workspace"])
    sys.path[:0] = [setup["workspace"], setup["tools"]]
    # Before the first import: Python remembers that a folder is not there.
    os.makedirs(packages := installed.packages_folder(os.environ["HOME"]), exist_ok=True)
    # Last, so that what is installed there replaces nothing of the environment.
    sys.path.append(packages)
    return _Cells(channel, setup)


class _Cells:
    def __init__(self, channel, setup):
        tools = setup["tools"]
        self._channel = channel
        self._workspace = setup["workspace"]
        self._threads = CellThreads()
        self._output = Output(channel, self._threads)
        self._gateway = Gateway(channel, self._threads)
        self._shell = Shell(self._output, self._gateway, os.path.join(tools, mcptools.__name__, ""))
        self._variables = Variables(self._shell, setup["variables"])
        self._modules = None
        self._is_running = False
        self.next = self._gateway.next_run
        for package in _PACKAGES:
            package.__path__ = [os.path.join(tools, package.__name__)]
        tool_calls.use(self._gateway)

    def run(self, frame):
        if frame["type"] == "variables":
            self._keep(frame)
            return
        self._use_modules(frame["modules"])
        before = self._begin()
        self._output.begin(frame["id"], frame["outputBytes"])
        self._gateway.begin(frame["id"], frame["token"])
        error = self._execute(frame["id"], lambda: self._run_code(frame["code"]))
        self._gateway.end()
        if self._restore_folder():
            self._output.notices.append(f"cwd reset to {self._workspace}")
        self._output.end()
        self._end(frame, before, error, discardedBytes=self._output.discarded, notices=self._output.notices)

    def _keep(self, frame):
        """
        Stores the variables, or takes those of an earlier kernel. Values run code of their own then: it makes no calls, and what it
        writes is shown with the next cell, as that of threads is.
        """
        before = self._begin()
        error = self._execute(frame["id"], lambda: self._variables.run(frame["task"]))
        self._restore_folder()
        self._end(frame, before, error, variables=self._variables.outcome())

    def _end(self, frame, before, error, *, discardedBytes=0, notices=(), variables=None):
        names = self._shell.names()
        defined = [name[:_MAX_NAME] for name in names if names[name] != before.get(name)]
        self._channel.send(
            type="end",
            id=frame["id"],
            isMarked=self._mark(frame["mark"]),
            error=None if error is None else _described(error),
            # A class of the same name does not count.
            isDenied=type(error) is mcptools.ApprovalRejectedError,
            defined=defined[:_MAX_DEFINED],
            names=[name[:_MAX_NAME] for name in names][:_MAX_NAMES],
            nameCount=len(names),
            discardedBytes=discardedBytes,
            notices=notices,
            variables=variables,
        )

    def _begin(self):
        """The variables before user code runs."""
        self._threads.begin()
        self._shell.use_own_streams()
        return self._shell.names()

    def _execute(self, frame_id, work):
        """Does what can be interrupted. The error that ended it, if any."""
        signal.signal(signal.SIGINT, self._interrupt)
        try:
            try:
                self._is_running = True
                self._channel.send(type="started", id=frame_id)
                error = work()
            finally:
                self._is_running = False
        except KeyboardInterrupt as raised:
            # It came while IPython was between two steps.
            error = raised
        if not self._channel.is_ours:
            # A child that the cell has forked, and that came to the end of the cell's code.
            os._exit(0)
        return error

    def _run_code(self, code):
        result = self._shell.run_cell(code, store_history=True)
        return result.error_before_exec or result.error_in_exec

    def _use_modules(self, modules):
        """Forgets the modules of the tools if others have been generated or saved."""
        known, self._modules = self._modules, modules
        # Before the first cell only restored variables have imported some: of the modules that are there now.
        if known in (None, modules):
            return
        for package in _PACKAGES:
            prefix = f"{package.__name__}."
            for name in [name for name in sys.modules if name.startswith(prefix)]:
                del sys.modules[name]
                package.__dict__.pop(name.removeprefix(prefix), None)
        importlib.invalidate_caches()

    def _interrupt(self, *_):
        if self._is_running and not self._channel.defers_interrupt():
            raise KeyboardInterrupt

    def _restore_folder(self):
        try:
            if os.getcwd() == self._workspace:
                return False
        except FileNotFoundError:
            pass
        os.chdir(self._workspace)
        return True

    def _mark(self, mark):
        """Marks the end of the cell in the output that is not in frames. False if user code has closed it."""
        try:
            os.write(1, mark.encode())
        except OSError:
            return False
        return True


def _described(error):
    try:
        message = str(error)
    except Exception:
        message = ""
    return {"name": type(error).__name__[:_MAX_NAME], "message": message[:_MAX_MESSAGE]}
