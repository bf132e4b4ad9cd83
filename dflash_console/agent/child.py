"""Children of the agent: what may hang runs in one, with a deadline, so that the loop never waits for it.

`Child` is one process that stays (the GPU reader), `OneShot` one that reads once and ends (paths, venvs,
systemctl). A child ends with the agent, also when the agent is killed. One that can't be killed (state D,
inside a driver or a dead mount) is left to the kernel, and no second one is started beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time

__all__ = ["Channel", "Child", "OneShot", "Outcome", "die_with_parent"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Union

    Work = Union[Callable[["Channel"], object], "list[str]"]

OUTPUT_LIMIT = 8 << 20
"""Bytes that a child may leave unread or, in a one-shot, say in all; more is a fault and ends it."""
ERRORS_LIMIT = 4096
EXIT_LIMIT = 5.0
"""Seconds that a child may take to end after it has closed its output: a large one on a busy machine is not gone at
once."""
RETURNED = b"\n"
"""What a function's side says last, when all went well: its exit may come much later on a busy machine."""
_PR_SET_PDEATHSIG = 1
_prctl: Any = None


def _load_prctl() -> Any:
    """libc's prctl, loaded in the parent once: ctypes costs 0.4 MB there, and else 3 ms in every new
    child."""
    global _prctl
    if _prctl is None:
        import ctypes

        _prctl = ctypes.CDLL(None, use_errno=True).prctl
    return _prctl


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; `parent` is the pid it was started by.

    `Child` does it; what a child starts itself needs it again (prctl(2): PR_SET_PDEATHSIG is not inherited).
    """
    _load_prctl()(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Channel:
    """The child's end: JSON values, one a line, both ways."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = reading
        self._writing = writing

    def send(self, value: object) -> None:
        """Hand a JSON-ready value to the agent."""
        data = memoryview(json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n")
        while data:
            data = data[os.write(self._writing, data) :]

    def receive(self) -> Iterator[Any]:
        """The values that the agent sends, until it closes the channel; waits for each."""
        with open(self._reading, "rb", closefd=False) as lines:
            for line in lines:
                yield json.loads(line)


class Child:
    """One process at a time: a forked function (`work(channel)`) or a program (argv).

    A function's JSON lines come back from `receive`, a program's stdout from `read`; what either wrote to
    stderr, and the exception that ended a function, is in `errors`. The program is found by PATH and runs
    with `env`, or else with the agent's environment in the C locale. `is_alive` stays True until the process
    is really gone, also after `kill`.
    """

    def __init__(self) -> None:
        self.pid = 0
        self.status: int | None = None
        """The exit code once it has ended, negative for the signal that killed it."""
        self.errors = ""
        self._input = -1
        self._output = -1
        self._stderr = -1
        self._rest = b""
        self.has_returned = False
        """Whether the function has come to its end without an exception, by its own word."""

    @property
    def is_alive(self) -> bool:
        """Whether the process is still there, for whatever reason; never waits."""
        if self.pid == 0:
            return False
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            pid, status = self.pid, 0
        if pid == 0:
            return True
        self.pid = 0
        self.status = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return False

    def start(self, work: Work, env: dict[str, str] | None = None) -> None:
        """Start it. Raises RuntimeError while an earlier one is still there, OSError when fork fails."""
        if self.is_alive:
            raise RuntimeError(f"child {self.pid} is still there")
        self._close()
        self.status, self.errors, self._rest, self.has_returned = None, "", b"", False
        _load_prctl()
        ours: list[int] = []
        theirs: list[int] = []
        try:
            for mine_reads in (False, True, True):
                reading, writing = os.pipe()
                ours.append(reading if mine_reads else writing)
                theirs.append(writing if mine_reads else reading)
            agent = os.getpid()
            pid = os.fork()
        except OSError:
            for fd in ours + theirs:
                os.close(fd)
            raise
        if pid == 0:
            _become(work, env, theirs, agent)
        for fd in theirs:
            os.close(fd)
        for fd in ours:
            os.set_blocking(fd, False)
        self.pid = pid
        self._input, self._output, self._stderr = ours

    def fds(self) -> list[int]:
        """What to wait on for reading."""
        return [fd for fd in (self._output, self._stderr) if fd >= 0]

    def send(self, value: object) -> bool:
        """Pass a JSON value to the function's `receive`; False when the child does not take it (full, gone).

        For small requests, up to 4096 bytes: a pipe takes those whole or not at all (pipe(7), PIPE_BUF).
        """
        data = json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"
        if self._input < 0 or len(data) > 4096:
            return False
        try:
            return os.write(self._input, data) == len(data)
        except OSError:
            return False

    def read(self) -> bytes | None:
        """What stdout holds now, b"" for nothing; None at its end, when the child has ended or is about
        to."""
        self._drain_errors()
        if self._output < 0:
            return None
        try:
            data = os.read(self._output, 1 << 20)
        except BlockingIOError:
            return b""
        if data:
            return data
        self._drain_errors()
        self._close()
        self._settle()
        return None

    def receive(self) -> list[Any] | None:
        """The JSON lines that came since the last call; None at the end. Raises ValueError for other text."""
        data = self.read()
        if data is None:
            return None
        self._rest += data
        if b"\n" not in data:
            if len(self._rest) > OUTPUT_LIMIT:
                raise ValueError("a child's line is too long")
            return []
        *lines, self._rest = self._rest.split(b"\n")
        if lines[-1] + b"\n" == RETURNED:
            self.has_returned = True
            lines.pop()
        return [json.loads(line) for line in lines]

    def kill(self) -> None:
        """SIGKILL to the process and all that it started. Does not wait: `is_alive` tells whether it
        worked."""
        if self.pid:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
        self._close()
        self._settle()

    def _drain_errors(self) -> None:
        if self._stderr < 0:
            return
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._stderr, 1 << 16)
            if len(self.errors) < ERRORS_LIMIT:
                self.errors += data.decode("utf-8", "replace")[:ERRORS_LIMIT]
            if not data:
                os.close(self._stderr)
                self._stderr = -1

    def _settle(self) -> None:
        """Give a process whose pipes are closed the millisecond that its exit takes."""
        for _ in range(3):
            if not self.is_alive:
                return
            time.sleep(0.001)

    def _close(self) -> None:
        for fd in (self._input, self._output, self._stderr):
            if fd >= 0:
                os.close(fd)
        self._input = self._output = self._stderr = -1


