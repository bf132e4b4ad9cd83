"""The agent on this machine and programs that misbehave in its place, over a subprocess."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from dflash_console.config import HostConfig
from dflash_console.errors import AgentFailed, LinkError, NoPython, Refused, Unreachable
from dflash_console.link import Session, connect
from dflash_console.link import session as session_module
from dflash_console.model import Note, Sample, WatchSpec
from tests.link.programs import behind, instead_of_the_agent
from tests.waiting import until

REAL_PYTHON = os.path.realpath(sys.executable)
HERE = HostConfig("here", local=True)
SPEC = WatchSpec(0.2, "sglang", [["sglang.srt.speculative.dflash_worker"]], ["torch"], [], [], ["/tmp"])

GREET_AND_ANSWER = """
hello()
while True:
    asked = hear()
    if asked is None:
        break
    say(type="answer", id=asked["id"], ok={"at": 5.0})
"""


@asynccontextmanager
async def opened(host: HostConfig = HERE) -> AsyncIterator[Session]:
    connection = await connect(host, ssh_config=None)
    try:
        session = await Session.open(connection, host, timeout=20.0)
    except BaseException:
        await connection.close()
        raise
    try:
        yield session
    finally:
        await session.close()


async def why_not(host: HostConfig = HERE, within: float = 20.0) -> LinkError:
    connection = await connect(host, ssh_config=None)
    try:
        with pytest.raises(LinkError) as caught:
            await Session.open(connection, host, timeout=within)
    finally:
        await connection.close()
    return caught.value


async def all_of(session: Session) -> tuple[list[Sample | Note], LinkError]:
    """What the session gives until it ends, and why it ends."""
    got: list[Sample | Note] = []
    try:
        async with asyncio.timeout(20):
            async for message in session.messages():
                got.append(message)  # noqa: PERF401 - kept although it ends with an error
    except LinkError as error:
        return got, error
    raise AssertionError("the messages ended without an error")


async def how_it_ends(session: Session) -> LinkError:
    return (await all_of(session))[1]


async def whole_life() -> LinkError:
    """How a session ends, in its opening or later."""
    connection = await connect(HERE, ssh_config=None)
    try:
        return await how_it_ends(await Session.open(connection, HERE))
    except LinkError as error:
        return error
    finally:
        await connection.close()


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def runs(pid: int, program: str) -> bool:
    return Path(f"/proc/{pid}/exe").samefile(program)


# ---- the agent itself


async def test_the_agent_boots_answers_and_sends_samples() -> None:
    async with opened() as session:
        assert session.hello.python.startswith("3.")
        pong = await session.ping()
        assert 0 < pong.latency_ms < 5000
        assert abs(pong.at - (await session.ping()).at) < 60
        await session.watch(SPEC)
        sections: set[str] = set()
        async with asyncio.timeout(30):
            async for message in session.messages():
                assert isinstance(message, Sample)
                sections |= {
                    name for name in ("host", "gpu", "paths") if getattr(message, name) is not msgspec.UNSET
                }
                if sections == {"host", "gpu", "paths"}:
                    break


async def test_closing_ends_the_agent() -> None:
    async with opened() as session:
        pid = session.hello.pid
        assert is_running(pid)
    await until(lambda: not is_running(pid), 5, "the agent ends")
    with pytest.raises(Unreachable):
        await session.ping()


async def test_the_configured_python_comes_first() -> None:
    async with opened(HostConfig("here", local=True, python=sys.executable)) as session:
        assert runs(session.hello.pid, sys.executable)


async def test_a_configured_python_with_a_line_break_is_refused() -> None:
    assert isinstance(await why_not(HostConfig("here", local=True, python="python3\nrm")), NoPython)


async def test_a_killed_agent_is_told_from_one_that_ended() -> None:
    async with opened() as session:
        os.kill(session.hello.pid, signal.SIGKILL)
        error = await how_it_ends(session)
    assert isinstance(error, AgentFailed)
    assert "by signal KILL" in str(error)


async def test_an_unknown_request_is_refused_by_name() -> None:
    async with opened() as session:
        with pytest.raises(AgentFailed, match="refused `dance`"):
            await session.request("dance", 10)
        await session.ping()


# ---- booting


async def test_noise_of_rc_files_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    behind(monkeypatch, "echo welcome; printf 'no newline at the end'; echo oh >&2; head -c 60000 /dev/zero")
    async with opened() as session:
        await session.ping()


async def test_noise_without_end_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    behind(monkeypatch, "yes 'buy more \x1b[31mdisks' | head -c 90000; exec sleep 60")
    error = await why_not()
    assert isinstance(error, AgentFailed)
    assert "64 KiB" in str(error)
    assert "buy more disks" in str(error)


async def test_a_shell_that_ends_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    behind(monkeypatch, "echo 'This account is currently not available.'; exit 1")
    error = await why_not()
    assert isinstance(error, Refused)
    assert "exit 1" in str(error)
    assert "This account is currently not available." in str(error)


async def test_a_shell_that_hangs_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    behind(monkeypatch, "echo 'waiting for the home folder' >&2; exec sleep 60")
    error = await why_not(within=0.5)
    assert isinstance(error, AgentFailed)
    assert "waiting for the home folder" in str(error)


async def test_no_python_says_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    behind(monkeypatch, "echo motd; echo 'dflash-console:no-python python3 (Python 3.6.8),'; exit 127")
    error = await why_not()
    assert isinstance(error, NoPython)
    assert "(python3 (Python 3.6.8))" in str(error)
    assert "[hosts.here]" in str(error)


@pytest.mark.parametrize(
    ("python", "why"),
    [
        ("/opt/nope/python3", "no such program"),
        ("no-such-python", "no such program"),
        ("/bin/false", "not Python"),
    ],
)
async def test_a_configured_python_that_will_not_do_is_named_with_the_reason(python: str, why: str) -> None:
    error = await why_not(HostConfig("here", local=True, python=python))
    assert isinstance(error, NoPython)
    assert f"{python} ({why})" in str(error)
    assert "`python` in [hosts.here] of the config" in str(error)


async def test_a_configured_python_is_the_one_that_runs() -> None:
    async with opened(HostConfig("here", local=True, python=sys.executable)) as session:
        assert os.readlink(f"/proc/{session.hello.pid}/exe") == REAL_PYTHON


async def test_an_agent_that_crashes_at_the_start_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_the_agent(monkeypatch, "raise RuntimeError('no luck')")
    error = await why_not()
    assert isinstance(error, AgentFailed)
    assert "with exit 1" in str(error)
    assert "RuntimeError: no luck" in str(error)


async def test_an_agent_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_the_agent(monkeypatch, "hear()")
    error = await why_not(within=1.0)
    assert isinstance(error, AgentFailed)
    assert "did not say hello" in str(error)


# ---- the protocol


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("hello(protocol=99)", "protocol 99"),
        ("say(type='note', section='gpu', text='x')", "began with note"),
        ("hello(); hello()", "hello twice"),
        ("hello(); put(b'Traceback (most recent call last)')", "text where a frame should begin"),
        ("hello(); put(struct.pack('>IB', 5 << 20, 0))", "5242880 bytes; the limit is 4194304"),
        ("hello(); put(struct.pack('>IB', 2, 7) + b'{}')", "unknown kind 7"),
        ("hello(); frame(b'xx', 1)", "raw data"),
        ("hello(); frame(b'{nonsense')", "not valid JSON"),
        ("hello(); frame(b'[' * 100000)", "does not fit the protocol"),
        ("hello(); frame(b'\"\\\\u0000' + b'[' * 100000)", "not valid JSON"),
        ("hello(); frame(b'\"\\\\ud800' )", "not valid JSON"),
        ("hello(); say(type='sample', at='noon')", "Expected `float`, got `str` - at `$.at`"),
        ("hello(); say(type='sample', at=1, gpu={'gpus': [{'index': 'x'}]})", "$.gpu.gpus[0].index"),
        ("hello(); say(type='song')", "Invalid value 'song'"),
        (
            "hello(); say(type='sample', at=1, host={'root': 7})",
            "Expected `object`, got `int` - at `$.host.root`: 7",
        ),
        ("hello(); say(type='sample', at=1e308)", "Expected `float` <= 100000000000.0 - at `$.at`: 1e+308"),
        ("hello(); say(type='note', section='mine', text='x')", '- at `$.section`: "mine"'),
    ],
)
async def test_a_broken_protocol_is_named(monkeypatch: pytest.MonkeyPatch, body: str, named: str) -> None:
    instead_of_the_agent(monkeypatch, f"{body}\nhear(); time.sleep(60)")
    error = await whole_life()
    assert isinstance(error, AgentFailed)
    assert named in str(error)
    assert "here: " in str(error)


async def test_a_frame_may_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_the_agent(
        monkeypatch,
        """
