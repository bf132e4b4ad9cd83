"""Jobs: each request has one answer, when its child has ended, whatever befalls that."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dflash_console.agent import jobs as jobs_module
from dflash_console.agent.child import Channel, Outcome
from dflash_console.agent.jobs import Job, Jobs
from tests.agent.dead_mount import dead_mount
from tests.agent.driver import PATIENCE, children_of, is_gone, run_sections
from tests.waiting import until_sync


class Desk:
    """Jobs, and the answers that came."""

    def __init__(self) -> None:
        self.answers: dict[int, tuple[object, str]] = {}
        self.jobs = Jobs(self._take)

    def _take(self, number: int, ok: object, error: str) -> None:
        assert number not in self.answers
        self.answers[number] = (ok, error)

    def add(self, number: int, job: Job) -> None:
        self.jobs.add(number, job, time.monotonic())

    def turn(self) -> None:
        now = time.monotonic()
        wake = self.jobs.next_wake(now)
        for fd in select.select(self.jobs.fds(), [], [], max(0.0, min(0.02, wake - now)))[0]:
            if fd in self.jobs.fds():
                self.jobs.ready(fd, time.monotonic())
        self.jobs.tick(time.monotonic())

    def until(self, *numbers: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.answers.keys() >= set(numbers):
            assert time.monotonic() < deadline, f"no answers to {numbers}: {self.answers}"
            self.turn()

    def pids(self) -> list[int]:
        return [place.shot.pid for place in self.jobs._running + self.jobs._leaving]


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.jobs.close()


def saying(*values: object) -> Callable[[Channel], None]:
    def work(channel: Channel) -> None:
        for value in values:
            channel.send(value)

    return work


def failing(channel: Channel) -> None:
    raise ValueError("no luck")


def test_the_answer_is_the_last_value_or_the_error(desk: Desk) -> None:
    desk.add(1, Job(saying(1, {"a": 2}), PATIENCE))
    desk.add(2, Job(failing, PATIENCE))
    desk.add(3, Job(saying(), PATIENCE))
    desk.until(1, 2, 3)
    assert desk.answers == {1: ({"a": 2}, ""), 2: (None, "ValueError: no luck"), 3: (None, "")}
    assert desk.jobs.next_wake(time.monotonic()) == jobs_module.NEVER


def test_what_finish_makes_of_the_outcome_is_the_answer(desk: Desk) -> None:
    def finish(outcome: Outcome) -> object:
        if outcome.error:
            raise KeyError(outcome.error)
        return [outcome.values, os.getpid()]

    desk.add(1, Job(saying(1, 2), PATIENCE, finish))
    desk.add(2, Job(failing, PATIENCE, finish))
    desk.until(1, 2)
    assert desk.answers[1] == ([[1, 2], os.getpid()], "")
    assert desk.answers[2][1].startswith("KeyError: 'ValueError: no luck'")


def test_as_many_as_there_are_places_run_at_once_and_the_others_follow(desk: Desk, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")

    def work(channel: Channel) -> None:
        (tmp_path / f"began-{os.getpid()}").touch()
        with (tmp_path / "gate").open("rb") as gate:
            gate.read()
        channel.send(time.monotonic())

    for number in range(12):
        desk.add(number, Job(work, PATIENCE))
    until_sync(
        lambda: len(list(tmp_path.glob("began-*"))) == jobs_module.PLACES, PATIENCE, "the places are taken"
    )
    desk.turn()
    assert len(desk.pids()) == jobs_module.PLACES
    assert desk.answers == {}
    stop = time.monotonic() + PATIENCE
    while len(desk.answers) < 12:
        assert time.monotonic() < stop
        with contextlib.suppress(OSError):
            os.close(os.open(tmp_path / "gate", os.O_WRONLY | os.O_NONBLOCK))
        desk.turn()


def test_a_deadline_is_an_answer_and_ends_all_that_was_started(desk: Desk) -> None:
    desk.add(1, Job(["sh", "-c", "sleep 1000 & wait"], 0.3))
    (pid,) = desk.pids()
    desk.until(1)
    assert desk.answers[1] == (None, "no answer within 0.3 s")
    until_sync(lambda: is_gone(pid), PATIENCE, "the child is gone")


def test_what_waits_too_long_is_answered_too(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "PLACES", 1)
    desk.add(1, Job(["sleep", "1000"], PATIENCE))
    desk.add(2, Job(saying(1), 0.2))
    desk.until(2)
    assert desk.answers == {2: (None, "none of 1 places was free within 0.2 s")}


def test_quick_jobs_do_not_wait_for_those_that_import_and_have_their_own_limit(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "PLACES", 1)
    monkeypatch.setattr(jobs_module, "QUICK_PLACES", 1)
    for number in (1, 2):
        desk.add(number, Job(["sleep", "1000"], PATIENCE))
    desk.add(3, Job(saying("quick"), PATIENCE, is_quick=True))
    desk.until(3)
    assert desk.answers == {3: ("quick", "")}
    desk.add(4, Job(["sleep", "1000"], PATIENCE, is_quick=True))
    desk.add(5, Job(saying("late"), 0.2, is_quick=True))
    desk.until(5)
    assert desk.answers[5] == (None, "none of 1 places was free within 0.2 s")
    assert len(desk.pids()) == 2


def test_a_child_that_can_not_be_killed_keeps_its_place_and_its_key(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "PLACES", 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda *_: None)
        patch.setattr(os, "killpg", lambda *_: None)
        desk.add(1, Job(["sleep", "1000"], 0.2, key="files /a"))
        (pid,) = desk.pids()
        desk.until(1)
        assert desk.answers[1] == (None, "no answer within 0.2 s")
        desk.add(2, Job(saying("same"), PATIENCE, key="files /a"))
        desk.until(2)
        assert desk.answers[2] == (None, f"an earlier try still hangs in the kernel (process {pid})")
        desk.add(3, Job(["sleep", "1000"], PATIENCE, key="files /b"))
        desk.add(4, Job(saying("waits"), 0.2))
        desk.until(4)
        assert "places was free" in desk.answers[4][1]
    os.kill(pid, signal.SIGKILL)
    desk.add(5, Job(saying("again"), PATIENCE, key="files /a"))
    desk.until(5)
    assert desk.answers[5] == ("again", "")


def test_a_dead_mount_is_answered_at_the_deadline(desk: Desk, tmp_path: Path) -> None:
    with dead_mount(tmp_path):
        desk.add(1, Job(lambda channel: os.stat(tmp_path), 0.3))
        desk.until(1)
        assert desk.answers[1] == (None, "no answer within 0.3 s")


def test_no_process_left_to_start_is_an_answer(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    desk.add(1, Job(saying(1), PATIENCE))
    assert desk.answers == {1: (None, "no process can be started: Resource temporarily unavailable")}


def test_the_end_takes_all_children_with_it(desk: Desk) -> None:
    for number in range(10):
        desk.add(number, Job(["sh", "-c", "sleep 1000 & wait"], PATIENCE))
    pids = desk.pids()
    assert len(pids) == jobs_module.PLACES
    desk.jobs.close()
    until_sync(lambda: all(is_gone(pid) for pid in pids), PATIENCE, "the children are gone")


# ---- in the agent's loop


SECTIONS = """
from dflash_console.agent.jobs import Job
def verify(agent, message):
    if message["part"] == "later":
        return Job(lambda channel: channel.send({"said": message["word"]}), 30.0)
    if message["part"] == "never":
        return Job(["sleep", "1000"], message["limit"])
    if message["part"] == "odd":
        return Job(lambda channel: None, 30.0, lambda outcome: {1, 2})
    return Job(lambda channel: 1 / 0, 30.0)
main.REQUESTS["verify"] = verify
sections = {}
"""


def test_a_request_that_takes_a_while_is_answered_when_its_child_ends() -> None:
    agent = run_sections(SECTIONS)
    try:
        agent.ask("verify", part="never", limit=1000)
        assert bytes(agent.answer("verify", part="later", word="ü").ok) == b'{"said":"\\u00fc"}'
        assert agent.answer("ping").error is None
        assert agent.answer("verify", part="other").error == "ZeroDivisionError: division by zero"
        assert "not JSON serializable" in str(agent.answer("verify", part="odd").error)
        assert agent.answer("verify", part="never", limit=0.3).error == "no answer within 0.3 s"
    finally:
        agent.close()


def test_jobs_end_with_the_agent() -> None:
    agent = run_sections(SECTIONS)
    try:
        agent.ask("verify", part="never", limit=1000)
        assert agent.answer("ping").error is None
        children = children_of(agent.process.pid)
        assert children
    finally:
        agent.close()
    until_sync(lambda: all(is_gone(pid) for pid in children), PATIENCE, "the children are gone")
