"""The matrix of environments and checks: which part is shown, where the cursor goes, and what the detail says."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from dflash_console.ui.drawing import evidence
from dflash_console.ui.drawing.environments import DETAIL, HEAD, cursor_row, draw_detail, draw_matrix
from dflash_console.ui.drawing.evidence import draw_evidence, draw_evidence_title, folded
from dflash_console.ui.drawing.line import cells_of, columns, plain
from dflash_console.ui.drawing.matrix import (
    GAP,
    Matrix,
    Place,
    Plan,
    Step,
    first_place,
    matrix_of,
    moved,
    place_in,
    plan_matrix,
)
from dflash_console.ui.scene import HostScene
from dflash_console.verdict import Check, Verdict
from tests.ui import builders, verdicts
from tests.ui.builders import WALL
from tests.ui.extremes import TEXTS
from tests.ui.looking import texts

SIZES = [(78, 20), (198, 46), (38, 10), (20, 8)]


def matrix(count: int) -> Matrix:
    """One with so many environments."""
    views, on_it = verdicts.crowded(count)
    return matrix_of(HostScene(views[0], (), on_it))


def ct200(*on_it: Verdict) -> HostScene:
    """The story's target with these verdicts."""
    return HostScene(builders.ct200(), (), on_it)


def drawn(shown: Matrix, plan: Plan, place: Place, width: int) -> list[str]:
    """The matrix as text."""
    return texts(draw_matrix(shown, plan, place, width))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", range(1, 13))
def test_the_cursors_cell_is_in_sight_wherever_it_goes(count: int, size: tuple[int, int]) -> None:
    width, height = size
    shown = matrix(count)
    place = first_place(shown)
    assert place is not None
    plan: Plan | None = None
    rights: list[Step | int] = ["right"] * count
    downs: list[Step | int] = ["down"] * 14
    lefts: list[Step | int] = ["left"] * count
    walk = [*rights, *downs, *lefts, -5, "first", "last", 9]
    for step in walk:
        place = moved(shown, place, step)
        before, plan = plan, plan_matrix(shown, width, height - HEAD - DETAIL, place, plan)
        lines = draw_matrix(shown, plan, place, width)
        assert all(cells_of(line) <= width for line in lines)
        assert "▸" in plain(lines[cursor_row(shown, plan, place)])
        assert "▾" in plain(lines[0])
        assert plan.label + plan.across * (plan.column + GAP) <= width or plan.across == 1
        if before is not None:
            assert abs(plan.left - before.left) <= 1


@pytest.mark.parametrize("count", range(1, 13))
def test_few_environments_have_their_names_in_full_and_many_scroll_by_whole_columns(count: int) -> None:
    shown = matrix(count)
    place = Place(shown.venvs[0], "python")
    for width, most_in_full in ((78, 1), (198, 5)):
        plan = plan_matrix(shown, width, 13, place, None)
        heads = drawn(shown, plan, place, width)[0]
        if count <= most_in_full:
            assert all(venv in heads for venv in shown.venvs)
        seen = [venv for venv in shown.venvs if venv.rsplit("/", 1)[1] in heads]
        assert len(seen) == plan.across
        assert ("›" in heads) == (plan.across < count)


def test_environments_whose_last_parts_are_the_same_are_told_apart() -> None:
    view = builders.view(
        builders.ct129().config,
        builders.snapshot("x", venvs=[builders.venv(f"/srv/{name}/venv") for name in "abcdefghijkl"]),
    )
    shown = matrix_of(HostScene(view, ()))
    place = Place(shown.venvs[3], "python")
    plan = plan_matrix(shown, 78, 13, place, None)
    assert "/srv/d/venv" in drawn(shown, plan, place, 78)[0]


def test_a_cell_has_a_mark_and_a_word() -> None:
    shown = matrix_of(ct200(*verdicts.story()[1:]))
    place = Place("/root/venv_sglang", "modules")
    rows = drawn(shown, plan_matrix(shown, 100, 20, place, None), place, 100)
    assert rows[0].split() == ["▾", "/root/venv_sglang", "/root/venv", "/root/ml-env"]
    assert rows[1].split()[1:] == ["✗", "not", "ready", "◐", "stale", "◌", "verifying"]
    by_name = {row.split()[0]: row.split()[1:] for row in rows[2:]}
    assert by_name["modules"] == ["▸", "✗", "fail", "✓", "pass", "◌", "waiting"]
    assert by_name["record"] == ["?", "unknown", "✓", "pass", "◌", "waiting"]
    assert by_name["version"][:2] == ["!", "warn"]