hello()
payload = json.dumps({"type": "note", "section": "gpu", "text": "x" * 300000}).encode()
for byte in struct.pack(">IB", len(payload), 0):
    put(bytes([byte]))
put(payload[:100000])
put(payload[100000:] + struct.pack(">IB", 42, 0) + b'{"type":"note",')
put(b'"section":"gpu","text":"."}')
""",
    )
    async with opened() as session:
        (long, short), _ = await all_of(session)
        assert isinstance(long, Note)
        assert len(long.text) == 4096
        assert short == Note("gpu", ".")


async def test_what_a_host_says_arrives_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_the_agent(
        monkeypatch,
        """
hello()
say(type="note", section="units", text="a\\x1b]0;evil\\x07b \\u202e \\udcff \\x9b31mc")
hear()
""",
    )
    async with opened() as session:
        async for message in session.messages():
            assert message == Note("units", "ab <U+202E> \ufffd c")
            break


async def test_answers_find_their_requests_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_the_agent(
        monkeypatch,
        """
hello()
asked = [hear() for _ in range(3)]
say(type="answer", id=999, ok=1)
for each in reversed(asked):
    say(type="answer", id=each["id"], ok=each["word"])
hear()
""",
    )
    async with opened() as session:
        answers = await asyncio.gather(*(session.request("say", 10, word=word) for word in ("a", "b", "c")))
    assert [bytes(answer) for answer in answers] == [b'"a"', b'"b"', b'"c"']


async def test_a_request_without_an_answer_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_the_agent(
        monkeypatch,
        """
