"""Becomes a program in a process group of its own: `python -I -S -B own_group.py <program> <argument>...`.

Not in a session of its own, as by Node's `detached`. Where autogroups are enabled, Linux divides the processors equally among
sessions: each kernel would get as much as the whole server. So all kernels of a host share what its session gets.

Source: sched(7)
"""

import os
import sys

os.setpgid(0, 0)
_, *program = sys.argv
try:
    os.execvp(program[0], program)
except OSError as error:
    sys.exit(f"{program[0]}: {error.strerror}")
