"""This machine, reached without SSH."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from dflash_console.link.local import LocalConnection


@pytest.mark.parametrize(
    "line", ["exit 3", "sleep 0.01", "cat", "exec sleep 60", "trap '' TERM HUP; sleep 60"]
)
async def test_the_end_of_a_program_is_left_to_those_who_wait_for_it(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever else asks takes it away from them once in a while, and they complain on stderr."""
    running: list[int] = []
    poll = subprocess.Popen.poll

    def spy(process: subprocess.Popen[bytes]) -> int | None:
        running.append(process.pid)
        return poll(process)

    monkeypatch.setattr(subprocess.Popen, "poll", spy)
    connection = LocalConnection(line)
    process = await connection.start()
    await process.close(0.0)
    await connection.close()
    assert process.has_ended
    assert running == []


@pytest.mark.parametrize("grace", [0.0, 5.0])
@pytest.mark.parametrize("turns", range(5))
async def test_a_close_that_is_cancelled_at_any_point_still_sees_the_end(grace: float, turns: int) -> None:
    """What ends after its loop is closed is told on stderr, by those who waited for it."""
    connection = LocalConnection("trap '' TERM HUP; exec sleep 60")
    process = await connection.start()
    async with asyncio.TaskGroup() as tasks:
        closing = tasks.create_task(process.close(grace))
        await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.sleep(0)
        closing.cancel()
    assert process.has_ended
