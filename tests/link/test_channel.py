"""A copy process's channel: programs that misbehave in its place, over a subprocess."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from dflash_console.config import HostConfig
from dflash_console.copies import LISTED_AT_ONCE, Entry
from dflash_console.errors import AgentFailed, CopyError, LinkError, Unreachable
from dflash_console.link import Channel, Listed, connect, pack_data
from dflash_console.link import channel as channel_module
from dflash_console.link.process import AT_ONCE
from tests.link.programs import instead_of_the_agent
from tests.waiting import until

HERE = HostConfig("here", local=True)
WAIT = 20.0

LISTEN = """
def raw(size=None):
    head = sys.stdin.buffer.read(5)
    return sys.stdin.buffer.read(struct.unpack(">IB", head)[0])

def answer(asked, ok=None):
    say(type="answer", id=asked["id"], ok=ok)

"""


@asynccontextmanager
async def opened(
    monkeypatch: pytest.MonkeyPatch, body: str, *, greets: bool = True
) -> AsyncIterator[Channel]:
    instead_of_the_agent(monkeypatch, LISTEN + ("hello()\n" if greets else "") + body)
    connection = await connect(HERE, ssh_config=None)
    try:
        channel = await Channel.open(connection, HERE, timeout=WAIT)
        yield channel
        await channel.close()
    finally:
        await connection.close()


def entry(path: str, content: str = "0" * 64) -> list[object]:
    return [path, "file", 3, 0o644, content]


# ---- what a request brings


async def test_an_answer_comes_behind_its_parts_its_progress_and_its_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = f"""
asked = hear()
say(type="part", id=asked["id"], entries=[{entry("sglang/a.py")!r}])
frame(b"one", 1)
say(type="progress", id=asked["id"], files=1, bytes=3)
frame(b"two", 1)
say(type="part", id=asked["id"], entries=[{entry("sglang/b.py")!r}])
answer(asked, asked["venv"])
hear()
"""
    listed, told, data = Listed(), list[tuple[int, int]](), list[bytes]()

    async def take(piece: bytes) -> None:
        data.append(piece)

    async with opened(monkeypatch, body) as channel:
        ok = await channel.request(
            "look",
            WAIT,
            listed=listed,
            progress=lambda files, size: told.append((files, size)),
            data=take,
            venv="/v",
        )
    assert msgspec.json.decode(ok) == "/v"
    assert listed.entries == [
        Entry("sglang/a.py", "file", 3, 0o644, "0" * 64),
        Entry("sglang/b.py", "file", 3, 0o644, "0" * 64),
    ]
    assert (told, data, listed.strange) == ([(1, 3)], [b"one", b"two"], [])


async def test_a_listing_is_given_away_part_by_part_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"""
asked = hear()
say(type="part", id=asked["id"], entries=[{entry("sglang/a.py")!r}, {entry("sglang/b.py")!r}])
say(type="part", id=asked["id"], entries=[{entry("sglang/c.py")!r}])
answer(asked, "whole")
hear()
"""
    given: list[list[str]] = []

    async def give(entries: Sequence[Entry]) -> None:
        given.append([each.path for each in entries])

    listed = Listed(give)
    async with opened(monkeypatch, body) as channel:
        assert msgspec.json.decode(await channel.request("look", WAIT, listed=listed)) == "whole"
    assert given == [["sglang/a.py", "sglang/b.py"], ["sglang/c.py"]]
    assert (listed.entries, listed.count) == ([], 3)


async def test_a_host_is_held_up_while_its_part_is_not_taken_and_not_blamed_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    body = f"""
asked = hear()
entries = [{entry("sglang/" + "x" * 200)!r}] * {LISTED_AT_ONCE}
said = 0
for _ in range(10):
    say(type="part", id=asked["id"], entries=entries)
    said += 1
    open(asked["venv"], "a").write("x")
answer(asked, said)
hear()
"""
    told = tmp_path / "told"
    told.touch()
    held = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def give(entries: Sequence[Entry]) -> None:
        if not held.is_set():
            # Longer than it may be silent, and longer than it may take in all.
            loop.call_later(1.2, held.set)
            await held.wait()
            counts.append(told.stat().st_size)

    counts: list[int] = []
    async with opened(monkeypatch, body) as channel:
        ok = await channel.request("look", 1.0, whole=1.1, listed=Listed(give), venv=str(told))
    assert msgspec.json.decode(ok) == 10
    assert counts[0] < 6


async def test_several_requests_are_asked_before_the_first_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = """
all = [hear() for _ in range(3)]
for asked in all:
    answer(asked, asked["what"])
