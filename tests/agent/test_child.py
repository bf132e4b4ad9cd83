"""Children: they answer through the pipe, end at their deadline and with their parent, and never two at
once."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dflash_console.agent import child as child_module
from dflash_console.agent.child import Channel, Child, OneShot, Outcome
from tests.agent.dead_mount import dead_mount
from tests.agent.driver import PATIENCE, is_gone
from tests.waiting import until_sync


@pytest.fixture
def shot() -> Iterator[OneShot]:
    shot = OneShot(PATIENCE)
    yield shot
    shot.close()


def finish(shot: OneShot) -> Outcome:
    """What the loop does with a one-shot, until its outcome."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for fd in select.select(shot.fds(), [], [], 0.02)[0]:
            outcome = shot.ready(time.monotonic()) if fd in shot.fds() else None
            if outcome:
                return outcome
        outcome = shot.tick(time.monotonic())
        if outcome:
            return outcome
    raise AssertionError("the one-shot has no outcome")


def saying(*values: object) -> Callable[[Channel], None]:
    def work(channel: Channel) -> None:
        for value in values:
            channel.send(value)

    return work


def run(work: Callable[[Channel], object] | list[str], shot: OneShot) -> Outcome:
    assert shot.start(work, time.monotonic())
    return finish(shot)


def test_a_function_answers_value_by_value(shot: OneShot) -> None:
    outcome = run(saying(1, {"a": [None]}, "ü\n"), shot)
    assert (outcome.values, outcome.error, outcome.timed_out) == ([1, {"a": [None]}, "ü\n"], "", False)
    assert not shot.is_busy


def test_more_than_a_pipe_holds_comes_through(shot: OneShot) -> None:
    outcome = run(saying(*["x" * 300_000] * 4), shot)
    assert [len(value) for value in outcome.values] == [300_000] * 4


def test_an_exception_is_the_outcomes_error_beside_what_came_before(shot: OneShot) -> None:
    def work(channel: Channel) -> None:
        channel.send("first")
        raise ValueError("[second]")

    outcome = run(work, shot)
    assert (outcome.values, outcome.error) == (["first"], "ValueError: [second]")


def test_a_program_gives_its_output_and_runs_in_the_c_locale(shot: OneShot) -> None:
    outcome = run(["sh", "-c", "printf 'a\\377%s' $LC_ALL; cat; echo noise >&2"], shot)
    assert (outcome.output, outcome.error) == (b"a\xffC", "")


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["sh", "-c", "echo out; echo why >&2; exit 3"], "why"),
        (["sh", "-c", "exit 3"], "ended with status 3"),
        (["sh", "-c", "kill -9 $$"], "ended with status -9"),
        (["/nowhere/program"], "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/program'"),
    ],
)
def test_a_program_that_fails_says_why(shot: OneShot, argv: list[str], error: str) -> None:
    assert run(argv, shot).error == error


def test_a_program_that_takes_its_time_to_be_gone_has_succeeded(shot: OneShot) -> None:
    reading, writing = os.pipe()
    path = f"/proc/{os.getpid()}/fd/{reading}"
    program = ["sh", "-c", f"echo said; exec 3< {path} >&- 2>&-; read line <&3"]
    assert shot.start(program, time.monotonic())
    while shot.fds():
        select.select(shot.fds(), [], [], PATIENCE)
        assert shot.ready(time.monotonic()) is None
    assert shot.is_ending
    assert shot.tick(time.monotonic()) is None
    os.write(writing, b"\n")
    outcome = finish(shot)
    assert (outcome.output, outcome.error, shot.is_ending) == (b"said\n", "", False)
    for fd in (reading, writing):
        os.close(fd)


