"""What the wall must refuse, tried from inside before the kernel serves. A wall is believed only if it is seen to hold."""

import os
import socket
import sys


def succeeded(bait, *, executes=False, port=None):
    """
    The forbidden acts that were possible.

    :param bait: a file that any user may read and write, a Unix socket that listens, an address of the
        loopback on which something listens, and the process of the kernel host
    :param executes: whether programs may be started
    :param port: of its proxy, to which it may connect by TCP; None: it has none
    """

    def read():
        with open(bait["file"], "rb"):
            pass

    def write():
        with open(bait["file"], "ab"):
            pass

    def truncate():
        os.truncate(bait["file"], 0)

    def change_mode():
        before = os.stat(bait["file"]).st_mode
        os.chmod(bait["file"], 0o600)
        # A filter may report it as done.
        if os.stat(bait["file"]).st_mode == before:
            raise PermissionError

    def tcp_socket():
        socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()

    def tcp_connection():
        # The port is allowed, so that the namespace alone refuses it.
        socket.create_connection((bait["host"], port)).close()

    def tcp_server():
        socket.create_server(("127.0.0.1", 0)).close()

    def udp_socket():
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()

    def unix_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(bait["socket"])

    def signal_stranger():
        os.kill(bait["pid"], 0)

    def execute():
        # If it starts, nothing answers the kernel host any more.
        os.execv(sys.executable, [sys.executable, "-c", ""])

    tcp = (tcp_socket,) if port is None else (tcp_connection, tcp_server)
    acts = (read, write, truncate, change_mode, *tcp, udp_socket, unix_socket, signal_stranger, *(() if executes else (execute,)))
    return [act.__name__ for act in acts if _is_possible(act)]


def _is_possible(act):
    try:
        act()
    except OSError:
        return False
    return True