hear()
"""
    async with opened(monkeypatch, body) as channel:
        numbers = [channel.ask("expect", what=what) for what in ("a", "b", "c")]
        assert [msgspec.json.decode(await channel.answer(number, WAIT)) for number in numbers] == [
            "a",
            "b",
            "c",
        ]


async def test_a_refusal_is_words_and_the_process_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
asked = hear()
say(type="answer", id=asked["id"], error="no room\\x1b[2J on /v")
answer(hear(), 7)
hear()
"""
    async with opened(monkeypatch, body) as channel:
        with pytest.raises(CopyError, match=r"^here: no room on /v$"):
            await channel.request("want", WAIT)
        assert not channel.has_failed
        assert msgspec.json.decode(await channel.request("want", WAIT)) == 7


async def test_data_goes_out_as_fast_as_it_is_taken_and_no_faster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    body = """
asked = hear()
while not os.path.exists(asked["sign"]):
    time.sleep(0.01)
for number in range(40):
    raw()
answer(asked, 40)
hear()
"""
    sign = tmp_path / "sign"
    frame = pack_data(b"x" * (1 << 20))
    async with opened(monkeypatch, body) as channel, asyncio.TaskGroup() as tasks:
        number = channel.ask("fill", sign=str(sign))
        for _ in range(3):
            channel.write(frame)
        drained = tasks.create_task(channel.drain())
        await asyncio.sleep(0)
        assert not drained.done(), "the program does not read, and still there is room"
        sign.touch()
        await drained
        for _ in range(37):
            channel.write(frame)
            await channel.drain()
        assert msgspec.json.decode(await channel.answer(number, WAIT)) == 40
        assert channel.sent > 40 << 20


async def test_a_source_is_held_up_while_nobody_takes_what_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
asked = hear()
for number in range(64):
    frame(b"x" * (1 << 20), 1)
answer(asked)
hear()
"""
    room, taken = asyncio.Event(), 0

    async def take(piece: bytes) -> None:
        nonlocal taken
        await room.wait()
        taken += 1

    async with opened(monkeypatch, body) as channel:
        channel.grant(65 << 20)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(channel.request("send", WAIT, data=take))
            await until(lambda: channel.received > 1 << 20, WAIT, "the first frame came")
            await until(lambda: channel._process._is_held_up, WAIT, "the program is held up")
            assert channel.received < 3 << 20, "it was read on"
            room.set()
            await task
        assert taken == 64


# ---- how it ends


async def why_not(monkeypatch: pytest.MonkeyPatch, body: str, *, greets: bool = True) -> LinkError:
    """The error of a first request."""

    async def ask() -> None:
        async with opened(monkeypatch, body, greets=greets) as channel:
            await channel.request("look", WAIT, listed=Listed())

    with pytest.raises(LinkError) as caught:
        await ask()
    return caught.value


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("hear(); sys.exit(3)", "ended with exit 3"),
        ("hear(); os.kill(os.getpid(), 9)", "ended by signal KILL"),
        ("hear(); frame(b'x', 1); hear()", "raw data that nobody asked for"),
        ("hear(); frame(b'[]'); hear()", "no message of ours"),
        ("asked = hear(); say(type='part', id=asked['id'], entries=[[1, 2]]); hear()", "does not fit"),
        ("asked = hear(); say(type='sample', id=asked['id'], at=1.0); hear()", "sends no sample"),
        ("hear(); put(b'rc file says hello'); hear()", "text where a frame should begin"),
    ],
)
async def test_whatever_breaks_the_protocol_ends_the_channel_in_words(
    monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    error = await why_not(monkeypatch, body)
    assert isinstance(error, AgentFailed)
    assert words in str(error)
    assert "here" in str(error)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("say(type='answer', id=1, ok=1); hear()", "did not begin with hello"),
        ("hello(9); hear()", "speaks protocol 9"),
        ("sys.exit(1)", "ended with exit 1"),
    ],
)
async def test_a_process_that_does_not_greet_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    assert words in str(await why_not(monkeypatch, body, greets=False))


async def test_a_process_that_says_nothing_any_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(monkeypatch, "hear(); hear()") as channel:
        with pytest.raises(Unreachable, match="got no further"):
            await channel.request("look", 0.2)
        with pytest.raises(Unreachable):
            await channel.request("look", WAIT)


@pytest.mark.parametrize(
    "said",
    [
        "say(type='progress', id=asked['id'], files=1, bytes=3)",
        "say(type='part', id=asked['id'], entries=[])",
        "say(type='answer', id=7000, ok=1)",
    ],
)
async def test_whoever_says_the_same_for_ever_is_given_up_like_a_silent_one(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    body = f"""
asked = hear()
while True:
    {said}
    time.sleep(0.01)
