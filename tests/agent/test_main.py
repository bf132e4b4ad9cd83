"""The agent's loop: what it says when, what it survives, and that it always ends."""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import msgspec
import pytest

from dflash_console import model
from dflash_console.agent import main as main_module
from dflash_console.model import Answer, FromAgent, Hello, Note, Sample
from tests.agent.driver import SPEC, Agent, children_of, is_gone, run_sections
from tests.waiting import until_sync

# A section named `paths`: its value is a list, whose items the test's programs choose.
COUNTER = """
class Counter(Section):
    name = "paths"
    ticks = 0
    def tick(self, now):
        self.ticks += 1
        self.value = [dict(path=str(self.ticks), kind="file", size=1)]
sections = {"paths": Counter}
"""
CHILDREN = """
def hang(channel):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel.send(os.getpid())
    time.sleep(1000)

class Parent(Section):
    name = "paths"
    def configure(self, spec):
        self.shot, self.program, self.child = OneShot(1000), OneShot(1000), Child()
        self.shot.start(hang, time.monotonic())
        self.program.start(["sleep", "1000"], time.monotonic())
        self.child.start(hang)
        self.value = [dict(path=str(pid), kind="file", size=1)
                      for pid in (self.shot.pid, self.program.pid, self.child.pid)]
sections = {"paths": Parent}
"""


@contextmanager
def running(program: str, *, heartbeat: float = 30.0) -> Iterator[Agent]:
    agent = run_sections(program, heartbeat=heartbeat)
    try:
        assert isinstance(agent.read(), Hello)
        yield agent
    finally:
        agent.close()


def test_agent_and_model_speak_the_same_protocol() -> None:
    assert main_module.PROTOCOL == model.PROTOCOL
    sections = set(Sample.__struct_fields__) - {"at"}
    assert set(main_module.SECTIONS) == sections


def test_the_first_frame_is_hello_and_every_request_gets_one_answer() -> None:
    with running(COUNTER) as agent:
        numbers = [agent.ask("ping"), agent.ask("dance"), agent.ask("watch", **SPEC), agent.ask("ping")]
        messages = [agent.read() for _ in range(4)]
        while sum(isinstance(message, Answer) for message in messages) < 4:
            messages.append(agent.read())
        answers = [message for message in messages if isinstance(message, Answer)]
        assert [answer.id for answer in answers] == numbers
        assert msgspec.json.decode(answers[0].ok)["at"] > 1e9
        assert answers[1].error == "The agent knows no request 'dance'."
        assert [answer.error for answer in answers[2:]] == [None, None]


def test_a_request_that_fails_is_answered_with_the_reason_and_the_agent_lives() -> None:
    with running(COUNTER) as agent:
        assert "KeyError" in str(agent.answer("watch").error)
        assert agent.answer("ping").error is None


def test_nothing_is_read_before_the_console_says_what_to_watch() -> None:
    with running(
        "class Eager(Section):\n    def __init__(self): os.abort()\nsections = {'gpu': Eager}"
    ) as agent:
        assert agent.answer("ping").error is None


def test_a_section_travels_only_when_it_changed_and_a_sample_comes_each_interval_all_the_same() -> None:
    program = """
class Still(Section):
    name = "paths"
    def tick(self, now):
        self.value = [dict(path="same", kind="file", size=1)]
sections = {"paths": Still}
"""
    with running(program) as agent:
        agent.ask("watch", **SPEC)
        samples = [message for message in (agent.read() for _ in range(8)) if isinstance(message, Sample)]
        assert [sample.paths is not msgspec.UNSET for sample in samples] == [True] + [False] * (
            len(samples) - 1
        )


def test_the_gpu_section_travels_on_each_tick_also_unchanged() -> None:
    program = """
class Still(Section):
    def tick(self, now):
        self.value = dict(gpus=[], source="none", driver="1", read_at=1.0)
sections = {"gpu": Still}
"""
    with running(program) as agent:
        agent.ask("watch", **SPEC)
        samples = [message for message in (agent.read() for _ in range(6)) if isinstance(message, Sample)]
        assert all(sample.gpu is not msgspec.UNSET for sample in samples)


