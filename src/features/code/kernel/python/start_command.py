"""Runs one command: `python -I -B start_command.py`, with the channel to the kernel host as file descriptor 3.

This process watches the one that becomes the command. It runs no code of a user, and reads nothing.
"""

import os
import select
import signal
import sys

_CHANNEL_FD = 3


def _watch(child):
    """Ends when the command ends, and with its exit code. If the kernel host ends first, all processes of the command do, too."""
    ended = os.pidfd_open(child)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    # Only its end is reported.
    poll.register(_CHANNEL_FD, 0)
    if ended not in (descriptor for descriptor, _ in poll.poll()):
        # The group: Linux ends one process with its parent, and not the children of that.
        os.kill(0, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def main():
    child = os.fork()
    if child:
        sys.exit(_watch(child))
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from everturn_kernel import command

    command.main()


main()
