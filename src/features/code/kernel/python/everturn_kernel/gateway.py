"""The calls of a cell, of tools and of commands: the kernel host executes them while the code waits."""

import contextvars
import json
import os
import queue
import threading
import time

from mcptools import ApprovalRejectedError, ApprovalTimeoutError, ToolRunnerError, UnknownOutcomeError

_MAX_CALLS = 1_000
_MAX_CALL_BYTES = 1024 * 1024
#: What the kernel host accepts in one frame. Calls beyond it are in the next one.
_MAX_BATCH = 32
_MAX_BATCH_BYTES = 8 * 1024 * 1024

#: Calls of threads are made together if the next one comes within the first time, up to the second.
_QUIET_SECONDS = 0.01
_GATHER_SECONDS = 0.1
#: How often an event loop that is never idle is looked at before the calls of its tasks are made.
_MAX_PASSES = 1_000

_NO_CELL = "no cell is running"
_ERRORS = {
    "failed": ToolRunnerError,
    "denied": ApprovalRejectedError,
    "expired": ApprovalTimeoutError,
    "unknown_outcome": UnknownOutcomeError,
}

#: The cell that this code is of, by its token. Tasks inherit it; threads do not, see `CellThreads`.
_cell = contextvars.ContextVar("cell", default=None)


class _Call:
    """A call, and who waits for it."""

    def __init__(self, content, on_answer):
        self.content = content
        self.bytes = len(json.dumps(content))
        self.answer = None
        self.on_answer = on_answer

    def result(self):
        """The answer, or the exception that it is."""
        if (error := _ERRORS.get(self.answer["status"])) is not None:
            raise error(self.answer["message"])
        return self.answer


class Gateway:
    """
    Passes the calls of the running cell to the kernel host, all that are made at the same time together, and its answers
    to the code. One batch is out at a time; calls that are made until it is answered are the next one.
    """

    def __init__(self, channel, threads):
        self._channel = channel
        self._threads = threads
        self._lock = threading.RLock()
        self._id = None
        self._token = None
        self._made = 0
        self._sent = 0
        self._pending = []
        self._out = {}
        self._reader = None
        self._runs = queue.SimpleQueue()
        self._watched_loops = set()

    def next_run(self):
        """The next cell, or None after the kernel host has closed its end."""
        # Without calls there is no second thread, about which `os.fork` warns.
        return self._channel.receive() if self._reader is None else self._runs.get()

    def begin(self, cell, token):
        """The cell may call."""
        with self._lock:
            self._id, self._token = cell, token
            self._made = self._sent = 0
            self._watched_loops.clear()
        _cell.set(token)

    def end(self):
        """It has ended: calls of its threads that have not been made yet fail."""
        with self._lock:
            self._token = None
            left, self._pending = self._pending, []
        for call in left:
            _answer(call, {"status": "failed", "message": _NO_CELL})

    def call(self, **content):
        """Makes a call, and waits for its answer."""
        answered = threading.Event()
        call = _Call(content, answered.set)
        try:
            self._submit(call)
            if threading.current_thread() is not threading.main_thread():
                self._wait_for_others(answered)
            self._flush()
            answered.wait()
        except BaseException:
            self._withdraw(call)
            raise
        return call.result()

    async def call_async(self, **content):
        """Makes a call with those of other tasks, and awaits its answer."""
        import asyncio

        loop = asyncio.get_running_loop()
        future = loop.create_future()
        call = _Call(content, lambda: _wake(loop, future))
        try:
            self._submit(call)
            self._flush_when_idle(loop)
            await future
        except BaseException:
            self._withdraw(call)
            raise
        return call.result()

    def _submit(self, call):
        # Before the lock, which another thread of the parent may have held when it forked.
        if not self._channel.is_ours:
            raise ToolRunnerError("a forked process cannot call tools or commands")
        with self._channel.uninterrupted(), self._lock:
            is_of_cell = self._threads.has_current() and _cell.get() in (None, self._token)
            if self._token is None or not is_of_cell:
                raise ToolRunnerError(_NO_CELL)
            if self._made >= _MAX_CALLS:
                raise ToolRunnerError(f"a cell may make {_MAX_CALLS:,} calls of tools and commands")
            self._made += 1
            self._pending.append(call)

    def _withdraw(self, call):
        """Nothing waits for the call any more. If it has been sent, its answer is dropped."""
        with self._lock:
            if call in self._pending:
                self._pending.remove(call)

    def _wait_for_others(self, answered):
        deadline = time.monotonic() + _GATHER_SECONDS
        made = -1
        while made != self._made and time.monotonic() < deadline:
            made = self._made
            if answered.wait(_QUIET_SECONDS):
                return

    def _flush_when_idle(self, loop):
        def look(passes):
            # Loops of other libraries do not show what is ready; then the calls of one pass are made together.
            if passes and getattr(loop, "_ready", None):
                loop.call_soon(look, passes - 1)
                return
            self._watched_loops.discard(loop)
            self._flush()

        if loop not in self._watched_loops:
            self._watched_loops.add(loop)
            loop.call_soon(look, _MAX_PASSES)

    def _flush(self):
        with self._channel.uninterrupted(), self._lock:
            self._send_batch()

    def _send_batch(self):
        if self._out or not self._pending:
            return
        if self._reader is None:
            # Not before: a cell runs, so that nothing else reads.
            self._reader = threading.Thread(target=self._read, name="everturn-answers", daemon=True)
            self._reader.start()
        size = 0
        while self._pending and len(self._out) < _MAX_BATCH:
            size += self._pending[0].bytes
            if self._out and size > _MAX_BATCH_BYTES:
                break
            self._sent += 1
            self._out[self._sent] = self._pending.pop(0)
        calls = [{"number": number, **call.content} for number, call in self._out.items()]
        self._channel.send(type="calls", id=self._id, token=self._token, calls=calls)

    def _read(self):
        try:
            while (frame := self._channel.receive()) is not None:
                if frame["type"] == "results":
                    self._deliver(frame["answers"])
                else:
                    self._runs.put(frame)
        finally:
            # The kernel host is gone, or user code has closed the channel.
            os._exit(1)

    def _deliver(self, answers):
        with self._lock:
            answered = [(self._out.pop(answer["number"], None), answer) for answer in answers]
            for call, answer in answered:
                if call is not None:
                    _answer(call, answer)
            self._send_batch()


def bounded(text, what, limit=_MAX_CALL_BYTES):
    """The text, if the kernel host accepts it."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ToolRunnerError(f"{what} must be Unicode") from None
    if "\0" in text:
        raise ToolRunnerError(f"{what} must not contain null characters")
    if size > limit:
        raise ToolRunnerError(f"{what} may have {limit:,} bytes, not {size:,}")
    return text


def _answer(call, answer):
    call.answer = answer
    call.on_answer()


def _wake(loop, future):
    """Ends the waiting of a task, from another thread."""

    def wake():
        if not future.done():
            future.set_result(None)

    try:
        loop.call_soon_threadsafe(wake)
    except RuntimeError:
        """The loop has been closed, and its tasks with it."""