def test_what_a_child_finds_is_sent_at_once_not_on_the_next_tick() -> None:
    program = """
class Late(Section):
    name = "paths"
    def configure(self, spec):
        self.shot = OneShot(60)
        self.shot.start(lambda channel: channel.send("found"), time.monotonic())
    def fds(self):
        return self.shot.fds()
    def ready(self, fd, now):
        outcome = self.shot.ready(now)
        if outcome:
            self.value = [dict(path=outcome.values[0], kind="file", size=1)]
sections = {"paths": Late}
"""
    with running(program) as agent:
        agent.ask("watch", **{**SPEC, "interval": 3600.0})
        assert agent.section("paths")[0].path == "found"


def test_what_changes_in_a_tick_travels_in_one_frame_with_the_gpus_reading_of_it() -> None:
    program = """
class Gpus(Section):
    name = "gpu"
    def configure(self, spec):
        self.child, self.reads = Child(), 0
        self.child.start(lambda channel: [channel.send(request) for request in channel.receive()])
    def fds(self):
        return self.child.fds()
    def tick(self, now):
        self.child.send(1)
    def ready(self, fd, now):
        for answer in self.child.receive() or []:
            self.reads += answer
            self.value = dict(gpus=[], source="none", driver=str(self.reads))
    def close(self):
        self.child.kill()
""" + COUNTER.replace("sections = {", "sections = {'gpu': Gpus, ")
    with running(program) as agent:
        agent.ask("watch", **{**SPEC, "interval": 0.5})
        agent.section("gpu", lambda value: value.driver == "1")
        samples = [message for message in (agent.read() for _ in range(3)) if isinstance(message, Sample)]
        for sample in samples:
            assert isinstance(sample.gpu, model.GpuReport)
            assert isinstance(sample.paths, list)


@pytest.mark.parametrize("where", ["__init__", "configure", "tick", "fds", "ready", "value"])
def test_a_section_that_raises_is_told_once_and_harms_no_other(where: str) -> None:
    program = f"""
class Faulty(Section):
    name = "venvs"
    def fail(self, *args):
        raise RuntimeError("[bad] things")
    def configure(self, spec):
        self.pipe = os.pipe()
        os.write(self.pipe[1], b"x")
        self.value = float("nan") if {where!r} == "value" else None
    def fds(self):
        return self.pipe[:1]
    def ready(self, fd, now):
        os.read(fd, 1)
    if {where!r} != "value":
        {where} = fail
""" + COUNTER.replace("sections = {", "sections = {'venvs': Faulty, ")
    with running(program) as agent:
        agent.ask("watch", **{**SPEC, "interval": 0.05})
        messages: list[FromAgent] = [agent.read()]
        while not (
            isinstance(messages[-1], Sample) and messages[-1].paths and messages[-1].paths[0].path == "25"
        ):
            messages.append(agent.read())
        notes = [message for message in messages if isinstance(message, Note)]
        assert [note.section for note in notes] == ["venvs"]
        assert ("not JSON compliant" if where == "value" else "RuntimeError: [bad] things") in notes[0].text
        assert agent.answer("ping").error is None


def test_a_section_that_raised_is_called_again_after_pauses_that_grow() -> None:
    program = """
class Slow(Section):
    name = "paths"
    tries = []
    def tick(self, now):
        self.tries.append(now)
        if len(self.tries) < 4:
            raise RuntimeError("not yet")
        self.value = [dict(path=str(time), kind="file", size=1) for time in self.tries]
from dflash_console.agent import slot
slot.FIRST_PAUSE, slot.LONGEST_PAUSE = 0.1, 0.2
sections = {"paths": Slow}
"""
    with running(program) as agent:
        agent.ask("watch", **{**SPEC, "interval": 0.05})
        times = [float(info.path) for info in agent.section("paths")]
        pauses = [later - earlier for earlier, later in pairwise(times)]
        assert pauses[0] >= 0.1
        assert all(pause >= 0.2 for pause in pauses[1:])


def test_names_that_are_not_unicode_can_not_break_a_frame() -> None:
    program = """
class Odd(Section):
    name = "paths"
    def tick(self, now):
        self.value = [dict(path=os.fsdecode(b"/caf\\xe9/\\xf0\\x9f\\x98\\x80"), kind="file", size=1)]
sections = {"paths": Odd}
"""
    with running(program) as agent:
        agent.ask("watch", **SPEC)
        assert agent.section("paths")[0].path == "/caf?/\U0001f600"


