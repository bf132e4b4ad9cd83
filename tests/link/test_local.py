"""This machine, reached without SSH."""

from __future__ import annotations

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
