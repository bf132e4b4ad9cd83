"""Runs one program to its end inside a child of the agent, and leaves nothing of it behind.

It is told from what it prints: fd 3 is for its answers, stdout and stderr are kept in part. At the limit, and
when it has ended, everything that it started is killed, also what has left its process group.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from ..child import die_with_parent

__all__ = ["Ended", "Program", "run"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

ANSWERS = 3
"""The file descriptor for what the program answers."""
ANSWERS_LIMIT = 4 << 20
HEAD, TAIL = 4 << 10, 32 << 10
"""Bytes of the output that are kept: the first and the last ones."""
PAUSE = 0.02
"""Seconds between two looks whether the program has ended, when something it started holds its pipes."""
LAST_WORDS = 0.5
"""Seconds that a program has for telling where it hangs."""
_PR_SET_CHILD_SUBREAPER = 36


class Ended:
    """How a program ended."""

    def __init__(self) -> None:
        self.answers = b""
        self.output = b""
        """The beginning and the end of what it printed on stdout and stderr."""
        self.status: int | None = None
        """The exit code, negative for the signal that killed it; None when it was ended at the limit."""
        self.problem = ""
        """Why it could not be started."""
        self.seconds = 0.0


def run(
    argv: list[str],
    text: bytes,
    limit: float,
    env: dict[str, str],
    prepare: Callable[[], None],
    ask_where: int = 0,
) -> Ended:
    """Run a program with `text` on its stdin, for at most `limit` seconds. Blocks; for a child of the agent.

    `prepare` is called in the new process (working directory, user); what it raises is the `problem`.
    `ask_where` is a signal for which the program, when it hangs, writes its stack to fd 3.
    """
    return Program(argv, env, prepare).finish(text, limit, ask_where)


class Program:
    """One that was started, and may get ready for its text before it is there. As `run`, for a child of the agent."""

    def __init__(self, argv: list[str], env: dict[str, str], prepare: Callable[[], None]) -> None:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._ended = Ended()
        (stdin, feed), (answers, told), (output, printed), (self._faults, failed) = (
            os.pipe() for _ in range(4)
        )
        watcher = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _become(argv, env, prepare, watcher, (stdin, printed, told), failed)
        for fd in (stdin, told, printed, failed):
            os.close(fd)
        self._pipes = _Pipes(feed, answers, output)
        self._taken = 0
        """Bytes of the answers that an `ask` has given back."""

    def is_ready(self, limit: float) -> bool:
        """Wait for its first line of answers; whether it came. At the end of the program it does not wait."""
        until = time.monotonic() + limit
        while b"\n" not in self._pipes.answers:
            rest = until - time.monotonic()
            if self._ended.status is not None or rest <= 0:
                return False
            self._pipes.move(min(PAUSE, rest))
            self._ended.status = _status(self._pid)
        return True

    def ask(self, text: bytes, limit: float, mark: bytes) -> Ended | None:
        """Give it one of several texts; None when there is no answer within `limit` seconds.

        Its answers are those up to a line that begins with `mark` and ends with an exit status and `)`. Of a program
        that ends instead, all that it said.
        """
        began, at = time.monotonic(), self._taken
        self._pipes.feed_with(text, is_last=False)
        answer, rest = Ended(), limit
        while True:
            self._pipes.move(min(PAUSE, rest))
            said = bytes(self._pipes.answers[at:])
            begin = said.find(b"\n" + mark) + 1
            if begin and b"\n" in said[begin:]:
                line = said[begin:].split(b"\n", 1)[0]
                answer.answers, answer.status = said[:begin], int(line[len(mark) :].rstrip(b")"))
                self._taken += begin + len(line) + 1
                break
            if self._ended.status is not None:
                answer.answers, answer.status = said, self._ended.status
                break
            self._ended.status = _status(self._pid)
            rest = limit - (time.monotonic() - began)
            if rest <= 0:
                return None
        answer.seconds = time.monotonic() - began
        return answer

    def stop(self) -> None:
        """End it with all that it started, whatever it does; as often as one likes."""
        _end_all(self._pid)

    def finish(self, text: bytes, limit: float, ask_where: int = 0) -> Ended:
        """Give it the text; how it has ended, and nothing of it is left. Once."""
        ended, began = self._ended, time.monotonic()
        self._pipes.feed_with(text)
        _attend(self._pid, ended, self._pipes, began + limit, ask_where)
        self._pipes.close()
        ended.answers = ended.answers[self._taken :]
        if ended.status == 127:
            ended.problem = os.read(self._faults, 4096).decode("utf-8", "replace")
        os.close(self._faults)
        ended.seconds = time.monotonic() - began
        return ended


class _Pipes:
    """This end of the program's pipes."""

    def __init__(self, feed: int, answers: int, output: int) -> None:
        self.feed, self.rest, self.is_last = feed, memoryview(b""), True
        self.sources = {answers: bytearray(), output: bytearray()}
        self.answers, self.output = self.sources.values()
        self.head = b""
        self.poll = select.poll()
        for fd in (feed, answers, output):
            os.set_blocking(fd, False)
        self.poll.register(answers, select.POLLIN)
        self.poll.register(output, select.POLLIN)
        self.open = {feed, answers, output}

    def feed_with(self, text: bytes, *, is_last: bool = True) -> None:
        """Have `move` write it as well; the last one also the end of the file."""
        self.rest, self.is_last = memoryview(text), is_last
        if self.feed in self.open:
            self.poll.register(self.feed, select.POLLOUT)

    def move(self, seconds: float) -> None:
        """Wait until something can be read or written, and do it."""
        if not self.open:
            time.sleep(min(seconds, PAUSE))
            return
        for fd, _ in self.poll.poll(max(0.0, seconds) * 1000):
            if not (self._write() if fd == self.feed else self._read(fd)):
                self.open.discard(fd)
                self.poll.unregister(fd)
                os.close(fd)

    def close(self) -> None:
        """Close what is still open."""
        for fd in self.open:
            os.close(fd)

    def _write(self) -> bool:
        try:
            self.rest = self.rest[os.write(self.feed, self.rest) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        if not self.rest and not self.is_last:
            self.poll.unregister(self.feed)
            return True
        return bool(self.rest)

    def _read(self, fd: int) -> bool:
        kept = self.sources[fd]
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return True
        kept += data
        if kept is self.output:
            if len(self.head) < HEAD:
                self.head = bytes(kept[:HEAD])
            if len(kept) > 2 * TAIL:
                del kept[:-TAIL]
        elif len(kept) > ANSWERS_LIMIT:
            return False
        return bool(data)


def _attend(pid: int, ended: Ended, pipes: _Pipes, until: float, ask_where: int) -> None:
    has_asked = False
    while ended.status is None:
        now = time.monotonic()
        if now >= until:
            if not ask_where or has_asked:
                break
            has_asked, until = True, now + LAST_WORDS
            with contextlib.suppress(OSError):
                os.kill(pid, ask_where)
            continue
        # Answers and output at their end: the program is about to end as well.
        pipes.move(min(PAUSE, until - now))
        ended.status = _status(pid)
    if has_asked:
        ended.status = None
    _end_all(pid)
    for _ in range(64):
        before = len(pipes.answers) + len(pipes.output)
        pipes.move(0.0)
        if len(pipes.answers) + len(pipes.output) == before:
            break
    ended.answers = bytes(pipes.answers)
    is_whole = len(pipes.output) < TAIL
    ended.output = bytes(pipes.output) if is_whole else pipes.head + b"\n...\n" + bytes(pipes.output[-TAIL:])


def _status(pid: int) -> int | None:
    try:
        gone, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return -signal.SIGKILL
    if gone == 0:
        return None
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _end_all(pid: int) -> None:
    """Kill all descendants. Those whose parent ends become children of this process, the subreaper."""
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        for child in _children():
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def _children() -> list[int]:
    own = os.getpid()
    try:
        with open(f"/proc/{own}/task/{own}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent_of(name) == own]


def _parent_of(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _become(
    argv: list[str],
    env: dict[str, str],
    prepare: Callable[[], None],
    watcher: int,
    pipes: tuple[int, int, int],
    failed: int,
) -> None:
    """The forked side; never returns."""
    import fcntl
    import resource

    try:
        stdin, printed, told, failed = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (*pipes, failed))
        for fd, number in ((stdin, 0), (printed, 1), (printed, 2), (told, ANSWERS)):
            os.dup2(fd, number)
        fcntl.fcntl(failed, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        os.closerange(ANSWERS + 1, failed)
        os.closerange(failed + 1, 1024)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        prepare()
        # After the user was switched, which would undo it.
        die_with_parent(watcher)
        os.execve(argv[0], argv, env)
    except BaseException as error:  # noqa: BLE001 - the top of a process; the watcher reads it
        words = (
            f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        )
        with contextlib.suppress(OSError):
            os.write(failed, str(words).encode("utf-8", "backslashreplace")[:4096])
    finally:
        os._exit(127)
