"""The channel to the kernel host: one JSON object per line, over an inherited socket."""

import contextlib
import json
import os
import socket
import threading

#: The file descriptor that the kernel host gives to the process.
CHANNEL_FD = 3


class Channel:
    """Sends and receives frames. Any thread may send."""

    def __init__(self):
        self._socket = socket.socket(fileno=CHANNEL_FD)
        self._reader = self._socket.makefile("rb")
        self._lock = threading.RLock()
        self._uninterrupted = 0
        self._interrupted = False
        os.register_at_fork(after_in_child=self._leave)

    def receive(self):
        """The next frame, or None after the kernel host has closed its end."""
        line = self._reader.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def send(self, **frame):
        """Sends a whole frame: half a frame would end the kernel."""
        line = json.dumps(frame).encode() + b"\n"
        with self.uninterrupted(), self._lock:
            self._socket.sendall(line)

    @contextlib.contextmanager
    def uninterrupted(self):
        """In the main thread, an interrupt is raised at the end of this block, not inside."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._uninterrupted += 1
        try:
            yield
        finally:
            self._uninterrupted -= 1
            if self._interrupted and not self._uninterrupted:
                self._interrupted = False
                raise KeyboardInterrupt

    def defers_interrupt(self):
        """Called by the handler of SIGINT. Whether the interrupt is raised at the end of the block."""
        self._interrupted = self._uninterrupted > 0
        return self._interrupted

    @property
    def is_ours(self):
        """False in a child that user code has forked."""
        return self._socket.fileno() == CHANNEL_FD

    def _leave(self):
        """A forked child has no channel: what it wrote would be mixed with what the kernel writes."""
        self._lock = threading.RLock()
        # Not again in a child of the child, where the number may be that of another file.
        if self._socket.detach() == CHANNEL_FD:
            os.close(CHANNEL_FD)
