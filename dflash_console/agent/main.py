"""The agent's main loop: one thread that waits for the console, for its sections' children and for the next
tick."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
import time

from .frames import Inbox, Outbox, encode, pack
from .jobs import Job, Jobs
from .slot import Slot, describe

__all__ = ["PROTOCOL", "REQUESTS", "SECTIONS", "Agent", "main"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .section import Section

PROTOCOL = 1
"""As model.PROTOCOL."""
SAMPLE_BACKLOG = 256 << 10
"""Unwritten bytes beyond which no sample is sent: a console that reads again gets the newest, not all the old
ones."""
BACKLOG_LIMIT = 16 << 20
"""Unwritten bytes beyond which the agent ends."""
HOLD = 0.05
"""Seconds that what changed in a tick waits for the GPUs' reading of that tick, to travel in one frame with
it."""
SHORTEST_INTERVAL = 0.05


def _gpu() -> Section:
    from .gpu import GpuSection

    return GpuSection()


def _host() -> Section:
    from .machine import HostSection

    return HostSection()


def _units() -> Section:
    from .units import UnitSection

    return UnitSection()


def _venvs() -> Section:
    from .venvs import VenvSection

    return VenvSection()


def _paths() -> Section:
    from .paths import PathSection

    return PathSection()


SECTIONS: dict[str, Callable[[], Section]] = {
    "gpu": _gpu,
    "host": _host,
    "units": _units,
    "venvs": _venvs,
    "paths": _paths,
}
"""In the order of their first tick: the GPUs' child reads while the others are still imported."""


