"""What ends a session is told to all that went over its connection."""

from __future__ import annotations

import asyncio

import pytest

from dflash_console.config import HostConfig
from dflash_console.errors import LinkError, Unreachable
from dflash_console.link import Session, connect
from tests.link.programs import instead_of_the_agent
from tests.waiting import until

HERE = HostConfig("here", local=True)
WAIT = 20.0


@pytest.mark.parametrize("why", [Unreachable("here: no answer to `ping` in 6 s"), None])
async def test_a_channel_tells_what_its_session_was_given_up_for(
    monkeypatch: pytest.MonkeyPatch, why: LinkError | None
) -> None:
    instead_of_the_agent(monkeypatch, "hello()\nwhile hear():\n    pass\n")
    session = await Session.open(await connect(HERE, ssh_config=None), HERE, timeout=WAIT)
    channel = await session.channel()

    async def ask() -> str:
        with pytest.raises(LinkError) as caught:
            await channel.request("look", WAIT)
        return str(caught.value)

    async with asyncio.TaskGroup() as tasks:
        told = tasks.create_task(ask())
        await until(lambda: channel.sent, WAIT, "it is asked")
        await session.close(why)
    assert told.result() == str(why) if why is not None else "here" in told.result()
    await channel.close()
