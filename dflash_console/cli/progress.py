"""How far copies have come, on stderr: lines that are painted over on a terminal, else a line for each step."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

import click

from dflash_console.cli.streams import complain
from dflash_console.cli.terminals import is_terminal
from dflash_console.copies import RunState, Side, TargetRun
from dflash_console.ui.drawing.copying import silence
from dflash_console.ui.drawing.line import Row, plain
from dflash_console.ui.drawing.words import plural, size, span

__all__ = ["STATE_WORDS", "Progress", "run_words"]

PAINTS = 0.1
"""Seconds between two paintings on a terminal."""
REPORTS = 10.0
"""Seconds between two lines about a target off a terminal, while its state stays."""

STATE_WORDS: dict[RunState, str] = {
    "waiting": "waiting",
    "claiming": "taking the lock",
    "sending": "receiving",
    "checking": "checking what came",
    "swapping": "swapping",
    "verifying": "verifying",
    "undoing": "undoing",
    "done": "done",
    "undone": "undone",
    "refused": "refused",
    "failed": "failed",
    "cancelled": "cancelled",
    "unreachable": "not reached",
}


def run_words(run: TargetRun) -> str:
    """`ct200:/root/venv: receiving 312/800 files, 12.3M/80.1M, 45.0M/s, 2 s left`."""
    words = f"{run.side}: {STATE_WORDS[run.state]}"
    if is_counting(run):
        words += f" {run.files}/{run.all_files} files"
        if quiet := silence(run, time.time()):
            return f"{words}, nothing came for {span(quiet)}"
        words += f", {size(run.bytes)}/{size(run.all_bytes)}"
        if run.rate > 0:
            words += f", {size(round(run.rate))}/s"
        if run.left is not None:
            words += f", {span(run.left)} left"
        return words
    if not run.detail:
        return words
    # On the way the detail says the same as the state, and more; an end says how, then why.
    return f"{words}: {run.detail}" if run.is_over else f"{run.side}: {run.detail}"


def is_counting(run: TargetRun) -> bool:
    """Whether it is known of how many files how many have come."""
    return run.state == "sending" and run.all_files > 0


class Progress:
    """What is shown of copies while they run."""

    def __init__(
        self,
        stream: TextIO | None = None,
        is_live: bool | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stderr
        self._is_live = _can_repaint(self._stream) if is_live is None else is_live
        self._now = now
        self._runs: dict[Side, TargetRun] = {}
        self._told: dict[Side, tuple[tuple[RunState, bool], float]] = {}
        """The step of a target that was said last, and when."""
        self._painted = 0
        """Lines that the next painting is over."""
        self._at = float("-inf")

    def show(self, run: TargetRun) -> None:
        """Takes in the state of one target."""
        is_news = run.side not in self._runs or self._runs[run.side].state != run.state
        self._runs[run.side] = run
        if not self._is_live:
            self._report(run)
        elif is_news or self._now() - self._at >= PAINTS:
            self._paint()

    def tick(self) -> None:
        """Called every second: tells of targets to which nothing comes."""
        quiet = [run for run in self._runs.values() if silence(run, time.time())]
        if quiet and self._is_live:
            self._paint()
        elif not self._is_live:
            for run in quiet:
                self._report(run)

    def say(self, words: str) -> None:
        """A line that stays."""
        self._wipe()
        complain(words)
        if self._runs and self._is_live:
            self._paint()

    def end(self) -> None:
        """Takes away what was painted: the results are told by others."""
        self._wipe()
        self._runs.clear()

    def _report(self, run: TargetRun) -> None:
        step = run.state, is_counting(run)
        before, at = self._told.get(run.side, (None, float("-inf")))
        if before != step or (is_counting(run) and self._now() - at >= REPORTS):
            self._told[run.side] = step, self._now()
            complain(run_words(run))

    def _paint(self) -> None:
        room = shutil.get_terminal_size((80, 24))
        runs = sorted(self._runs.values(), key=lambda run: run.is_over)
        shown = runs[: max(1, room.lines - 2)]
        lines = [plain(Row(room.columns - 1).add(run_words(run)).line()) for run in shown]
        if len(shown) < len(runs):
            lines[-1] = f"and {plural(len(runs) - len(shown) + 1, 'more target')}"
        self._wipe()
        self._write("".join(f"{line}\n" for line in lines))
        self._painted = len(lines)
        self._at = self._now()

    def _wipe(self) -> None:
        if self._painted:
            self._write(f"\x1b[{self._painted}A\r\x1b[J")
        self._painted = 0

    def _write(self, text: str) -> None:
        try:
            click.echo(text, file=self._stream, nl=False, color=True)
        except OSError:
            self._is_live = False


def _can_repaint(stream: TextIO) -> bool:
    return is_terminal(stream) and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
