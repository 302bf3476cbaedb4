"""A process that puts up the wall around itself and then becomes a command: bash, and the programs that it starts.

Frames from the kernel host: `start`, then `run`. Frames to it: `ready` or `failed`.
"""

import os
import signal

from . import installed, walls
from .channel import CHANNEL_FD, Channel

_SHELL = "/bin/bash"
_MAX_MESSAGE = 4_096
#: As for a program that a shell finds and cannot start.
_NOT_STARTED = 126


def main():
    channel = Channel()
    # The command gets no channel.
    os.set_inheritable(CHANNEL_FD, False)
    try:
        walls.put_up(channel.receive(), executes=True)
    except Exception as error:
        channel.send(type="failed", reason=f"{type(error).__name__}: {error}"[:_MAX_MESSAGE])
        os._exit(_NOT_STARTED)
    channel.send(type="ready", pid=os.getpid())
    frame = channel.receive()
    if frame is None:
        os._exit(_NOT_STARTED)
    _become(frame)


def _become(frame):
    # One pipe, so that the order of all output is the order of its arrival.
    os.dup2(1, 2)
    # Python ignores them, and the command would, too: `yes | head` would not end as it does elsewhere.
    for name in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)
    try:
        os.chdir(frame["cwd"])
        # Without start-up files: the command is what was approved.
        arguments = ["bash", "--norc", "--noprofile", "-c", frame["text"]]
        os.execve(_SHELL, arguments, {**frame["env"], **installed.environment(frame["env"]["HOME"])})
    except (OSError, ValueError) as error:
        os.write(1, f"[everturn] the command was not started: {error}\n".encode("utf-8", "replace"))
        os._exit(_NOT_STARTED)
