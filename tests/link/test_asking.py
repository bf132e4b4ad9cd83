"""Short programs that are asked something: they get no longer than said, no more is kept than said, and nothing of
them stays behind."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from dflash_console.config import HostConfig
from dflash_console.errors import Unreachable
from dflash_console.link import route
from dflash_console.link.asking import COMPLAINT_KEPT, MOST_OUTPUT, Asking, ask
from dflash_console.link.route import resolve
from tests.waiting import until, until_sync

LONG = 60.0
PIECE = 1 << 16


def is_running(pid: int) -> bool:
    # A zombie has no `exe`.
    return os.path.exists(f"/proc/{pid}/exe")


def pids_in(file: Path, count: int) -> list[int]:
    words = file.read_text().split() if file.exists() else []
    return [int(word) for word in words] if len(words) == count else []


def gone(file: Path, count: int) -> None:
    pids = pids_in(file, count)
    assert pids
    until_sync(lambda: not any(map(is_running, pids)), 10, "all that it started is gone")


def shell(text: str) -> list[str]:
    return ["/bin/sh", "-c", text]


def test_what_it_prints_and_how_it_ends() -> None:
    assert Asking(shell("echo out; echo err >&2; exit 3")).run(LONG) == ("exit", 3, b"out\n", b"err\n")
    assert Asking(shell("kill -9 $$")).run(LONG) == ("exit", -9, b"", b"")
    with pytest.raises(FileNotFoundError):
        Asking(["/nonexistent/program"]).run(LONG)


@pytest.mark.parametrize(
    "text",
    [
        "exec sleep 600",
        "trap '' HUP TERM INT; exec sleep 600",
        "exec >/dev/null 2>/dev/null; exec sleep 600",
        "echo before the hang >&2; exec sleep 600",
    ],
)
def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, text: str) -> None:
    pids = tmp_path / "pids"
    outcome = Asking(shell(f"sleep 600 & echo $! $$ > {pids}; {text}")).run(0.3)
    assert outcome.end == "time"
    assert outcome.complaint == (b"before the hang\n" if "echo" in text else b"")
    gone(pids, 2)


@pytest.mark.parametrize("where", ["", ">&2"])
def test_one_that_prints_without_end_is_ended_and_fills_nothing(tmp_path: Path, where: str) -> None:
    pids = tmp_path / "pids"
    outcome = Asking(shell(f"echo $$ > {pids}; exec yes 0123456789 {where}")).run(LONG)
    assert outcome.end == "flood"
    assert len(outcome.output) <= MOST_OUTPUT + PIECE
    assert len(outcome.complaint) <= COMPLAINT_KEPT
    assert len(outcome.output or outcome.complaint) >= COMPLAINT_KEPT
    gone(pids, 1)


def test_one_that_ends_is_not_waited_for_because_of_what_it_left_behind(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    outcome = Asking(shell(f"sleep 600 >/dev/null & echo $! > {pids}; echo done")).run(LONG)
    assert (outcome.end, outcome.output) == ("exit", b"done\n")
    gone(pids, 1)


async def test_one_that_nobody_waits_for_any_more_is_ended_at_once(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    before = threading.active_count()
    asking = asyncio.ensure_future(  # noqa: TID251 - cancelled below
        ask(shell(f"sleep 600 & echo $! $$ > {pids}; exec sleep 600"), LONG)
    )
    await until(lambda: pids_in(pids, 2), 10, "it runs")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    gone(pids, 2)
    await until(lambda: threading.active_count() <= before, 10, "its thread ends")


def test_one_that_is_stopped_before_it_starts_does_not_run(tmp_path: Path) -> None:
    asking = Asking(shell(f"sleep 600; touch {tmp_path}/ran"))
    asking.stop()
    assert asking.run(LONG).end == "time"
    assert not (tmp_path / "ran").exists()


# ---- ssh -G


async def test_a_match_exec_that_floods_is_ended_and_quoted(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    config = tmp_path / "config"
    config.write_text(f'Match exec "echo $$ > {pids}; exec yes complaints >&2"\n  Port 1\n')
    with pytest.raises(Unreachable) as caught:
        await resolve(HostConfig("ct129"), str(config))
    text = str(caught.value)
    assert f"`ssh -G -F {config} -- ct129` printed more than 1024 KiB" in text
    assert "it printed last: " in text
    assert "complaints" in text
    assert len(text) < 2000
    gone(pids, 1)


async def test_a_match_exec_that_hangs_is_ended_and_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "ASK_TIMEOUT", 0.5)
    pids = tmp_path / "pids"
    config = tmp_path / "config"
    config.write_text(
        f'Match exec "sleep 600 & echo $! $$ > {pids}; echo waiting for the VPN >&2; sleep 600"\n  Port 1\n'
    )
    with pytest.raises(Unreachable) as caught:
        await resolve(HostConfig("ct129"), str(config))
    assert f"`ssh -G -F {config} -- ct129` did not end" in str(caught.value)
    assert "it printed last: 'waiting for the VPN'" in str(caught.value)
    gone(pids, 2)


async def test_a_match_exec_is_ended_when_the_connect_is_given_up(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    config = tmp_path / "config"
    config.write_text(f'Match exec "sleep 600 & echo $! $$ > {pids}; sleep 600"\n  Port 1\n')
    resolving = asyncio.ensure_future(  # noqa: TID251 - cancelled below
        resolve(HostConfig("ct129"), str(config))
    )
    await until(lambda: pids_in(pids, 2), 10, "it runs")
    resolving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resolving
    gone(pids, 2)
