"""The walls that the process puts up around itself, before it knows any code of a user and before its first thread."""

import os
import resource
import signal
import threading

from . import forwarder, landlock, seccomp, system, trials

_OPEN_FILES = 1_024
#: A third of the weight of the kernel host and of other processes in its session or control group: sched(7).
_NICE = 5


def put_up(setup, *, executes=False):
    """
    Applies the limits and the wall that the kernel host asks for, and tries what the wall must refuse. None of it can be undone.

    :param executes: whether programs can be started behind the wall, which applies to them, too
    """
    wall, limits, network = setup["wall"], setup["limits"], setup["network"]
    port = None
    if network is not None:
        port = network["port"]
        forwarder.start(network, lambda: _confine(wall, limits, sockets=seccomp.FORWARD))
    _confine(wall, limits, executes=executes, port=port, sockets=seccomp.NONE if port is None else seccomp.CONNECT)
    if wall is None:
        return
    if possible := trials.succeeded(setup["bait"], executes=executes, port=port):
        raise PermissionError(f"the wall does not hold: {', '.join(possible)} was possible")


def _confine(wall, limits, *, sockets, port=None, executes=False):
    """
    :param sockets: what the process may do with them, of `seccomp`
    :param port: to which it may connect
    """
    _limit(limits)
    if wall is None:
        return
    if wall["uid"] is not None:
        os.setgroups([])
        os.setresgid(wall["gid"], wall["gid"], wall["gid"])
        os.setresuid(wall["uid"], wall["uid"], wall["uid"])
    if threading.active_count() > 1:
        raise RuntimeError("Landlock confines one thread, and there are others")
    system.drop_capabilities()
    # A change of the user clears it. It ends the kernel if the kernel host is killed while a cell runs.
    system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    landlock.confine(wall["read"], wall["write"], port=port, executes=executes)
    seccomp.confine(
        keeps_signals=landlock.abi() >= landlock.SIGNALS_ABI,
        sees_host=wall["seesHost"],
        shares_user=wall["sharesUser"],
        sockets=sockets,
        executes=executes,
    )


def _limit(limits):
    # Not before: on a loaded machine the interpreter would take three times as long to start.
    os.nice(_NICE)
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if limits["processes"] is not None:
        _set_limit(resource.RLIMIT_NPROC, limits["processes"])
    processors = sorted(os.sched_getaffinity(0))
    # Another first processor for each kernel, or all of them would share the same.
    first = int.from_bytes(os.urandom(2), "little")
    os.sched_setaffinity(0, [processors[(first + index) % len(processors)] for index in range(limits["cpus"])])


def _set_limit(kind, value):
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
