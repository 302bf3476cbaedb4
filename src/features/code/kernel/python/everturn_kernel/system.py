"""Calls of the operating system that Python's library does not have."""

import ctypes
import os
import platform

from .syscalls import NUMBERS

MACHINE = platform.machine()
_COLUMN = {"x86_64": 0, "aarch64": 1}
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38


def number_of(name):
    """The number of a system call on this machine, or None if it has none."""
    if MACHINE not in _COLUMN:
        raise OSError(f"the walls are written for {' and '.join(_COLUMN)}; this machine is {MACHINE}")
    return NUMBERS[name][_COLUMN[MACHINE]]


def call(name, *args):
    """Calls by name. Integers are passed as longs: libc's `syscall` takes a variable number of arguments."""
    longs = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    result = _libc.syscall(ctypes.c_long(number_of(name)), *longs)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return result


def prctl(option, value):
    call("prctl", option, value, 0, 0, 0)


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def drop_capabilities():
    """Gives up all capabilities of this process."""
    version_3 = 0x20080522
    call("capset", ctypes.byref(_CapabilityHeader(version_3, 0)), ctypes.byref((ctypes.c_uint32 * 6)()))
