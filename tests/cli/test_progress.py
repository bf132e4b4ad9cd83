"""What is shown of copies while they run."""

from __future__ import annotations

import io
import re
import time

import msgspec
import pytest

from dflash_console.cli.progress import PAINTS, REPORTS, STATE_WORDS, Progress, run_words
from dflash_console.copies import Side, TargetRun
from tests.cli import plans

FIRST, SECOND = plans.TARGET, Side("ct201", "/root/venv_sglang")
SENDING = TargetRun(FIRST, "sending", files=312, all_files=800, bytes=12 << 20, all_bytes=80 << 20)


def screen(text: str) -> list[str]:
    """The lines that stand on a terminal after all that was written to it."""
    lines: list[str] = []
    for piece in re.split(r"(\x1b\[\d+A\r\x1b\[J)", text):
        if up := re.match(r"\x1b\[(\d+)A", piece):
            lines = lines[: -int(up[1])]
        else:
            lines += piece.split("\n")[:-1]
    return lines


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_files_bytes_rate_and_time_left_are_shown() -> None:
    run = msgspec.structs.replace(SENDING, rate=45.0 * (1 << 20), left=1.6)
    told = "ct200:/root/venv_sglang: receiving 312/800 files, 12.0M/80.0M, 45.0M/s, 1 s left"
    assert run_words(run) == told
    assert run_words(SENDING) == "ct200:/root/venv_sglang: receiving 312/800 files, 12.0M/80.0M"
    refused = TargetRun(FIRST, "refused", "kim@laptop holds the lock")
    assert run_words(refused) == "ct200:/root/venv_sglang: refused: kim@laptop holds the lock"


def test_every_state_has_words() -> None:
    assert all(run_words(TargetRun(FIRST, state)).endswith(words) for state, words in STATE_WORDS.items())


def test_off_a_terminal_there_is_a_line_for_each_step_and_now_and_then(
    clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    progress = Progress(is_live=False, now=clock)
    for seconds in range(25):
        clock.now = float(seconds)
        progress.show(SENDING)
    progress.show(TargetRun(FIRST, "checking"))
    progress.end()
    err = capfd.readouterr().err
    assert err.count("receiving 312/800 files") == 1 + int(24 // REPORTS)
    assert err.count("checking what came") == 1
    assert "\x1b" not in err


def test_on_a_terminal_each_target_has_one_line_that_is_painted_over(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(stream, is_live=True, now=clock)
    progress.show(SENDING)
    progress.show(TargetRun(SECOND, "checking"))
    clock.now += PAINTS / 2
    progress.show(msgspec.structs.replace(SENDING, files=500))
    assert [line.split(": ")[1] for line in screen(stream.getvalue())] == [
        "receiving 312/800 files, 12.0M/80.0M",
        "checking what came",
    ]
    clock.now += PAINTS
    progress.show(msgspec.structs.replace(SENDING, files=501))
    assert len(screen(stream.getvalue())) == 2
    assert "501/800" in screen(stream.getvalue())[0]
    progress.end()
    assert screen(stream.getvalue()) == []


def test_more_targets_than_lines_are_counted_and_those_that_run_come_first(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "8")
    monkeypatch.setenv("COLUMNS", "40")
    stream = io.StringIO()
    progress = Progress(stream, is_live=True, now=clock)
    for number in range(20):
        state = "done" if number < 15 else "swapping"
        progress.show(plans.run(Side(f"host{number:02}", "/root/" + "long" * 20), state))
    lines = screen(stream.getvalue())
    assert len(lines) == 6
    assert lines[-1] == "and 15 more targets"
    assert [line[:6] for line in lines[:5]] == [f"host{number}" for number in range(15, 20)]
    assert max(map(len, lines)) < 40


def test_a_hostile_word_is_harmless_in_the_line(clock: Clock) -> None:
    stream = io.StringIO()
    Progress(stream, is_live=True, now=clock).show(TargetRun(FIRST, "failed", "\x1b[2J\x07evil\n"))
    assert "evil" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("is_live", [True, False])
def test_that_nothing_comes_is_told_though_the_target_says_nothing(
    clock: Clock, is_live: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    stream = io.StringIO()
    progress = Progress(stream, is_live=is_live, now=clock)
    began = time.time() - 61.0
    run = msgspec.structs.replace(SENDING, rate=45.0 * (1 << 20), left=1.6, began=began, seconds=1.0)
    progress.show(run)

    def told() -> str:
        text = stream.getvalue() + capfd.readouterr().err
        stream.seek(0)
        stream.truncate()
        return text

    assert "nothing came for 1 m" in (first := told())
    assert "left" not in first
    clock.now = REPORTS
    progress.tick()
    assert "nothing came for 1 m" in told()
    clock.now = 2 * REPORTS
    progress.show(msgspec.structs.replace(run, seconds=61.0))
    assert "45.0M/s" in told()
    progress.tick()
    assert told() == ""