hello()
late = hear()
following = hear()
say(type="answer", id=late["id"], ok=1)
say(type="answer", id=following["id"], ok={"at": 1.5})
hear()
""",
    )
    async with opened() as session:
        with pytest.raises(Unreachable, match="no answer to `slow`"):
            await session.request("slow", 0.1)
        assert (await session.ping()).at == 1.5


async def test_open_requests_fail_when_the_agent_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_the_agent(monkeypatch, "hello(); hear(); sys.exit(3)")
    async with opened() as session:
        with pytest.raises(AgentFailed, match="with exit 3"):
            await session.request("anything", 20)
        with pytest.raises(AgentFailed, match="with exit 3"):
            await session.request("more", 20)


async def test_a_ping_answered_with_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_the_agent(monkeypatch, "hello(); say(type='answer', id=hear()['id'], ok=7); hear()")
    async with opened() as session:
        with pytest.raises(AgentFailed, match="nonsense"):
            await session.ping()


async def test_a_slow_consumer_gets_the_newest_of_every_section(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_the_agent(
        monkeypatch,
        """
hello()
for number in range(5000):
    say(type="sample", at=number, paths=[])
    if number % 500 == 0:
        say(type="note", section="gpu", text=str(number))
say(type="sample", at=5000, units=[])
say(type="answer", id=hear()["id"], ok={"at": 1})
hear()
""",
    )
    async with opened() as session:
        await session.ping()
        # The ping's answer came after everything else, and nothing has been taken yet.
        got = []
        async for message in session.messages():
            got.append(message)
            if isinstance(message, Sample) and message.at == 5000:
                break
    assert len(got) < 64
    last = got[-1]
    assert isinstance(last, Sample)
    assert (last.paths, last.units) == ([], [])
    assert [message.text for message in got if isinstance(message, Note)][-1] == "4500"


async def test_an_agent_that_will_not_end_is_killed_with_its_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "END_GRACE", 0.2)
    instead_of_the_agent(
        monkeypatch,
        """
import subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"])
say(type="hello", protocol=1, python=str(child.pid), pid=os.getpid())
while True:
    time.sleep(60)
""",
    )
    async with opened() as session:
        child = int(session.hello.python)
        assert is_running(child)
    await until(lambda: not is_running(session.hello.pid), 5, "the agent ends")
    await until(lambda: not is_running(child), 5, "its child ends")


async def test_an_agent_whose_child_holds_its_output_still_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_the_agent(
        monkeypatch,
        """
import subprocess
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
say(type="hello", protocol=1, python=str(child.pid), pid=os.getpid())
sys.exit(4)
""",
    )
    async with opened() as session:
        error = await how_it_ends(session)
        os.kill(int(session.hello.python), signal.SIGKILL)
    assert "with exit 4" in str(error)


async def test_more_than_stdin_takes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_the_agent(monkeypatch, GREET_AND_ANSWER)
    async with opened() as session:
        answer = await session.request("swallow", 20, text="x" * 3_000_000)
    assert bytes(answer) == b'{"at": 5.0}'
