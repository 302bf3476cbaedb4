"""The filter of system calls: what no cell and no command needs, and what Landlock does not cover.

Sources: seccomp(2), https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import ctypes
import errno
import os
import struct

from . import system

#: Starting programs: the kernel host does that, after a decision. A command then starts others.
_PROGRAMS = "execve"
#: Starting a program without a path. Libraries use it only if they are asked to.
_PROGRAMS_WITHOUT_PATH = "execveat"
#: `socketpair` has a rule of its own. Landlock does not cover sockets that are files.
_SOCKETS = "socket connect bind listen accept accept4".split()
#: The process group is how the kernel host finds and ends all processes of a kernel.
_LEAVING = "setsid setpgid unshare setns"
#: Landlock's signal scope, where it exists, allows signals between the kernel's own processes: see `_signals`.
_STRANGERS = """
    rt_sigqueueinfo rt_tgsigqueueinfo tkill pidfd_send_signal pidfd_open pidfd_getfd ptrace process_vm_readv process_vm_writev
    process_madvise process_mrelease kcmp perf_event_open
    sched_setaffinity sched_setscheduler sched_setparam sched_setattr setpriority ioprio_set move_pages migrate_pages
"""
_LARGE_SURFACE = "userfaultfd io_uring_setup io_uring_enter io_uring_register bpf keyctl add_key request_key personality"
_MOUNTS = """
    mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree mount_setattr statmount listmount
    swapon swapoff quotactl quotactl_fd
"""
#: Ways to files that do not pass a path, and those to the names of files that Landlock hides.
_OTHER_WAYS_TO_FILES = """
    name_to_handle_at open_by_handle_at fanotify_init fanotify_mark inotify_init inotify_init1 inotify_add_watch
    lookup_dcookie nfsservctl
"""
#: Memory that belongs to no process, which the watcher of memory would not count.
_HIDDEN_MEMORY = """
    memfd_create memfd_secret shmget shmat shmctl semget semop semctl semtimedop msgget msgsnd msgrcv msgctl mq_open mq_unlink
"""
_PRIVILEGES = """
    setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset
    init_module finit_module delete_module kexec_load kexec_file_load reboot sethostname setdomainname acct syslog vhangup
    iopl ioperm modify_ldt uselib _sysctl sysfs ustat settimeofday clock_settime clock_adjtime adjtimex
"""
_REFUSED = f"""
    {_PROGRAMS_WITHOUT_PATH} {_LEAVING} {_STRANGERS} {_LARGE_SURFACE} {_MOUNTS} {_OTHER_WAYS_TO_FILES} {_HIDDEN_MEMORY}
    {_PRIVILEGES}