def test_a_function_that_takes_its_time_to_be_gone_has_succeeded_at_once(
    shot: OneShot, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    path = f"/proc/{os.getpid()}/fd/{reading}"

    def exit_late(status: int) -> None:
        waiting = os.open(path, os.O_RDONLY)
        os.closerange(0, waiting)
        os.read(waiting, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(os, "_exit", exit_late)
    outcome = run(saying("said"), shot)
    assert (outcome.values, outcome.error, shot.is_busy) == (["said"], "", True)
    os.write(writing, b"\n")
    until_sync(lambda: not shot.is_busy, PATIENCE, "the child is gone")
    for fd in (reading, writing):
        os.close(fd)


def test_a_child_that_closes_its_output_and_goes_on_is_ended(shot: OneShot) -> None:
    assert shot.start(["sh", "-c", "exec >&- 2>&-; sleep 1000"], 0.0)
    pid = shot.pid
    while shot.fds():
        select.select(shot.fds(), [], [], PATIENCE)
        assert shot.ready(0.0) is None
    outcome = shot.tick(child_module.EXIT_LIMIT)
    assert outcome is not None
    assert (outcome.error, outcome.timed_out) == ("closed its output and did not end", False)
    until_sync(lambda: is_gone(pid), PATIENCE, "the program is gone")


def test_output_without_end_is_a_fault_and_not_a_heap(shot: OneShot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "OUTPUT_LIMIT", 1 << 20)
    assert "more than" in run(["yes"], shot).error
    until_sync(lambda: not shot.is_busy, PATIENCE, "the program is gone")

    def chatter(channel: Channel) -> None:
        while True:
            os.write(4, b"x" * 65536)

    assert "too long" in run(chatter, shot).error


def test_what_is_no_json_is_a_fault(shot: OneShot) -> None:
    assert "broken output" in run(lambda channel: os.write(4, b"][\n"), shot).error


def test_a_deadline_ends_a_child_that_hangs_on_a_dead_mount(tmp_path: Path) -> None:
    with dead_mount(tmp_path):
        shot = OneShot(0.3)

        def work(channel: Channel) -> None:
            channel.send("alive")
            os.stat(tmp_path)

        assert shot.start(work, time.monotonic())
        pid = shot.pid
        outcome = finish(shot)
        assert (outcome.values, outcome.timed_out) == (["alive"], True)
        assert outcome.error == "no answer within 0.3 s"
        until_sync(lambda: is_gone(pid) and not shot.is_busy, PATIENCE, "the child is gone")


def test_the_deadline_takes_what_the_program_started_with_it() -> None:
    shot = OneShot(0.3)
    shot.start(["sh", "-c", "sleep 1000 & echo $!; wait"], time.monotonic())
    outcome = finish(shot)
    assert outcome.timed_out
    until_sync(lambda: is_gone(int(outcome.output)), PATIENCE, "the grandchild is gone")


def test_no_second_child_is_started_beside_one_that_can_not_be_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shot = OneShot(0.1)
    shot.start(["sleep", "1000"], time.monotonic())
    pid = shot.pid
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda *_: None)
        patch.setattr(os, "killpg", lambda *_: None)
        assert finish(shot).timed_out
        assert shot.is_stuck
        assert not shot.start(["true"], time.monotonic())
        assert not is_gone(pid)
    os.kill(pid, signal.SIGKILL)
    until_sync(lambda: not shot.is_busy, PATIENCE, "the child is gone")
    shot.deadline = PATIENCE
    assert run(["true"], shot).error == ""


def test_a_child_that_stays_answers_request_after_request() -> None:
    child = Child()

    def work(channel: Channel) -> None:
        for request in channel.receive():
            channel.send(request + 1)

    child.start(work)
    with pytest.raises(RuntimeError, match="still there"):
        child.start(work)
    for number in (1, 10, 100):
        assert child.send(number)
        select.select(child.fds(), [], [], PATIENCE)
        assert child.receive() == [number + 1]
    pid = child.pid
    child.kill()
    until_sync(lambda: not child.is_alive, PATIENCE, "the child is gone")
    assert is_gone(pid)
    assert child.status == -signal.SIGKILL
    assert not child.send(1)


def test_a_child_that_does_not_read_never_blocks_its_parent() -> None:
    child = Child()
    child.start(lambda channel: time.sleep(1000))
    try:
        sent = [child.send("x" * 4000) for _ in range(100)]
        assert sent[0]
        assert not sent[-1]
        assert not child.send("x" * 5000)
    finally:
        child.kill()


def test_a_child_holds_none_of_its_parents_files() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    children: list[Child] = []
    for work in ((lambda channel: list(channel.receive())), ["sleep", "1000"]):
        child = Child()
        child.start(work)
        children.append(child)
    os.close(writing)
    try:
        assert select.select([reading], [], [], PATIENCE)[0]
        assert os.read(reading, 1) == b""
    finally:
        os.close(reading)
        for child in children:
            child.kill()


def test_children_die_with_a_parent_that_is_killed() -> None:
    program = (
        "import os, time; from dflash_console.agent.child import Child\n"
        "a, b = Child(), Child(); a.start(lambda channel: time.sleep(1000)); b.start(['sleep', '1000'])\n"
        "print(a.pid, b.pid, flush=True); time.sleep(1000)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    parent.kill()
    parent.wait(PATIENCE)
    parent.stdout.close()
    until_sync(lambda: all(is_gone(pid) for pid in pids), PATIENCE, "the children are gone")