"""
    async with opened(monkeypatch, body) as channel:
        async with asyncio.timeout(WAIT):
            with pytest.raises(Unreachable, match="got no further"):
                await channel.request("look", 0.3, listed=Listed())
        assert channel.has_failed


async def test_a_request_that_gets_further_and_further_still_has_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = """
asked = hear()
number = 0
while True:
    number += 1
    say(type="progress", id=asked["id"], files=number, bytes=0)
    time.sleep(0.01)
"""
    async with opened(monkeypatch, body) as channel, asyncio.timeout(WAIT):
        with pytest.raises(Unreachable, match="got no further"):
            await channel.request("look", WAIT, whole=0.3)


async def test_an_agent_that_waits_for_others_lives_by_the_pings_that_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel_module, "PING_PAUSE", 0.1)
    body = """
asked = hear()
for number in range(20):
    ping = hear()
    say(type="answer", id=ping["id"], ok=1)
answer(asked, 7)
while hear():
    pass
"""
    async with opened(monkeypatch, body) as channel:
        assert msgspec.json.decode(await channel.request("fill", 1.0)) == 7


async def test_the_channel_ends_with_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_the_agent(monkeypatch, LISTEN + "hello()\nhear(); hear()\n")
    connection = await connect(HERE, ssh_config=None)
    channel = await Channel.open(connection, HERE, timeout=WAIT)

    async def ask() -> None:
        with pytest.raises(LinkError):
            await channel.request("look", WAIT)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ask())
        await until(lambda: channel.sent, WAIT, "it is asked")
        await connection.close()
    assert channel.has_failed
    await channel.close()


# ---- floods


async def test_what_was_asked_for_may_be_larger_than_any_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"""
asked = hear()
for number in range({2 * AT_ONCE >> 20}):
    frame(b"x" * (1 << 20), 1)
answer(asked)
hear()
"""

    async def take(piece: bytes) -> None:
        pass

    async with opened(monkeypatch, body) as channel:
        channel.grant(2 * AT_ONCE + (1 << 20))
        await channel.request("send", WAIT, data=take)
        channel.revoke()


@pytest.mark.parametrize("granted", [0, AT_ONCE])
async def test_what_goes_beyond_what_was_asked_for_ends_the_channel(
    monkeypatch: pytest.MonkeyPatch, granted: int
) -> None:
    body = """
asked = hear()
while True:
    frame(b"x" * (1 << 20), 1)
"""

    async def take(piece: bytes) -> None:
        pass

    async with opened(monkeypatch, body) as channel:
        channel.grant(granted)
        with pytest.raises(AgentFailed, match="has no end"):
            await channel.request("send", WAIT, data=take)
        assert channel.received < granted + 2 * AT_ONCE


async def test_a_grant_ends_with_what_it_was_for(monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
answer(hear())
hear()
while True:
    frame(b'{"type":"progress","id":1}' + b" " * 1000000)
"""
    async with opened(monkeypatch, body) as channel:
        channel.grant(1 << 40)
        await channel.request("send", WAIT)
        channel.revoke()
        with pytest.raises(AgentFailed, match="has no end"):
            await channel.request("look", WAIT)


async def test_a_listing_without_end_is_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "MOST_FILES", 3 * LISTED_AT_ONCE)
    body = f"""
asked = hear()
while True:
    say(type="part", id=asked["id"], entries=[{entry("sglang/a.py")!r}] * {LISTED_AT_ONCE})
"""
    assert "listing has no end" in str(await why_not(monkeypatch, body))


# ---- hostile names


@pytest.mark.parametrize(
    "name",
    ["sglang/\x1b[2Jx.py", "sglang/a\u202eyp.x", "sglang/a\u200bb.py", "sglang/a\nb", "sglang/\ud800.py"],
)
async def test_a_name_that_is_not_what_it_shows_is_no_entry(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    body = f"""
asked = hear()
say(type="part", id=asked["id"], entries={[entry("sglang/ä.py"), entry(name)]!r})
answer(asked)
hear()
"""
    listed = Listed()
    if "\ud800" in name:
        assert "no message of ours" in str(await why_not(monkeypatch, body))
        return
    async with opened(monkeypatch, body) as channel:
        await channel.request("look", WAIT, listed=listed)
    assert [each.path for each in listed.entries] == ["sglang/ä.py"]
    (strange,) = listed.strange
    assert strange.isprintable()
    assert strange != name


# ---- while nothing happens


async def test_a_process_that_waits_hears_of_its_console(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "PING_PAUSE", 0.1)
    body = """
asked = hear()
pings = [hear()["do"] for _ in range(3)]
answer(asked, pings)
while hear():
    pass
"""
    async with opened(monkeypatch, body) as channel:
        assert msgspec.json.decode(await channel.request("look", WAIT)) == ["ping"] * 3
