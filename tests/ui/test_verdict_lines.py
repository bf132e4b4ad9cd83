"""Verdicts where there is little room: in panels, rows, heads and the filter."""

from __future__ import annotations

import msgspec
import pytest

from dflash_console.fleet import HostView
from dflash_console.ui.drawing.host_page import draw_host_page
from dflash_console.ui.drawing.line import columns, plain
from dflash_console.ui.drawing.panel import draw_panel
from dflash_console.ui.drawing.table import draw_row, plan_table
from dflash_console.ui.drawing.verdict_lines import ago, head_words, host_words, verdict_line
from dflash_console.ui.scene import HostScene, matching
from dflash_console.verdict import Check, Verdict
from tests.ui import builders, verdicts
from tests.ui.builders import MOMENT, WALL
from tests.ui.extremes import TEXTS
from tests.ui.looking import texts


def line(verdict: Verdict, width: int = 100) -> str:
    """The verdict's line as text."""
    return plain(verdict_line(verdict, width, WALL))


def host_of(view: HostView, *on_it: Verdict, is_marked: bool = False) -> HostScene:
    """A host with verdicts and without findings."""
    return HostScene(view, (), on_it, is_marked)


def panel_of(host: HostScene, width: int = 100) -> str:
    """The host's panel as text."""
    return "\n".join(texts(draw_panel(host, width, MOMENT, is_selected=False, room=60)))


def test_a_verdict_is_told_with_mark_word_reason_and_age() -> None:
    assert line(verdicts.ready()) == "✓ ready · 3 min ago"
    assert line(verdicts.begun()) == "◌ verifying: files, find_spec, service"
    assert line(verdicts.verifying()) == "◌ verifying: find_spec, service"
    assert line(verdicts.stale()) == "◐ was ready 5 min ago · files of the package changed · v again"
    assert line(verdicts.warned()).startswith("✓ ready, 1 to look at · origin: editable install from")
    failed = line(verdicts.not_ready())
    assert failed.startswith("✗ not ready · modules: missing: sglang.srt.speculative.dflash_worker")
    assert failed.endswith("… · +2 more · 12 s ago")


def test_a_deep_verdict_says_so_and_names_its_own_key() -> None:
    assert line(verdicts.deep()).startswith("✗ not ready, deep · symbols: sgl_kernel needs 7")
    old = msgspec.structs.replace(verdicts.deep(), stale="a unit changed")
    assert line(old) == "◐ was not ready 1 min ago · a unit changed · V again"
    awaited = msgspec.structs.replace(verdicts.deep(), waiting=("import",))
    assert line(awaited) == "◌ verifying deeply: import"


def test_a_verdict_that_lacks_a_needed_answer_names_it() -> None:
    silent = Verdict("a", "/v", tuple(check for check in verdicts.GOOD if check.name != "find_spec"), at=WALL)
    assert line(silent) == "✗ not ready · no answer about find_spec · just now"


@pytest.mark.parametrize("width", [0, 1, 8, 20, 36, 72])
@pytest.mark.parametrize("text", TEXTS)
def test_any_detail_fits_into_the_line(text: str, width: int) -> None:
    for state in ("pass", "warn", "fail", "unknown"):
        one = Verdict("a", "/v", (Check("origin", state, text, (text,)),), at=WALL, stale=text)
        for verdict in (one, msgspec.structs.replace(one, stale="")):
            assert columns(line(verdict, width)) <= width
            assert line(verdict, width).isprintable()


def test_the_mark_is_never_without_a_word() -> None:
    for verdict in (*verdicts.story(), verdicts.deep(), verdicts.warned(), None):
        words, _ = head_words(verdict)
        assert any(word in words for word in ("ready", "verif", "stale"))
        assert columns(words) <= 12


@pytest.mark.parametrize(
    ("seconds", "words"), [(-5, "just now"), (1.9, "just now"), (12, "12 s ago"), (180, "3 min ago")]
)
def test_ages_are_told_as_people_do(seconds: float, words: str) -> None:
    assert ago(seconds) == words


