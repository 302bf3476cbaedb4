"""IPython's shell without a terminal: output becomes frames, nothing is asked, the kernel host executes commands."""

import builtins
import contextlib
import os
import sys

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.text import LSString, SList
from traitlets.config import Config

from .commands import Commands
from .expansion import expand
from .output import Stream

_CONFIG = Config(
    {
        # Completion, history and a cache of results are for people at a terminal; they cost memory and a thread.
        "Completer": {"use_jedi": False},
        "HistoryManager": {"enabled": False},
        "InteractiveShell": {"cache_size": 0, "colors": "nocolor"},
    }
)
_PACKAGE = os.path.join(os.path.dirname(__file__), "")


class _LastValue(DisplayHook):
    """Displays the value of a cell's last expression."""

    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        self.shell.output.display(format_dict)

    def log_output(self, format_dict):
        """IPython would keep all results for its history."""

    def finish_displayhook(self):
        self._is_active = False


class _Displays(DisplayPublisher):
    def publish(self, data, metadata=None, *args, **kwargs):
        self.shell.output.display(data)

    def clear_output(self, wait=False):
        """What has been sent stays."""


class Shell(InteractiveShell):
    """Runs the cells of one kernel."""

    def __init__(self, output, gateway, tools):
        self.output = output
        self._internal = (_PACKAGE, tools)
        self._streams = Stream(output, "stdout", 1), Stream(output, "stderr", 2)
        self.use_own_streams()
        super().__init__(config=_CONFIG, displayhook_class=_LastValue, display_pub_class=_Displays)
        InteractiveShell._instance = self
        Shell._instance = self
        self._commands = Commands(self, gateway)
        builtins.input = _refuse_input
        self._initial = dict(self.user_ns)

    def use_own_streams(self):
        """A cell may have replaced them and failed before it put them back."""
        sys.stdout, sys.stderr = self._streams

    def names(self):
        """The variables of the user, each with the identity of its value."""
        return {name: id(value) for name, value in self.variables().items() if not name.startswith("_")}

    def variables(self):
        """What IPython has not begun with, by the names."""
        return {
            name: value
            for name, value in list(self.user_ns.items())
            if isinstance(name, str) and value is not self._initial.get(name, self)
        }

    def system(self, cmd):
        """Runs a command, and shows its output."""
        self._commands.show(self.var_expand(cmd, depth=1))

    def getoutput(self, cmd, split=True, depth=0):
        """Runs a command. Its output, as IPython's lists and texts."""
        output = self._commands.run(self.var_expand(cmd, depth=depth + 1))
        return SList(output.splitlines()) if split else LSString(output)

    def var_expand(self, cmd, depth=0, formatter=None):
        """Expands Python expressions in the line of a command or magic. `depth`: how many frames above the caller its names are."""
        # Not IPython's own names, such as `exit`, which are words of programs: `awk '{exit}'`.
        own = {name: value for name, value in list(self.user_ns.items()) if value is not self._initial.get(name, self)}
        local = sys._getframe(depth + 1).f_locals
        return expand(cmd, own if local is self.user_ns else {**own, **local})

    def init_virtualenv(self):
        """The interpreter is the one that the kernel host has chosen."""

    @contextlib.contextmanager
    def _tee(self, channel):
        """IPython would keep all output for its history."""
        yield

    def _get_exc_info(self, exc_tuple=None):
        """The exception without the frames of this package, such as that of the interrupt's handler, and of generated modules."""
        kind, value, first = super()._get_exc_info(exc_tuple)
        frames = []
        while first is not None:
            if not first.tb_frame.f_code.co_filename.startswith(self._internal):
                frames.append(first)
            first = first.tb_next
        for frame, following in zip(frames, [*frames[1:], None]):
            frame.tb_next = following
        return kind, value, frames[0] if frames else None

    def _showtraceback(self, etype, evalue, stb):
        self.output.write("error", f"{self.InteractiveTB.stb2text(stb)}\n")


def _refuse_input(prompt=""):
    raise StdinNotImplementedError("a cell cannot ask for input: nobody is at a terminal")
