"""Commands of cells. The kernel cannot start programs: the kernel host executes them, after a decision."""

import importlib
import os
import sys

from IPython.core.error import UsageError

from .gateway import bounded

_MAX_ENVIRONMENT_BYTES = 256 * 1024
_MAX_PATH_BYTES = 4096
#: Magics of IPython that run a cell as a script. Those of the first line are executed by bash.
_SHELLS = ("bash", "sh")
_OTHER_PROGRAMS = ("perl", "ruby", "pypy", "python", "python2", "python3")


class Commands:
    """Runs commands of the cells of a shell, and has the magics that are commands."""

    def __init__(self, shell, gateway):
        self._shell = shell
        self._gateway = gateway
        for name in _SHELLS:
            shell.register_magic_function(lambda line, cell, name=name: self._script(f"{name} {line}", cell), "cell", name)
        for name in _OTHER_PROGRAMS:
            shell.register_magic_function(lambda line, cell, name=name: self._script(name, cell), "cell", name)
        shell.register_magic_function(self._script, "cell", "script")
        shell.register_magic_function(self._pip, "line", "pip")

    def run(self, text, *, is_script=False):
        """Runs a command. Its output; its exit code becomes `_exit_code`."""
        answer = self._gateway.call(
            kind="command",
            text=bounded(text, "a command"),
            isScript=is_script,
            cwd=bounded(os.getcwd(), "the working directory", _MAX_PATH_BYTES),
            env=_environment(),
        )
        self._shell.user_ns["_exit_code"] = answer["exitCode"]
        return answer["output"]

    def show(self, text, *, is_script=False):
        """Runs a command, and writes its output to `sys.stdout`, where `%%capture` can get it."""
        sys.stdout.write(self.run(text, is_script=is_script))

    def _script(self, line, cell):
        if line.strip() not in _SHELLS:
            raise UsageError(f"%%script {line.strip()}: only bash and sh can run a cell, without arguments")
        self.show(cell, is_script=True)
        if (code := self._shell.user_ns["_exit_code"]) != 0:
            from subprocess import CalledProcessError

            raise CalledProcessError(code, cell)

    def _pip(self, line):
        # IPython has expanded the line. Commands find the interpreter of the kernel as `python`.
        self.show(f"python -m pip {line}")
        importlib.invalidate_caches()


def _environment():
    env = dict(os.environ)
    whole = "".join(f"{name}{value}" for name, value in env.items())
    bounded(whole, "the environment of a command", _MAX_ENVIRONMENT_BYTES)
    return env
