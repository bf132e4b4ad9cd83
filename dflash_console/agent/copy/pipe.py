"""The copy process's link to its console: whole frames, waited for no longer than the console may be silent.

Work on this host may take as long as it takes; only what waits for the console is bounded.
"""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import time

from ..frames import JSON, RAW, encode

__all__ = ["FRAME_LIMIT", "Gone", "Pipe"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, Union

    Buffer = Union[bytes, bytearray, memoryview]

FRAME_LIMIT = 4 << 20
"""Bytes of one frame from the console."""
READ = 1 << 18
LISTED_AT_ONCE = 4000
"""As copies.LISTED_AT_ONCE."""
PACE = 0.2
"""Seconds between two words of progress."""
HEADER = struct.Struct(">IB")


class Gone(BaseException):
    """The console is gone or silent, or a signal asks for the end: whatever is under way has to end, tidily.

    Not an Exception: what ends a request must not be taken for a fault in it.
    """


class Pipe:
    """Frames both ways, over two file descriptors (made non-blocking).

    Every method that waits raises Gone when the console has gone, has neither sent nor taken a byte for `heartbeat`
    seconds, or when SIGTERM, SIGHUP or SIGINT has come: signals are only noted and never interrupt anything. What is
    no frame of the protocol ends the process with words.
    """

    def __init__(self, reading: int, writing: int, heartbeat: float) -> None:
        self._reading, self._writing = reading, writing
        self._heartbeat = heartbeat
        self._data = bytearray()
        self._is_closed = False
        """Whether the console has closed its end; what came before is still in `_data`."""
        self._ending = ""
        self._heard = time.monotonic()
        self._told_at = 0.0
        self._request: Any = None
        self.compress = False
        """Whether the blocks that are sent from here on are compressed; `pace` sets it."""
        self._waker, self._wake = os.pipe()
        for fd in (reading, writing, self._waker, self._wake):
            os.set_blocking(fd, False)

    def listen_for_signals(self) -> None:
        """From here on SIGTERM, SIGHUP and SIGINT end the next wait, or the next `mind`. For the main thread."""
        for ending in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(ending, self._note)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        # Without it a signal that comes just before poll would be seen only after it.
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    # ---- what the console says

    def request(self) -> dict[str, Any]:
        """The next request; its answer is given with `answer`. Raises Gone also at the end of the input."""
        while True:
            frame = self._frame()
            if isinstance(frame, dict):
                self._request, self._told_at = frame.get("id"), 0.0
                return frame
            # What a request that failed has not taken any more.

    def raw(self) -> bytes:
        """The next raw frame, for the request under way."""
        frame: dict[str, Any] | bytes = self._frame()
        if isinstance(frame, dict):
            _refuse(f"the request {str(frame.get('do'))[:40]!r} came where data was expected")
        return frame

    def mind(self) -> None:
        """Look after the console during work on this host, without waiting: answer its pings, take its `pace`.

        Call it every now and then: it raises Gone when the work is for nobody any more.
        """
        self._take()
        self._serve_waiting()
        if self._is_closed:
            raise Gone("the console is gone")

    # ---- what it is told

    def answer(self, ok: object = None, error: str = "") -> None:
        """End the request with its value (ready for JSON) or with why not."""
        self._answer(self._request, ok, error)

    def part(self, entries: list[Any]) -> None:
        """Entries, before the answer, in as many frames as it takes."""
        for at in range(0, len(entries), LISTED_AT_ONCE):
            self.say({"type": "part", "id": self._request, "entries": entries[at : at + LISTED_AT_ONCE]})

    def progress(self, files: int, size: int) -> None:
        """How many files and bytes are done: told at most five times a second, the first of a request at once. Looks
        after the console as well."""
        self.mind()
        now = time.monotonic()
        if now >= self._told_at + PACE:
            self._told_at = now
            self.say({"type": "progress", "id": self._request, "files": files, "bytes": size})

    def say(self, message: dict[str, Any]) -> None:
        """Send one JSON message."""
        self._write(JSON, [encode(message).encode("ascii")])

    def send(self, *parts: Buffer) -> None:
        """Send one raw frame, which may be in several pieces."""
        self._write(RAW, list(parts))

    # ---- frames

    def _frame(self) -> Any:
        """The next frame that is not for `_serve`: a dict, or bytes. Waits for it."""
        self._heard = time.monotonic()
        while True:
            if self._ending:
                raise Gone(self._ending)
            frame = self._next()
            if frame is None:
                if self._is_closed:
                    raise Gone("the console is gone")
                self._wait()
            elif not (isinstance(frame, dict) and self._serve(frame)):
                return frame

    def _next(self) -> Any:
        """The first frame in the buffer, taken out of it; None while there is no whole one."""
        found = self._peek()
        if found is None:
            return None
        kind, end = found
        with memoryview(self._data) as view:
            payload = bytes(view[HEADER.size : end])
        del self._data[:end]
        if kind == RAW:
            return payload
        return _message(payload)

    def _peek(self) -> Any:
        """Kind and end of the first frame in the buffer, if it is whole."""
        if len(self._data) < HEADER.size:
            return None
        length, kind = HEADER.unpack_from(self._data)
        if kind not in (JSON, RAW) or length > FRAME_LIMIT:
            _refuse(f"a frame of kind {kind} and {length} bytes")
        end = HEADER.size + length
        return (kind, end) if len(self._data) >= end else None

    def _serve_waiting(self) -> None:
        """Serve what came during a request and does not wait for its end."""
        while True:
            found = self._peek()
            if found is None or found[0] != JSON or found[1] > 1024:
                return
            if not self._serve(_message(bytes(self._data[HEADER.size : found[1]]))):
                return
            del self._data[: found[1]]

    def _serve(self, message: dict[str, Any]) -> bool:
        """Whether the message was one that may come at any time, and was answered."""
        do = message.get("do")
        if do == "ping":
            self._answer(message.get("id"), {"at": time.time()}, "")
        elif do == "pace":
            self.compress = bool(message.get("compress"))
            self._answer(message.get("id"), None, "")
        else:
            return False
        return True

    def _answer(self, number: object, ok: object, error: str) -> None:
        answer = {"type": "answer", "id": number}
        self.say({**answer, "error": error} if error else {**answer, "ok": ok})

    # ---- bytes

    def _take(self) -> int:
        """Read what is there, as far as the buffer's bound allows; how many bytes came."""
        came = 0
        while len(self._data) <= FRAME_LIMIT + HEADER.size:
            try:
                data = os.read(self._reading, READ)
            except BlockingIOError:
                break
            except OSError:  # the link was reset
                data = b""
            if not data:
                self._is_closed = True
                break
            self._data += data
            came += len(data)
        if came:
            self._heard = time.monotonic()
        if self._ending:
            raise Gone(self._ending)
        return came

    def _write(self, kind: int, parts: list[Buffer]) -> None:
        pieces = [memoryview(part) for part in parts if len(part)]
        pieces.insert(0, memoryview(HEADER.pack(sum(map(len, pieces)), kind)))
        self._heard = time.monotonic()
        while pieces:
            try:
                written = os.writev(self._writing, pieces)
            except BlockingIOError:
                self._wait(is_writing=True)
                continue
            except OSError:
                raise Gone("the console is gone") from None
            self._heard = time.monotonic()
            while pieces and written >= len(pieces[0]):
                written -= len(pieces.pop(0))
            if written:
                pieces[0] = pieces[0][written:]

    def _wait(self, is_writing: bool = False) -> None:
        """Until something came, or more can be written; the end of the input is always seen, and ends a writing."""
        while not self._is_closed:
            is_full = len(self._data) > FRAME_LIMIT + HEADER.size
            poll = select.poll()
            poll.register(self._waker, select.POLLIN)
            poll.register(self._reading, 0 if is_full else select.POLLIN)
            if is_writing:
                poll.register(self._writing, select.POLLOUT)
            left = self._heard + self._heartbeat - time.monotonic()
            events = dict(poll.poll(max(0.0, left) * 1000))
            if self._ending:
                raise Gone(self._ending)
            if not events:
                raise Gone(f"the console was silent for {self._heartbeat:g} s")
            if is_writing and self._writing in events:
                return
            if self._reading in events:
                came = self._take()
                if not is_writing and (came or self._is_closed):
                    return
                if is_full and events[self._reading] & select.POLLHUP:
                    self._is_closed = True
        if is_writing:
            raise Gone("the console is gone")

    def _note(self, number: int, frame: object) -> None:
        self._ending = f"signal {number}"


def _message(payload: bytes) -> dict[str, Any]:
    try:
        message = json.loads(payload)
    except (ValueError, RecursionError) as error:
        _refuse(str(error))
    if not (isinstance(message, dict) and "id" in message and "do" in message):
        _refuse("a frame that is no request")
    return message


def _refuse(why: str) -> NoReturn:
    raise SystemExit(f"The console does not speak this agent's protocol: {why}")
