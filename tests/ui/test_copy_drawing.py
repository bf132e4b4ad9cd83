"""What copy, compare and roll back draw: within its width, whatever the words and numbers are."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
import pytest

from dflash_console.copies import (
    Comparison,
    Difference,
    Entry,
    FolderCount,
    Look,
    Need,
    Side,
    TargetPlan,
    TargetRun,
)
from dflash_console.ui.differences import differences
from dflash_console.ui.drawing.backups import draw_backups
from dflash_console.ui.drawing.comparison import FileRows, changes_of, draw_sides
from dflash_console.ui.drawing.copy_plan import draw_making, draw_plan, look_words
from dflash_console.ui.drawing.copy_question import (
    draw_copy_question,
    draw_leaving,
    draw_rollback_question,
)
from dflash_console.ui.drawing.copying import RUN_WORDS, copying_block, copying_words, draw_runs
from dflash_console.ui.drawing.diff import DiffRows, draw_diff_sides
from dflash_console.ui.drawing.line import Line, cells_of, plain
from dflash_console.ui.drawing.table import draw_row, plan_table
from dflash_console.ui.going import Going
from dflash_console.ui.opened import Shown
from dflash_console.ui.scene import HostScene
from tests.ui import builders, copying
from tests.ui.builders import MOMENT, WALL
from tests.ui.extremes import TEXTS
from tests.ui.looking import texts

WIDTHS = (12, 20, 37, 62, 80, 100, 250)
HUGE = 2**62
WORDS = (*TEXTS, builders.HOSTILE)


def going(run: TargetRun, what: str = "from ct129") -> Going:
    """A copy from ct129."""
    return Going(run, f"copying {what}", f"copy {what}")


def odd_target(word: str) -> TargetPlan:
    """A target all of whose words are this one."""
    look = msgspec.structs.replace(
        copying.look(),
        version=word,
        dist_version="1",
        files=HUGE,
        size=HUGE,
        backups=(msgspec.structs.replace(copying.backup(0), version=word, in_use=word, at=0.0, size=HUGE),),
        strange=(word,),
    )
    return TargetPlan(
        Side(word or "h", word or "/v"),
        look,
        Difference(HUGE, HUGE, HUGE, HUGE, (FolderCount(word or "x", 1, 1, 1),), HUGE),
        HUGE,
        tuple(msgspec.structs.replace(check, name=word, detail=word) for check in copying.PREFLIGHT[:4]),
        (Need("running", word),),
        (word,),
    )


def odd_run(word: str, state: str = "failed") -> TargetRun:
    """A run all of whose words are this one."""
    return msgspec.structs.replace(
        copying.done(Side(word or "h", word or "/v")),
        state=state,
        detail=word,
        files=HUGE,
        all_files=HUGE,
        bytes=HUGE,
        all_bytes=HUGE,
        rate=1e300,
        left=1e300,
        began=0.0,
        seconds=1e12,
        backup=word,
        swap=word,
        notes=(word,),
        checks=(msgspec.structs.replace(copying.PREFLIGHT[0], state="fail", name=word, detail=word),),
    )


def within(lines: Sequence[Line | Shown], width: int) -> None:
    """No line is wider, and none has a character that acts on a terminal."""
    for line in lines:
        drawn = line.line if isinstance(line, Shown) else line
        assert cells_of(drawn) <= width, plain(drawn)
        assert all(character.isprintable() for character in plain(drawn))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("word", WORDS, ids=range(len(WORDS)))
def test_nothing_is_drawn_wider_than_there_is_room(word: str, width: int) -> None:
    target = odd_target(word)
    plan = msgspec.structs.replace(copying.plan(target, target), look=target.look, source=target.side)
    away = {target.side.host: word}
    shown = draw_plan(
        plan,
        width,
        WALL,
        away=away,
        refused=lambda _: word,
        package=word,
        left_out=(word,),
    )
    within(shown, width)
    within(draw_making(target.side, [target.side], word, width, away), width)
    within(draw_copy_question(plan, [target], width, WALL, word, lambda _: word), width)
    within(draw_rollback_question(target, copying.backup(0, word), width, WALL, 0.0, word), width)
    within(draw_backups(target, width, WALL, word, word), width)
    runs = [going(odd_run(word, state), word) for state in RUN_WORDS]
    within(draw_runs(runs, width, WALL), width)
    within(copying_block(runs, width, WALL), width)
    within(draw_leaving(runs, width), width)
    within(draw_leaving((), width), width)
    sides = (target.side, target.look)
    within(draw_sides(sides, sides, width, word), width)
    entry = Entry(word or "x", "file", HUGE, 0o644, word)
    changes = changes_of(Comparison((entry,), (entry,), (entry,), HUGE))
    within(FileRows(changes, (word, word), width), width)
    found = differences(f"{word}\na\n", f"b\n{word}x\n")
    for is_whole in (False, True):
        within(DiffRows(found, width, is_whole=is_whole, pan=3), width)
    within([draw_diff_sides(target.side, target.side, max(20, width))], max(20, width))


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (copying.sending(), "→ copying from ct129  62 %  41.0 MB/s  2 s left"),
        (TargetRun(copying.TARGET, "claiming"), "→ copying from ct129  taking the lock"),
        (TargetRun(copying.TARGET, "swapping"), "→ copying from ct129  swapping"),
        (copying.done(), "✓ copy from ct129  done  3 s ago"),
        (
            copying.undone(),
            "↺ copy from ct129  undone  3 s ago  not ready in its place: find_spec: sglang itself does…",
        ),
    ],
)
def test_a_panel_tells_of_a_run_in_one_line(run: TargetRun, line: str) -> None:
    mark = RUN_WORDS[run.state][0]
    assert texts(copying_block([going(run)], 90, WALL)) == [line.replace("→", mark, 1)]


def test_of_many_runs_on_a_host_a_panel_counts_the_rest() -> None:
    lines = texts(copying_block([going(copying.sending()) for _ in range(5)], 90, WALL))
    assert len(lines) == 4
    assert lines[-1] == "  +2 more"


def test_the_header_tells_of_all_runs_together() -> None:
    assert copying_words([]) is None
    assert copying_words([going(copying.sending())]) == ("→ copy 62 %", "note")
    both = [going(copying.sending()), going(copying.sending(copying.OTHER, 0.5)), going(copying.done())]
    assert copying_words(both) == ("→ 2 copies 56 %", "note")
    assert copying_words([going(copying.done())]) == ("✓ copy done", "ok")
    assert copying_words([going(copying.done()), going(copying.failed())]) == ("✗ copy failed", "alarm")


def test_a_row_of_the_table_tells_of_a_copy() -> None:
    host = HostScene(builders.ct200(), (), goings=(going(copying.sending()),))
    row = plain(draw_row(host, plan_table([host], 120), 120, MOMENT, False))
    assert "→ copy 62 %" in row


def test_a_look_of_a_package_that_is_not_there_says_so() -> None:
    look = Look("/v", "/v/site", "absent")
    target = TargetPlan(copying.TARGET, look, Difference(0, 0, 0, 0))
    plan = copying.plan(target)
    lines = texts(draw_copy_question(plan, [target], 80, WALL, "sglang", lambda _: ""))
    assert "         sglang is laid where none is now" in lines


def test_what_could_not_be_looked_into_is_not_told_as_empty() -> None:
    broken = Look("/a", "/a/site", "broken", "no such folder")
    assert look_words(broken, "sglang") == [("broken", "warn")]


@pytest.mark.parametrize("width", [78, 80, 95, 96, 140])
def test_of_each_backup_time_version_origin_and_size_are_seen_on_any_terminal(width: int) -> None:
    came = msgspec.structs.replace(copying.provenance(40), from_host="ct129")
    backups = (
        msgspec.structs.replace(copying.backup(0, "0.5.13.post1"), provenance=came),
        copying.backup(1, "0.5.9"),
    )
    look = msgspec.structs.replace(copying.look(), backups=backups)
    plan = msgspec.structs.replace(copying.target(), look=look)
    rows = draw_backups(plan, width, WALL, "sglang", "")
    lines = [line for line in texts(shown.line for shown in rows) if "  copy  " in line]
    assert len(lines) == 2
    for item, line in zip(backups, lines, strict=True):
        when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(item.at))
        assert all(word in line for word in (when, item.version, "98.0M"))
    assert f"ct129, {time.strftime('%Y-%m-%d %H:%M', time.gmtime(came.at))}" in lines[0]
    assert lines[1].endswith("not by a copy")


def test_a_rate_of_long_ago_is_not_shown_as_one_of_now() -> None:
    run = msgspec.structs.replace(copying.sending(), began=WALL - 60, seconds=20.0)
    (line,) = texts(copying_block([going(run)], 90, WALL))
    assert line == "→ copying from ct129  62 %  nothing came for 40 s".replace("→", RUN_WORDS["sending"][0])
    shown = "\n".join(texts(row.line for row in draw_runs([going(run)], 90, WALL)))
    assert "nothing came for 40 s" in shown
    assert "MB/s" not in shown
    assert "left" not in shown