def _become(work: Work, env: dict[str, str] | None, pipes: list[int], agent: int) -> None:
    """The forked side; never returns."""
    status = 1
    try:
        for ending in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(ending, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.setsid()
        die_with_parent(agent)
        # Above every number that dup2 is about to write, so that none of them is overwritten.
        pipes = [_above(fd) for fd in pipes]
        null = _above(os.open(os.devnull, os.O_RDWR))
        if isinstance(work, list):
            for fd, number in ((null, 0), (pipes[1], 1), (pipes[2], 2)):
                os.dup2(fd, number)
            os.closerange(3, 1024)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.execvpe(work[0], work, env or {**os.environ, "LC_ALL": "C"})
        for fd, number in ((null, 0), (null, 1), (pipes[2], 2), (pipes[0], 3), (pipes[1], 4)):
            os.dup2(fd, number)
        os.closerange(5, 1024)
        work(Channel(3, 4))
        os.write(4, RETURNED)
        status = 0
    except BaseException as error:  # noqa: BLE001 - the top of a process; the agent reads it in `errors`
        with contextlib.suppress(OSError):
            os.write(2, f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:ERRORS_LIMIT])
    finally:
        os._exit(status)


def _above(fd: int) -> int:
    import fcntl

    return int(fcntl.fcntl(fd, fcntl.F_DUPFD, 10))