def test_what_a_section_prints_does_not_reach_the_frames() -> None:
    program = COUNTER.replace(
        "self.ticks += 1", "self.ticks += 1; print('loud'); sys.stdout.flush(); input and os.write(1, b'x')"
    )
    with running(program) as agent:
        agent.ask("watch", **SPEC)
        agent.section("paths", lambda value: value[0].path == "3")


def test_ticks_stay_on_their_grid_and_a_stop_is_no_reason_to_catch_up() -> None:
    program = COUNTER.replace("str(self.ticks)", "str(now)")
    with running(program) as agent:
        agent.ask("watch", **SPEC)
        first = float(agent.section("paths")[0].path)
        agent.process.send_signal(signal.SIGSTOP)
        spend(1.5)
        agent.process.send_signal(signal.SIGCONT)
        times = [first, *(float(agent.section("paths")[0].path) for _ in range(10))]
        cells = [round((time - first) / SPEC["interval"], 3) // 1 for time in times]
        assert len(set(cells)) == len(cells)
        assert max(later - earlier for earlier, later in pairwise(cells)) >= 10


def spend(seconds: float) -> None:
    """Let time pass, where time passing is what is tested."""
    end = time.monotonic() + seconds
    until_sync(lambda: time.monotonic() > end, 60, f"{seconds} seconds have passed")


def test_a_clock_that_jumps_does_not_disturb_the_ticks() -> None:
    program = (
        "import itertools\nclocks = itertools.cycle([1e9, 2e9, 0.0])\ntime.time = lambda: next(clocks)\n"
        + COUNTER
    )
    with running(program) as agent:
        agent.ask("watch", **SPEC)
        agent.section("paths", lambda value: value[0].path == "7")


def test_a_frozen_agent_does_not_take_its_own_sleep_for_the_consoles_silence() -> None:
    with running(COUNTER, heartbeat=0.5) as agent:
        agent.process.send_signal(signal.SIGSTOP)
        number = agent.ask("ping")
        spend(1.0)
        agent.process.send_signal(signal.SIGCONT)
        assert agent.until(lambda message: isinstance(message, Answer) and message.id == number)


def children(agent: Agent) -> list[int]:
    agent.ask("watch", **SPEC)
    pids = [int(info.path) for info in agent.section("paths")]
    assert sorted(pids) == sorted(children_of(agent.process.pid))
    return pids


def assert_all_gone(pids: list[int]) -> None:
    until_sync(lambda: all(is_gone(pid) for pid in pids), 10, f"the children {pids} are gone")


@pytest.mark.parametrize("how", ["eof", "SIGTERM", "SIGHUP", "SIGINT", "SIGKILL", "stdout", "silence"])
def test_the_agent_ends_with_its_children_whatever_ends_it(how: str) -> None:
    with running(CHILDREN, heartbeat=1.0 if how == "silence" else 30.0) as agent:
        pids = children(agent)
        if how == "eof":
            agent.stdin.close()
        elif how == "stdout":
            assert agent.process.stdout is not None
            agent.process.stdout.close()
        elif how != "silence":
            agent.process.send_signal(getattr(signal, how))
        assert agent.ended() == (-signal.SIGKILL if how == "SIGKILL" else 0)
        assert_all_gone(pids)


def test_a_console_that_stops_reading_costs_no_memory_and_gets_the_newest_when_it_reads_again() -> None:
    program = COUNTER.replace("size=1", "size=missing('error', os.urandom(30000).hex())")
    with running(program) as agent:
        agent.ask("watch", **{**SPEC, "interval": 0.05})
        marker = agent.section("paths")[0].path
        # 60 kB a tick: the pipe and the backlog are full after a few ticks, and the loop must go on.
        spend(1.0)
        number = agent.ask("ping")
        paths: list[int] = []

        def answered(message: object) -> bool:
            if isinstance(message, Sample) and message.paths:
                paths.append(int(message.paths[0].path))
            return isinstance(message, Answer) and message.id == number

        agent.until(answered)
        assert len(paths) * 60_000 < main_module.SAMPLE_BACKLOG + 4 * 65536
        newest = int(agent.section("paths")[0].path)
        assert newest > paths[-1] + 1 or newest - int(marker) > len(paths) + 1


def test_an_agent_whose_network_was_cut_ends_though_it_can_not_write() -> None:
    program = COUNTER.replace("size=1", "size=missing('error', os.urandom(30000).hex())")
    with running(program, heartbeat=1.5) as agent:
        agent.ask("watch", **{**SPEC, "interval": 0.05})
        assert agent.ended() == 0


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">IB", 2, 1) + b"{}",
        struct.pack(">IB", 1 << 30, 0),
        struct.pack(">IB", 2, 0) + b"][",
        struct.pack(">IB", 2, 0) + b"{}",
        struct.pack(">IB", 2, 0) + b"[]",
    ],
    ids=["raw", "huge", "no JSON", "no request", "a list"],
)
def test_what_is_no_request_of_a_console_ends_the_agent_with_words(frame: bytes) -> None:
    with running(CHILDREN) as agent:
        pids = children(agent)
        agent.stdin.write(frame)
        agent.stdin.flush()
        assert agent.ended() == 1
        assert agent.process.stderr is not None
        assert b"does not speak this agent's protocol" in agent.process.stderr.read()
        assert_all_gone(pids)