def test_a_panel_has_the_line_below_its_environment_and_nothing_without_a_verdict() -> None:
    view = builders.ct200()
    with_verdicts = panel_of(host_of(view, *verdicts.story()[1:]))
    rows = with_verdicts.splitlines()
    for path, words in (
        ("/root/venv_sglang", "✗ not ready"),
        ("/root/venv ", "◐ was ready"),
        ("/root/ml-env", "◌ verifying"),
    ):
        at = next(number for number, row in enumerate(rows) if f"ENV  {path}" in row)
        below = next(row for row in rows[at + 1 :] if "ENV  " in row or words in row or "SVC" in row)
        assert words in below
    without = panel_of(host_of(view))
    kept = [row for row in rows if not any(word in row for word in ("ready", "verifying"))]
    assert kept == without.splitlines()


def test_a_verdict_on_an_environment_that_was_not_found_is_shown_all_the_same() -> None:
    text = panel_of(host_of(builders.ct129(), verdicts.not_ready("ct129", "/opt/elsewhere")))
    at = next(number for number, row in enumerate(text.splitlines()) if "ENV  /opt/elsewhere" in row)
    assert "✗ not ready" in text.splitlines()[at + 1]


def test_the_hosts_page_has_the_line_too() -> None:
    rows = texts(draw_host_page(host_of(builders.ct129(), verdicts.ready()), 100, MOMENT))
    at = next(number for number, row in enumerate(rows) if "/root/ml-env" in row and "python 3.12" in row)
    assert rows[at + 1].strip() == "✓ ready · 3 min ago"


def test_a_row_of_the_table_says_the_worst_of_its_verdicts() -> None:
    view = builders.many(1)[0]
    for on_it, words in (
        ((verdicts.ready(),), "✓ ready  ok"),
        ((verdicts.warned(),), "! ready"),
        ((verdicts.ready(), verdicts.not_ready()), "✗ not ready"),
        ((verdicts.not_ready(), verdicts.not_ready()), "✗ 2 not ready"),
        ((verdicts.ready(), verdicts.begun(), verdicts.stale()), "◌ verifying"),
        ((verdicts.ready(), verdicts.stale()), "◐ 1 stale verdict"),
        ((), "ok"),
    ):
        host = host_of(view, *on_it)
        for width in (80, 200):
            assert words in plain(draw_row(host, plan_table([host], width), width, MOMENT, False))
    assert host_words(()) is None


def test_a_marked_host_has_a_mark_in_panel_and_row() -> None:
    view = builders.many(1)[0]
    host = host_of(view, is_marked=True)
    assert panel_of(host).splitlines()[0].startswith("╭─ ◆ gpu000 ·")
    plan = plan_table([host], 120)
    marked = plain(draw_row(host, plan, 120, MOMENT, True))
    assert marked.startswith("▸◆● gpu000")
    bare = plain(draw_row(host_of(view), plan, 120, MOMENT, True))
    assert marked.replace("◆", " ") == bare


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("not ready", ["b"]),
        ("NOT  READY target", ["b"]),
        ("stale verdict", ["c"]),
        ("ready", ["a", "b", "c"]),
        ("verifying", ["d"]),
        ("not installed", ["a"]),
        ("marked", ["e"]),
    ],
)
def test_the_filter_finds_hosts_by_their_verdicts(words: str, found: list[str]) -> None:
    def named(name: str, *on_it: Verdict, is_marked: bool = False) -> HostScene:
        view = builders.looping() if name == "a" else builders.many(1)[0]
        config = msgspec.structs.replace(view.config, name=name, role="target")
        return host_of(msgspec.structs.replace(view, config=config), *on_it, is_marked=is_marked)

    hosts = [
        named("a", verdicts.ready()),
        named("b", verdicts.not_ready()),
        named("c", verdicts.stale()),
        named("d", verdicts.begun()),
        named("e", is_marked=True),
    ]
    assert [host.name for host in matching(hosts, words)] == found


def test_hostile_words_of_a_verdict_are_harmless() -> None:
    bad = Verdict("a", "/root/ml-env", (Check(builders.HOSTILE, "fail", builders.HOSTILE),), at=WALL)
    text = panel_of(host_of(builders.ct129(), bad))
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "[bold]b[/]" in text