""".split()

#: A filter cannot look into their arguments. Without them, libc uses the older calls.
_UNKNOWN = "clone3 openat2".split()
#: Newer calls have not been considered: 462 is mseal of Linux 6.10, on both architectures.
_NEWEST = 462

#: What Landlock does not cover: the properties of files, also of those that can only be read.
_ATTRIBUTES = "setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr".split()
_OWNERS = "chown lchown fchown fchownat".split()
_TIMES = "utime utimes futimesat utimensat".split()
#: With the position of the mode.
_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}

#: What a process may do with sockets: nothing; connect by TCP; accept connections, and connect to a socket that is a file.
NONE, CONNECT, FORWARD = "none", "connect", "forward"

_CLONE_NAMESPACES = 0x7E020000
_SET_ID_BITS = 0o6000
_SOCKET_TYPE = 0xF
_AF_UNIX, _AF_INET, _SOCK_STREAM, _SOCK_SEQPACKET = 1, 2, 1, 5
_DEFAULT_PROTOCOL, _IPPROTO_TCP = 0, 6
_TIOCSTI, _TIOCLINUX, _FIOSETOWN, _SIOCSPGRP = 0x5412, 0x541C, 0x8901, 0x8902
#: The flags of files, of which the owner may set some: FS_IOC_SETFLAGS, FS_IOC_SETVERSION, FS_IOC_FSSETXATTR, and fs-verity.
_SET_FLAGS = 0x40086602, 0x40046602, 0x40087602, 0x40047602, 0x401C5820, 0x40806685
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX, _F_NOTIFY = 8, 10, 15, 1026

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000

_ALLOW = 0x7FFF0000
_KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
_REFUSE = _ERRNO | errno.EPERM
_HAS_NO_SUCH_CALL = _ERRNO | errno.ENOSYS
#: The call does nothing and is reported as done.
_PRETEND = _ERRNO | 0

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT = 0x15, 0x35, 0x45
_NUMBER, _ARCH = 0, 4


def _statement(code, value):
    return [(code, 0, 0, value)]


def _result(value):
    return _statement(_RETURN, value)


def _when(code, value, then):
    """Runs `then`, which ends with a result, if the loaded word passes the test."""
    return [(code, 0, len(then), value), *then]


def _load_argument(index):
    """Loads the lower half of an argument: those that are looked at are ints for Linux, too. Both machines are little-endian."""
    return _statement(_LOAD, 16 + 8 * index)


def _only(index, *values):
    """Allows the call with these values of an argument."""
    allowed = [one for value in values for one in _when(_IF_EQUAL, value, _result(_ALLOW))]
    return [*_load_argument(index), *allowed, *_result(_REFUSE)]


def _none_of(index, *values):
    refused = [one for value in values for one in _when(_IF_EQUAL, value, _result(_REFUSE))]
    return [*_load_argument(index), *refused, *_result(_ALLOW)]


def _without_bits(index, bits):
    return [*_load_argument(index), *_when(_IF_ANY_BIT, bits, _result(_REFUSE)), *_result(_ALLOW)]


def _creating(flags, mode):
    """Opening a file: a new one must not get a bit that gives its user to others."""
    refused = [*_load_argument(mode), *_when(_IF_ANY_BIT, _SET_ID_BITS, _result(_REFUSE))]
    return [*_load_argument(flags), (_IF_ANY_BIT, 0, len(refused), os.O_CREAT), *refused, *_result(_ALLOW)]


def _sockets(use):
    allowed = {
        NONE: {},
        CONNECT: {"socket": _streams(_AF_INET), "connect": _result(_ALLOW)},
        FORWARD: {"socket": _streams(_AF_UNIX), **{name: _result(_ALLOW) for name in ("connect", "accept", "accept4")}},
    }[use]
    return {**{name: _result(_REFUSE) for name in _SOCKETS}, **allowed}


def _streams(family):
    """Sockets for byte streams of one family. Of its protocols, TCP alone: others are a large surface, or no part of Landlock."""
    protocols = [one for value in (_DEFAULT_PROTOCOL, _IPPROTO_TCP) for one in _when(_IF_EQUAL, value, _result(_ALLOW))]
    of_type = [*_load_argument(2), *protocols]
    stream = [*_load_argument(1), *_statement(_AND, _SOCKET_TYPE), *_when(_IF_EQUAL, _SOCK_STREAM, [*of_type, *_result(_REFUSE)])]
    return [*_load_argument(0), *_when(_IF_EQUAL, family, [*stream, *_result(_REFUSE)]), *_result(_REFUSE)]


def _pairs():
    """Pairs of connected sockets. Not of datagrams, which can be sent to any socket that has a path."""
    kinds = [one for kind in (_SOCK_STREAM, _SOCK_SEQPACKET) for one in _when(_IF_EQUAL, kind, _result(_ALLOW))]
    of_unix = [*_load_argument(1), *_statement(_AND, _SOCKET_TYPE), *kinds]
    return [*_load_argument(0), (_IF_EQUAL, 0, len(of_unix), _AF_UNIX), *of_unix, *_result(_REFUSE)]


def _signals(keeps_signals, executes):
    """
    Without Landlock's signal scope the process may signal itself only. A program cannot signal its group, which is that of the
    whole command: `timeout`, which cannot make one of its own, would end the shell that waits for it.
    """
    if keeps_signals:
        everyone, group = 0xFFFFFFFF, 0
        return {"kill": _none_of(0, everyone, *([group] if executes else []))}
    return {name: _only(0, os.getpid()) for name in ("kill", "tgkill")}


def _properties(sees_host, shares_user):
    """
    The properties of files outside of the sandbox must not change: all of them where their owner is the user of this process,
    and the times of those that everybody may write. Copying a file sets the properties of the copy, and must not fail for it.
    """
    pretended = (*_MODES, *_OWNERS, *_TIMES) if shares_user else _TIMES if sees_host else ()
    return {
        **{name: _result(_REFUSE) for name in _ATTRIBUTES},
        **{name: _without_bits(index, _SET_ID_BITS) for name, index in _MODES.items()},
        **{name: _result(_PRETEND) for name in pretended},
    }


def _rules(keeps_signals, sees_host, shares_user, sockets, executes):
    return {
        **{name: _result(_REFUSE) for name in [*_REFUSED, *([] if executes else _PROGRAMS.split())]},
        **{name: _result(_HAS_NO_SUCH_CALL) for name in _UNKNOWN},
        **_sockets(sockets),
        **_signals(keeps_signals, executes),
        **_properties(sees_host, shares_user),
        "clone": _without_bits(0, _CLONE_NAMESPACES),
        "socketpair": _pairs(),
        "open": _creating(1, 2),
        "openat": _creating(2, 3),
        "creat": _without_bits(1, _SET_ID_BITS),
        "mknod": _without_bits(1, _SET_ID_BITS),
        "mknodat": _without_bits(2, _SET_ID_BITS),
        "prlimit64": _only(0, 0),
        "prctl": _none_of(0, system.PR_SET_PDEATHSIG),
        "fcntl": _none_of(1, _F_SETOWN, _F_SETSIG, _F_SETOWN_EX, _F_NOTIFY),
        "ioctl": _none_of(1, _TIOCSTI, _TIOCLINUX, _FIOSETOWN, _SIOCSPGRP, *_SET_FLAGS),
    }


def _program(rules):
    other_machine = [
        *_statement(_LOAD, _ARCH),
        (_IF_EQUAL, 1, 0, _AUDIT_ARCH[system.MACHINE]),
        *_result(_KILL_PROCESS),
    ]
    checks = [
        one
        for name, rule in rules.items()
        if (number := system.number_of(name)) is not None
        for one in _when(_IF_EQUAL, number, rule)
    ]
    return [
        *other_machine,
        *_statement(_LOAD, _NUMBER),
        # x32 has other numbers for the same calls.
        *(_when(_IF_AT_LEAST, _X32, _result(_KILL_PROCESS)) if system.MACHINE == "x86_64" else []),
        *_when(_IF_AT_LEAST, _NEWEST + 1, _result(_HAS_NO_SUCH_CALL)),
        *checks,
        *_result(_ALLOW),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def confine(*, keeps_signals, sees_host, shares_user, sockets, executes=False):
    """
    Confines all threads of this process.

    :param keeps_signals: whether Landlock keeps signals within the kernel's processes
    :param sees_host: whether files outside of the sandbox have paths here
    :param shares_user: whether the user of this process owns some of them
    :param sockets: `NONE`, `CONNECT` or `FORWARD`
    :param executes: whether it may start programs
    """
    program = _program(_rules(keeps_signals, sees_host, shares_user, sockets, executes))
    packed = b"".join(struct.pack("=HBBI", *one) for one in program)
    set_mode_filter, synchronize_threads = 1, 1
    system.call("seccomp", set_mode_filter, synchronize_threads, ctypes.byref(_Program(len(program), packed)))