def test_an_environment_that_is_not_there_says_so_in_its_head() -> None:
    shown = matrix_of(ct200())
    place = Place("/root/ml-env", "python")
    rows = drawn(shown, plan_matrix(shown, 100, 20, place, None), place, 100)
    assert rows[1].split()[1:] == ["not", "verified", "not", "verified", "✗", "not", "there"]


def test_the_first_look_goes_to_what_is_wrong() -> None:
    assert first_place(matrix_of(ct200(*verdicts.story()[1:]))) == ("/root/venv_sglang", "modules")
    assert first_place(matrix_of(ct200())) == ("/root/venv_sglang", "python")
    assert first_place(matrix_of(HostScene(builders.unknown_key(), ()))) is None


def test_rows_and_cursor_stay_while_a_verdict_is_made_anew() -> None:
    service = "service sglang-dflash.service"
    old, begun, part = verdicts.ready("ct200", "/root/venv_sglang"), verdicts.begun(), verdicts.verifying()
    steps: list[Matrix] = []
    place: Place | None = Place("/root/venv_sglang", service)
    for verdict in (old, begun, part, old):
        known = steps[-1].checks if steps else ()
        steps.append(matrix_of(ct200(verdict), known))
        place = place_in(steps[-1], place, steps[-2] if len(steps) > 1 else None)
        assert place == ("/root/venv_sglang", service)
    assert len({step.checks for step in steps}) == 1


def test_the_rows_of_a_first_verification_stand_before_any_answer() -> None:
    before, after = matrix_of(ct200()).checks, matrix_of(ct200(verdicts.begun())).checks
    assert before == after
    filled = matrix_of(ct200(verdicts.verifying()), after).checks
    assert filled == before


def test_a_check_that_is_gone_for_good_loses_its_row_and_the_cursor_goes_to_the_nearest() -> None:
    with_service = matrix_of(ct200(verdicts.ready("ct200", "/root/venv_sglang")))
    without = verdicts.ready("ct200", "/root/venv_sglang")
    checks = tuple(check for check in without.checks if check.kind != "service")
    after = matrix_of(ct200(msgspec.structs.replace(without, checks=checks)), with_service.checks)
    assert len(after.checks) == len(with_service.checks) - 1
    place = Place("/root/venv_sglang", with_service.checks[-1])
    assert place_in(after, place, with_service) == ("/root/venv_sglang", after.checks[-1])


def test_a_click_finds_the_cell_that_is_drawn_there() -> None:
    shown = matrix(12)
    place = Place(shown.venvs[7], "record")
    plan = plan_matrix(shown, 78, 6, place, None)
    for number, row in enumerate(drawn(shown, plan, place, 78)[HEAD:]):
        found = row.find("▸")
        if found >= 0:
            assert plan.at(found + 2, number) == (7, shown.checks.index("record"))
    assert plan.at(0, 0) is None
    assert plan.at(77, 99) is None


# ---- the detail


def test_the_detail_tells_all_of_the_cell_and_its_age() -> None:
    shown = matrix_of(ct200(verdicts.not_ready()))
    rows = texts(draw_detail(shown, Place("/root/venv_sglang", "modules"), 78, 5, WALL))
    assert rows[0].startswith("── modules  ✗ fail  /root/venv_sglang ──")
    assert rows[0].endswith("12 s ago ──")
    assert " ".join(rows[1:4]) == verdicts.MISSING
    assert len(rows) == 5


