"""What cells write and display, as frames to the kernel host, in the order in which it arrives."""

import base64
import io
import os
import threading

#: Characters of one frame.
_FRAME_CHARACTERS = 65_536
#: What threads of earlier cells may write until the end of the next cell.
_BACKLOG_BYTES = 65_536
_MAX_DISPLAYS = 20
_MAX_DISPLAY_BYTES = 8 * 1024 * 1024

#: Displays that become files, and those that are text. The first that a value has is its text.
_FILE_TYPES = ("image/png", "image/jpeg", "image/svg+xml", "text/html", "application/json")
_TEXT_TYPES = ("text/markdown", "text/latex", "text/plain")


class Output:
    """The output of one cell after the other."""

    def __init__(self, channel, threads):
        self._channel = channel
        self._threads = threads
        self._lock = threading.RLock()
        self._cell = None
        self._backlog = []
        self._backlog_bytes = 0
        self._is_backlog_cut = False

    def begin(self, cell, limit):
        """From now on output belongs to this cell, but that of threads which other cells have started."""
        with self._lock:
            self._room = limit
            self.discarded = 0
            self.displays = 0
            self.notices = []
            self._cell = cell

    def end(self):
        """Sends what earlier cells' threads have written, marked."""
        with self._lock:
            backlog, self._backlog, self._backlog_bytes = self._backlog, [], 0
            is_cut, self._is_backlog_cut = self._is_backlog_cut, False
            if backlog:
                text = "".join(backlog)
                self._send("stdout", f"[everturn] output of threads that earlier cells have started:\n{text}")
                if is_cut:
                    self._send_cut()
                self._send("stdout", "\n")
            if self.displays > _MAX_DISPLAYS:
                self.notices.append(f"{self.displays - _MAX_DISPLAYS} displays are left out: a cell may show {_MAX_DISPLAYS}")
            self._cell = None

    def write(self, name, text):
        """Writes text to a channel: `stdout`, `stderr`, `display` or `error`."""
        if not self._channel.is_ours:
            os.write(1, text.encode("utf-8", "replace"))
            return
        with self._lock:
            if self._cell is None or not self._threads.has_current():
                self._keep(text)
            else:
                self._send(name, text)

    def display(self, data):
        """Displays a value: `data` has its representations by their media types."""
        media_types = [one for one in _FILE_TYPES if data.get(one) is not None]
        is_image = any(one.startswith("image/") for one in media_types)
        text = next((data[one] for one in _TEXT_TYPES if data.get(one) is not None), None)
        # The text of an image is a name such as `<Figure size 640x480 with 1 Axes>`.
        if text is not None and not is_image:
            self.write("display", f"{text}\n")
        for media_type in media_types:
            self._display_file(media_type, _bytes_of(data[media_type], media_type))

    def _display_file(self, media_type, data):
        with self._lock:
            if self._cell is None:
                return
            if len(data) > _MAX_DISPLAY_BYTES:
                self.notices.append(f"a display of {len(data)} bytes is left out: it may have {_MAX_DISPLAY_BYTES}")
                return
            self.displays += 1
            if self.displays <= _MAX_DISPLAYS:
                encoded = base64.b64encode(data).decode()
                self._channel.send(type="display", id=self._cell, mediaType=media_type, data=encoded)

    def _send(self, name, text):
        encoded = text.encode("utf-8", "replace")
        is_cut = len(encoded) > self._room
        is_first = self.discarded == 0
        if is_cut:
            text = encoded[: self._room].decode("utf-8", "ignore")
            self.discarded += len(encoded) - self._room
        self._room -= min(len(encoded), self._room)
        for start in range(0, len(text), _FRAME_CHARACTERS):
            piece = text[start : start + _FRAME_CHARACTERS]
            self._channel.send(type="output", id=self._cell, channel=name, text=piece)
        if is_cut and is_first:
            self._send_cut()

    def _send_cut(self):
        """The kernel host takes away what may be the beginning of a value that it hides."""
        self._channel.send(type="cut", id=self._cell)

    def _keep(self, text):
        kept = text[: max(0, _BACKLOG_BYTES - self._backlog_bytes)]
        self._backlog_bytes += len(kept.encode("utf-8", "replace"))
        if kept:
            self._backlog.append(kept)
        if len(kept) < len(text):
            self._is_backlog_cut = True


def _bytes_of(value, media_type):
    if isinstance(value, bytes):
        return value
    if media_type in ("image/png", "image/jpeg") and isinstance(value, str):
        return base64.b64decode(value)
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    import json

    return json.dumps(value, default=str).encode()


class Stream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr` of cells."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, output, name, descriptor):
        self._output = output
        self._name = name
        self._descriptor = descriptor
        self.buffer = _Bytes(self)

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text:
            self._output.write(self._name, text)
        return len(text)

    def writable(self):
        return True

    def fileno(self):
        return self._descriptor


class _Bytes(io.RawIOBase):
    """The bytes below a stream, for code that writes to `sys.stdout.buffer`."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, data):
        data = bytes(data)
        self._stream.write(data.decode("utf-8", "replace"))
        return len(data)

    def writable(self):
        return True