def test_requests_may_come_in_any_pieces() -> None:
    with running(COUNTER) as agent:
        payloads = [json.dumps({"do": "ping", "id": number}).encode() for number in (1, 2, 3)]
        data = b"".join(struct.pack(">IB", len(payload), 0) + payload for payload in payloads)
        for at in range(0, len(data), 7):
            os.write(agent.stdin.fileno(), data[at : at + 7])
        seen = [message.id for message in (agent.read() for _ in range(3)) if isinstance(message, Answer)]
        assert seen == [1, 2, 3]


def test_refresh_reads_everything_at_once() -> None:
    program = """
class Lazy(Section):
    name = "paths"
    reads = "never"
    def refresh(self):
        self.reads = "again"
    def tick(self, now):
        self.value = [dict(path=self.reads, kind="file", size=1)]
sections = {"paths": Lazy}
"""
    with running(program) as agent:
        agent.ask("watch", **{**SPEC, "interval": 3600.0})
        assert agent.section("paths")[0].path == "never"
        agent.ask("refresh")
        assert agent.section("paths")[0].path == "again"


def test_a_new_spec_reaches_every_section() -> None:
    program = """
class Told(Section):
    name = "paths"
    def configure(self, spec):
        self.value = [dict(path=path, kind="file", size=1) for path in spec["paths"]]
sections = {"paths": Told}
"""
    with running(program) as agent:
        agent.ask("watch", **{**SPEC, "paths": ["/one"]})
        assert agent.section("paths")[0].path == "/one"
        agent.ask("watch", **{**SPEC, "paths": ["/two"]})
        assert agent.section("paths")[0].path == "/two"


@pytest.mark.parametrize("when", ["value = []", "def tick(self, now): self.value = []"])
def test_a_section_learns_what_the_others_found(when: str) -> None:
    program = (
        f"class Units(Section):\n    name = 'units'\n    {when}\n"
        + """

class Venvs(Section):
    name = "venvs"
    def observe(self, name, value):
        self.value = [dict(path=name, source="unit", python="3.12", packages={}, package=missing("not_found"))]
sections = {"units": Units, "venvs": Venvs}
"""
    )
    with running(program) as agent:
        agent.ask("watch", **SPEC)
        assert [venv.path for venv in agent.section("venvs")] == ["units"]


def test_a_note_follows_its_section_and_its_end_is_told_by_the_section_alone() -> None:
    program = """
class Noted(Section):
    name = "paths"
    ticks = 0
    value = []
    @property
    def note(self):
        return "polled" if self.ticks == 2 else ""
    def tick(self, now):
        self.ticks += 1
sections = {"paths": Noted}
"""
    told: list[str] = []
    with running(program) as agent:
        agent.ask("watch", **{**SPEC, "interval": 0.1})
        while told[-2:] != ["note polled", "paths"]:
            message = agent.read()
            if isinstance(message, Note):
                told.append(f"note {message.text}")
            elif isinstance(message, Sample) and isinstance(message.paths, list):
                told.append("paths")
    assert told == ["paths", "paths", "note polled", "paths"]