class Outcome:
    """How a one-shot ended."""

    def __init__(self, values: list[Any], output: bytes, error: str, timed_out: bool) -> None:
        self.values = values
        """What a function sent, in order; also what came before a fault."""
        self.output = output
        """What a program wrote to stdout; b"" for a function."""
        self.error = error
        """Empty when all is well; else why not: the deadline, the exception, or exit code and stderr."""
        self.timed_out = timed_out


class OneShot:
    """Something that reads once in a child and ends, with a deadline in seconds.

        shot = OneShot(5.0)
        tick:   outcome = shot.tick(now)                       # an Outcome once, when the deadline has passed
                if due and not shot.is_busy: shot.start(read_paths_of(paths), now)
        fds:    return shot.fds()
        ready:  outcome = shot.ready(now)                      # an Outcome once, when it has ended

    `work` is a function that gets a Channel and sends what it finds value by value (`values` has them while
    it runs), or an argv. `is_busy` while one runs, and while one that was killed is still there: then `start`
    does nothing and says False.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.values: list[Any] = []
        self._child = Child()
        self._output = b""
        self._is_program = False
        self._is_ending = False
        self._until: float | None = None

    @property
    def is_ending(self) -> bool:
        """Whether the child has said everything and only has to be gone: `tick` tells, there is nothing to read."""
        return self._until is not None and self._is_ending

    @property
    def is_busy(self) -> bool:
        """Whether a child is there, running or stuck."""
        return self._until is not None or self._child.is_alive

    @property
    def is_stuck(self) -> bool:
        """Whether the last child was killed at its deadline and has not gone (state D)."""
        return self._until is None and self._child.is_alive

    @property
    def pid(self) -> int:
        """The child's pid, 0 when there is none."""
        return self._child.pid

    def start(self, work: Work, now: float, env: dict[str, str] | None = None) -> bool:
        """Start it; False when one is still there. Raises OSError when fork fails."""
        if self.is_busy:
            return False
        self.values, self._output, self._is_program = [], b"", isinstance(work, list)
        self._is_ending = False
        self._child.start(work, env)
        self._until = now + self.deadline
        return True

    def fds(self) -> list[int]:
        """What to wait on for reading."""
        return self._child.fds()

    def ready(self, now: float) -> Outcome | None:
        """Take what the child has written; the outcome once it has ended."""
        if self._until is None:
            return None
        try:
            if self._is_program:
                data = self._child.read()
                if data is not None:
                    self._output += data
                    if len(self._output) > OUTPUT_LIMIT:
                        raise ValueError(f"more than {OUTPUT_LIMIT} bytes of output")
                    return self.tick(now)
            else:
                values = self._child.receive()
                if values is not None:
                    self.values += values
                    return self.tick(now)
        except ValueError as error:
            self._child.kill()
            return self._finish(f"broken output: {error}")
        if self._child.has_returned:
            return self._finish("")
        if self._child.is_alive and (self._is_program or not self._child.errors):
            self._is_ending = True
            self._until = min(self._until, now + EXIT_LIMIT)
            return None
        return self._conclude()

    def tick(self, now: float) -> Outcome | None:
        """Mind the deadline: the outcome once it has passed, or once a child that has said everything is gone."""
        if self._until is None:
            return None
        if self._is_ending and not self._child.is_alive:
            return self._conclude()
        if now < self._until:
            return None
        self._child.kill()
        if self._is_ending:
            return self._finish("closed its output and did not end")
        return self._finish(f"no answer within {self.deadline:g} s", timed_out=True)

    def close(self) -> None:
        """Kill the child, if any."""
        self._until = None
        self._child.kill()

    def _conclude(self) -> Outcome:
        status, words = self._child.status, self._child.errors.strip()
        if status is None:
            self._child.kill()
        return self._finish("" if status == 0 else words or f"ended with status {status}")

    def _finish(self, error: str, timed_out: bool = False) -> Outcome:
        self._until = None
        return Outcome(self.values, self._output, error, timed_out)