def test_evidence_fills_the_room_and_the_rest_is_counted() -> None:
    shown = matrix_of(ct200(verdicts.not_ready()))
    place = Place("/root/venv_sglang", "find_spec")
    assert texts(draw_detail(shown, place, 198, 5, WALL))[-1] == "enter: all of it, 5 lines of evidence"
    rows = texts(draw_detail(shown, place, 198, 20, WALL))
    assert rows[-1] == "  ValueError: Either a revision or a version must be specified."
    assert rows[3].startswith('    File "<stdin>"')


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (None, "not verified: v"),
        (verdicts.begun(), "waiting for files, find_spec, service"),
        (verdicts.ready("ct200", "/root/venv_sglang"), "not looked at; V verifies deeply"),
        (verdicts.deep("ct200", "/root/venv_sglang"), "nothing was said of this"),
    ],
)
def test_a_cell_without_an_answer_says_why(verdict: Verdict | None, words: str) -> None:
    shown = matrix_of(ct200(*([verdict] if verdict else [])))
    assert words in texts(draw_detail(shown, Place("/root/venv_sglang", "driver"), 78, 5, WALL))


def test_a_check_that_was_not_made_of_an_environment_does_not_apply_there() -> None:
    shown = matrix_of(ct200(verdicts.ready("ct200", "/root/venv_sglang")))
    assert "does not apply here" in texts(
        draw_detail(shown, Place("/root/venv_sglang", "service x.service"), 78, 5, WALL)
    )


def test_a_stale_verdict_says_so_above_its_detail() -> None:
    shown = matrix_of(ct200(verdicts.stale("ct200", "/root/venv")))
    rows = texts(draw_detail(shown, Place("/root/venv", "origin"), 100, 5, WALL))
    assert rows[1] == "◐ was ready 5 min ago: files of the package changed; v verifies again"


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", SIZES)
def test_any_words_fit(text: str, size: tuple[int, int]) -> None:
    width, height = size
    verdict = Verdict("ct200", text, (Check(text, "fail", text, (text,) * 4),), at=WALL, stale=text)
    shown = matrix_of(ct200(verdict))
    place = Place(text, text)
    plan = plan_matrix(shown, width, max(1, height - HEAD - DETAIL), place, None)
    lines = draw_matrix(shown, plan, place, width) + draw_detail(shown, place, width, DETAIL, WALL)
    assert all(cells_of(line) <= width for line in lines)
    assert all(plain(line).isprintable() for line in lines)
    assert len(lines) <= HEAD + plan.rows + DETAIL
    page = draw_evidence_title("ct200", text, verdict.checks[0], verdict, width, WALL)
    page += draw_evidence(verdict.checks[0], width)
    assert all(cells_of(line) <= width and plain(line).isprintable() for line in page)


# ---- evidence


@pytest.mark.parametrize("cells", [3, 10, 76])
@pytest.mark.parametrize("text", [*TEXTS, "    indented " + "word " * 60, "a" * 10 + " " * 200 + "b"])
def test_folded_text_loses_nothing_but_spaces_at_the_folds(text: str, cells: int) -> None:
    parts = folded(text, cells)
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")
    assert columns(parts[0]) <= cells or cells < 2
    assert all(columns(part) <= max(2, cells - 2) for part in parts[1:])


def test_leading_spaces_of_evidence_are_kept() -> None:
    assert folded("    File x", 40) == ["    File x"]


@pytest.mark.parametrize("text", ["x" * 4096, "文" * 4096, "aé" * 2048, "e\u0301" * 2048, "word " * 819])
def test_the_longest_evidence_measures_no_character_twice_in_a_line(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def counted(part: str) -> int:
        measured.append(part)
        return columns(part)

    monkeypatch.setattr(evidence, "columns", counted)
    check = Check("record", "fail", "", tuple(f"{number}{text[:4090]}" for number in range(256)))
    lines = draw_evidence(check, 76)
    assert sum(len(plain(line)) for line in lines) > 256 * 4090
    assert len(measured) <= sum(len(set(line)) for line in check.evidence)
    assert len(measured) < 256 * 16


def test_no_column_or_row_jumps_between_two_steps() -> None:
    shown = matrix(12)
    place = Place(shown.venvs[0], shown.checks[0])
    plans = [plan_matrix(shown, 78, 5, place, None)]
    for step in [*["right"] * 11, *["left"] * 11]:
        place = moved(shown, place, "right" if step == "right" else "left")
        plans.append(plan_matrix(shown, 78, 5, place, plans[-1]))
    assert all(abs(one.left - other.left) <= 1 for one, other in pairwise(plans))
    assert {plan.column for plan in plans} == {plans[0].column}
