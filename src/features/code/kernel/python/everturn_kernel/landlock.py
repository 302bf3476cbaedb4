"""Landlock: which files the kernel may open. It does not cover everything that has a path: see seccomp.py.

Source: https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import errno
import os
import stat

from . import system

#: The first version that controls truncation.
OLDEST_ABI = 3
#: The first version that keeps signals within the processes of the kernel.
SIGNALS_ABI = 6
#: The first version that controls TCP.
_NETWORK_ABI = 4

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO = (1 << bit for bit in range(7, 11))
MAKE_SYM, REFER, TRUNCATE = (1 << bit for bit in range(12, 15))

#: All rights of ABI 3, and those that later versions added, by the version.
_FILE_RIGHTS = (1 << 15) - 1
_DEVICE_RIGHTS = {5: 1 << 15}
_NETWORK_RIGHTS = {_NETWORK_ABI: 0b11}
_SCOPES = {SIGNALS_ABI: 0b11}

_READ = READ_FILE | READ_DIR
_WRITE = (
    _READ | WRITE_FILE | TRUNCATE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM | REFER
)
#: The rights of `_WRITE` that a file has; a rule for a file must not name others.
_OF_FILES = READ_FILE | WRITE_FILE | TRUNCATE | EXECUTE

_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_RULE_NET_PORT = 2
_CONNECT_TCP = 1 << 1


class _RulesetAttr(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


class _NetPortAttr(ctypes.Structure):
    _fields_ = [("allowed", ctypes.c_uint64), ("port", ctypes.c_uint64)]


def abi():
    """The version that this Linux has; 0 if it has none."""
    try:
        return system.call("landlock_create_ruleset", 0, 0, _CREATE_RULESET_VERSION)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP):
            return 0
        raise


def confine(read, write, *, port=None, executes=False):
    """
    Confines this process to reading and writing below these paths. A path that does not exist is left out.

    :param port: to which it may connect by TCP, to any address; a version without control of TCP leaves that to the namespace
    :param executes: whether it may start the programs there
    """
    version = abi()
    if version < OLDEST_ABI:
        raise OSError(f"Landlock ABI {OLDEST_ABI} is needed; this Linux has {version or 'none'}")

    def added(by_version):
        return sum(rights for since, rights in by_version.items() if version >= since)

    attr = _RulesetAttr(_FILE_RIGHTS | added(_DEVICE_RIGHTS), added(_NETWORK_RIGHTS), added(_SCOPES))
    # An older version rejects fields that it does not know.
    size = 8 * (1 + (version >= _NETWORK_ABI) + (version >= SIGNALS_ABI))
    ruleset = system.call("landlock_create_ruleset", ctypes.byref(attr), size, 0)
    for paths, rights in ((read, _READ), (write, _WRITE)):
        for path in paths:
            _allow(ruleset, path, rights | EXECUTE if executes else rights)
    if port is not None and version >= _NETWORK_ABI:
        rule = _NetPortAttr(_CONNECT_TCP, port)
        system.call("landlock_add_rule", ruleset, _RULE_NET_PORT, ctypes.byref(rule), 0)
    system.call("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)


def _allow(ruleset, path, rights):
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(os.fstat(place).st_mode):
        rights &= _OF_FILES
    rule = _PathBeneathAttr(rights, place)
    system.call("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    os.close(place)