class Agent:
    """The loop over the sections, and what it owes the console by the two file descriptors (made
    non-blocking).

    It ends when the console is gone, or silent for `heartbeat` seconds.
    """

    def __init__(
        self, reading: int, writing: int, heartbeat: float, sections: dict[str, Callable[[], Section]]
    ) -> None:
        self._reading = reading
        self._writing = writing
        self._heartbeat = heartbeat
        self._slots = [Slot(name, make) for name, make in sections.items()]
        os.set_blocking(reading, False)
        self._inbox = Inbox()
        self._outbox = Outbox(writing)
        self._poll = select.poll()
        self._watched: dict[int, int] = {}
        self._jobs = Jobs(self._reply)
        self._heard = time.monotonic()
        self._spec: dict[str, Any] | None = None
        self._interval = 1.0
        self._start = self._next_tick = 0.0
        self._hold_until = 0.0
        self._is_first = True
        """Whether there was no tick yet."""
        self._is_silent = False
        """Whether no sample was sent since the last tick."""
        self._is_ending = False

    def run(self) -> None:
        """Speak to the console until the end."""
        waker, wake = os.pipe()
        for fd in (waker, wake):
            os.set_blocking(fd, False)
        for ending in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(ending, lambda *_: self.end())
        # Without it a signal that comes just before poll would be seen only after it.
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        version = "{}.{}.{}".format(*sys.version_info)
        try:
            self.send({"type": "hello", "protocol": PROTOCOL, "python": version, "pid": os.getpid()})
            while not self._is_ending:
                self._turn(waker)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self._jobs.close()
            for slot in self._slots:
                if slot.section is not None:
                    with slot.guard(0.0):
                        slot.section.close()
            signal.set_wakeup_fd(-1)

    def end(self) -> None:
        """Leave the loop at its next turn."""
        self._is_ending = True

    def send(self, message: dict[str, Any]) -> None:
        """Send a message that must not be lost. Raises OSError when nobody reads any more."""
        self._outbox.put(pack(encode(message)))

    def watch(self, spec: dict[str, Any]) -> None:
        """Take a WatchSpec: each section is configured with it at its next tick, which is now."""
        self._interval = max(SHORTEST_INTERVAL, float(spec["interval"]))
        self._spec = spec
        self._start = self._next_tick = time.monotonic()
        for slot in self._slots:
            slot.is_configured = False

    def refresh(self) -> None:
        """Have every section read everything anew, now."""
        now = time.monotonic()
        for slot in self._slots:
            if slot.section is not None:
                with slot.guard(now):
                    slot.section.refresh()
        self._next_tick = min(self._next_tick, now)

    def _turn(self, waker: int) -> None:
        now = time.monotonic()
        owners = self._register(waker, now)
        events = self._poll.poll(max(0.0, self._next_wake(now) - now) * 1000)
        now = time.monotonic()
        for fd, event in events:
            if fd == self._reading:
                self._hear(now)
            elif fd == waker:
                with contextlib.suppress(BlockingIOError):
                    os.read(waker, 512)
            elif fd != self._writing and fd not in owners:
                self._jobs.ready(fd, now)
            elif fd != self._writing:
                slot = owners[fd]
                with slot.guard(now):
                    if slot.section is not None:
                        slot.section.ready(fd, now)
            elif event & select.POLLOUT:
                self._outbox.flush()
            else:
                self._is_ending = True
        # Only after reading: the console's words to a machine that was frozen are still in its pipe.
        if now - self._heard > self._heartbeat or self._outbox.backlog > BACKLOG_LIMIT:
            self._is_ending = True
        if self._is_ending:
            return
        self._jobs.tick(now)
        if self._spec is not None and now >= self._next_tick:
            self._tick(self._spec, now)
        self._send_changes(now)

    def _register(self, waker: int, now: float) -> dict[int, Slot]:
        """Bring the poll object up to date; whose the sections' file descriptors are. The others are the jobs'."""
        # The writing end without a backlog: only to learn that its reader is gone.
        wanted = {
            self._reading: select.POLLIN,
            waker: select.POLLIN,
            self._writing: select.POLLOUT if self._outbox.backlog else 0,
            **dict.fromkeys(self._jobs.fds(), select.POLLIN),
        }
        owners: dict[int, Slot] = {}
        for slot in self._slots:
            if slot.section is not None and not slot.is_resting(now):
                with slot.guard(now):
                    for fd in slot.section.fds():
                        owners[fd] = slot
                        wanted[fd] = select.POLLIN
        if wanted != self._watched:
            for fd in self._watched.keys() - wanted.keys():
                self._poll.unregister(fd)
            for fd, mask in wanted.items():
                self._poll.register(fd, mask)
            self._watched = wanted
        return owners

    def _next_wake(self, now: float) -> float:
        wake = min(self._heard + self._heartbeat + 0.001, self._jobs.next_wake(now))
        if self._spec is not None:
            wake = min(wake, self._next_tick)
        if now < self._hold_until and any(slot.pending for slot in self._slots):
            wake = min(wake, self._hold_until)
        return wake

    def _hear(self, now: float) -> None:
        try:
            data = os.read(self._reading, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._is_ending = True
            return
        self._heard = now
        try:
            messages = self._inbox.feed(data)
            requests = [(int(message["id"]), str(message["do"]), message) for message in messages]
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(
                f"The console does not speak this agent's protocol: {describe(error)}"
            ) from error
        for number, name, message in requests:
            self._answer(number, name, message)

    def _answer(self, number: int, name: str, message: dict[str, Any]) -> None:
        request = REQUESTS.get(name)
        if request is None:
            self._reply(number, None, f"The agent knows no request {name!r}.")
            return
        try:
            ok = request(self, message)
        except Exception as error:  # noqa: BLE001 - whatever fails in a request is its answer
            self._reply(number, None, describe(error))
            return
        if isinstance(ok, Job):
            self._jobs.add(number, ok, time.monotonic())
        else:
            self._reply(number, ok, "")

    def _reply(self, number: int, ok: object, error: str) -> None:
        answer: dict[str, Any] = {"type": "answer", "id": number}
        try:
            text = encode({**answer, "error": error} if error else {**answer, "ok": ok})
        except Exception as fault:  # noqa: BLE001 - what can't be sent is an answer too
            text = encode({**answer, "error": describe(fault)})
        self._outbox.put(pack(text))

    def _tick(self, spec: dict[str, Any], now: float) -> None:
        # On the grid also after a stop or a slow turn: the points that were missed are left out.
        self._next_tick = self._start + (int((now - self._start) / self._interval) + 1) * self._interval
        if self._is_silent:
            self._send_sample(
                [slot for slot in self._slots if slot.pending or (slot.name == "gpu" and slot.last_sent)]
            )
        self._is_silent = True
        for slot in self._slots:
            if not slot.is_resting(now):
                is_new = slot.section is None
                with slot.guard(now):
                    slot.tick(spec, now)
                if is_new:
                    self._introduce(slot, now)
                if self._is_first:
                    self._send_changes(now)
        if self._is_first:
            self._is_first = False
            # What lives now lives to the end; neither the collector nor the children's copies need to look at
            # it.
            gc.collect()
            gc.freeze()
        self._hold_until = now + min(HOLD, self._interval / 4)

    def _send_changes(self, now: float) -> None:
        for slot in self._slots:
            while slot.faults:
                self.send({"type": "note", "section": slot.name, "text": slot.faults.pop(0)})
            if slot.collect(now):
                self._share(slot, now)
        changed = [slot for slot in self._slots if slot.pending is not None]
        is_due = now >= self._hold_until or any(slot.name == "gpu" or not slot.last_sent for slot in changed)
        if changed and is_due:
            self._send_sample(changed)

    def _share(self, source: Slot, now: float) -> None:
        for slot in self._slots:
            if slot is not source and slot.section is not None and source.section is not None:
                with slot.guard(now):
                    slot.section.observe(source.name, source.section.value)

    def _introduce(self, slot: Slot, now: float) -> None:
        """Tell a section that was just made what the others have found already."""
        for other in self._slots:
            source = other.section
            if (
                other is not slot
                and slot.section is not None
                and source is not None
                and source.value is not None
            ):
                with slot.guard(now):
                    slot.section.observe(other.name, source.value)

    def _send_sample(self, slots: list[Slot]) -> None:
        if self._outbox.backlog <= SAMPLE_BACKLOG:
            members = [f'{{"type":"sample","at":{time.time():.3f}', *(slot.take() for slot in slots)]
            self._outbox.put(pack(",".join(members) + "}"))
            self._is_silent = False
            # Behind the sample, since a section that comes clears what was noted of it.
            for slot in slots:
                if slot.note:
                    self.send({"type": "note", "section": slot.name, "text": slot.note})


def _ping(agent: Agent, message: dict[str, Any]) -> object:
    return {"at": time.time()}


def _watch(agent: Agent, message: dict[str, Any]) -> object:
    agent.watch({key: value for key, value in message.items() if key not in ("do", "id")})
    return None


def _refresh(agent: Agent, message: dict[str, Any]) -> object:
    agent.refresh()
    return None


def _verify(agent: Agent, message: dict[str, Any]) -> object:
    from .verify import job

    return job(message)


def _fingerprint(agent: Agent, message: dict[str, Any]) -> object:
    from .verify import fingerprint_job

    return fingerprint_job(message)


def _ship(agent: Agent, message: dict[str, Any]) -> object:
    """Make modules importable from memory: {full name (a package's ends with a dot): base64 of zlib's bytes}."""
    from base64 import b64decode

    modules = {str(name): b64decode(text).decode("latin-1") for name, text in message["modules"].items()}
    finder: Any = next(finder for finder in sys.meta_path if hasattr(finder, "add"))
    finder.add(modules)
    return None


REQUESTS: dict[str, Callable[[Agent, dict[str, Any]], object]] = {
    "ping": _ping,
    "watch": _watch,
    "refresh": _refresh,
    "verify": _verify,
    "fingerprint": _fingerprint,
    "ship": _ship,
}
"""What the console may ask, by its `do`: called with the agent and the message, it returns the answer's `ok`,
ready for JSON, or a Job whose answer follows when it ends; what it raises is the answer's `error`. It must be as
quick as a section."""


def main(heartbeat: float, errand: str = "") -> int:
    """Run the agent on this process's stdin and stdout. Nothing else may use those: they become /dev/null.

    With the errand `copy` it is a copy process instead of one that watches the host. Raises ValueError for any other.
    """
    if errand not in ("", "copy"):
        raise ValueError(f"no errand of an agent: {errand!r}")
    os.chdir("/")
    reading, writing = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    if errand:
        from .copy.serve import serve

        return serve(reading, writing, heartbeat)
    Agent(reading, writing, heartbeat, SECTIONS).run()
    return 0
