"""The text of `status` for people."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest

from dflash_console.cli.status_text import Terminal, status_text, terminal
from dflash_console.config import HostConfig
from dflash_console.findings import findings_of
from dflash_console.fleet import HostView
from dflash_console.model import LinkStatus, Missing
from tests import pictures


def text_of(*views: HostView, to: Terminal | None = None) -> str:
    return status_text([(view, findings_of(view)) for view in views], to or Terminal())


def view(name: str = "ct200", **fields: Any) -> HostView:
    whole = {"link": LinkStatus("up", latency_ms=2.4), "snapshot": pictures.snapshot(), "unread": frozenset()}
    return HostView(config=HostConfig(name, role="target"), **{**whole, **fields})


STORY = pictures.snapshot(
    gpu=pictures.report(
        pictures.gpu(
            0, utilization=52, memory_used=71 << 30, processes=[pictures.process(unit="ddtree.service")]
        ),
        pictures.lost(1),
    ),
    venvs=[
        pictures.venv(package=pictures.package(nested=True)),
        pictures.venv("/root/venv", package=Missing("not_found", "no sglang")),
    ],
    units=[
        pictures.unit("sglang-dflash.service", load="not-found", active="inactive", sub="dead", since=None)
    ],
)


def test_every_fact_of_the_panel_is_there() -> None:
    text = text_of(view(snapshot=STORY))
    for fact in (
        "ct200 - dflash-train",
        "target",
        "up",
        "2.4 ms",
        "✗ critical gpu 1: lost",
        "-> reboot or power-cycle the host",
        "nested copy",
        "52%",
        "ddtree",
        "/root/ml-env",
        "torch 2.11.0+cu130",
        "sglang 0.5.11",
        "/root/venv",
        "no sglang",
        "not installed",
        "/dev/shm/Qwen3.6-27B",
    ):
        assert fact in text


def test_it_fits_into_eighty_columns() -> None:
    long = pictures.package(origin="/root/" + "deep/" * 40 + "sglang/__init__.py", dist_version="0.5.9")
    snapshot = pictures.snapshot(
        gpu=STORY.gpu,
        venvs=[pictures.venv("/root/" + "v" * 200, package=long), *STORY.venvs],
        units=STORY.units,
    )
    lines = text_of(view(snapshot=snapshot)).splitlines()
    assert max(map(len, lines)) <= 80


def test_there_is_no_escape_sequence_without_a_terminal() -> None:
    assert "\x1b" not in text_of(view(snapshot=STORY))


def test_colours_add_nothing_but_escape_sequences() -> None:
    coloured = text_of(view(snapshot=STORY), to=Terminal(has_colours=True))
    assert "\x1b[1;31m" in coloured
    bare = "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).split("\n"))
    assert bare == text_of(view(snapshot=STORY))


def test_a_host_that_was_not_reached_says_why_and_what_to_try() -> None:
    text = text_of(view(link=LinkStatus("unreachable", "connection refused"), snapshot=None))
    assert text.splitlines() == [
        "ct200  target  ✗ unreachable",
        "✗ critical link: connection refused",
        "           -> try: ssh ct200",
    ]


def test_hosts_are_parted_by_an_empty_line() -> None:
    down = LinkStatus("refused", "permission denied")
    text = text_of(view("a", link=down, snapshot=None), view("b", link=down, snapshot=None))
    assert "\n\nb  target" in text


def test_what_was_not_read_is_not_told_as_none() -> None:
    unread = pictures.snapshot(venvs=[], units=[])
    text = text_of(view(snapshot=unread, unread=frozenset(("venvs", "units"))))
    assert "none found" not in text
    assert "none watched" not in text


# ---- how wide


@pytest.mark.parametrize(("columns", "width"), [("100", 100), ("7", 40), ("300", 300)])
def test_off_a_terminal_the_width_is_that_of_columns(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal() == Terminal(width)


@pytest.mark.parametrize("columns", [None, "", "wide", "-5", "²"])
def test_off_a_terminal_nothing_is_cut_wrapped_or_spread(
    monkeypatch: pytest.MonkeyPatch, columns: str | None
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    long = "/models/" + "deep/" * 60 + "end"
    snapshot = pictures.snapshot(
        gpu=STORY.gpu,
        venvs=[pictures.venv(long, package=pictures.package(origin=f"{long}/sglang/__init__.py"))],
        paths=[pictures.path(long), pictures.path(f"{long}2", kind=Missing("not_found"))],
        units=[pictures.unit(problem=long, load="bad-setting"), *STORY.units],
    )
    text = text_of(view(snapshot=snapshot), to=terminal())
    assert "…" not in text
    for whole in (f"ENV  {long} ", f"{long}/sglang/__init__.py", f"PATH {long} ", f"PATH {long}2 "):
        assert whole in text
    assert max(map(len, text.splitlines())) < 2 * len(long)


# ---- several hosts


def test_several_hosts_end_with_a_summary_that_names_those_in_trouble() -> None:
    views = [
        view("a"),
        view("b", snapshot=STORY),
        view("c", link=LinkStatus("unreachable", "no route"), snapshot=None),
        view("d", link=LinkStatus("stale", "silent")),
    ]
    assert text_of(*views, to=Terminal(200)).split("\n\n")[-1] == (
        "4 hosts: 2 up, 1 stale, 1 unreachable; 3 critical (b, c), 2 warnings (b, d)\n"
    )
    assert max(map(len, text_of(*views).splitlines())) <= 80
    assert text_of(view("a"), view("b")).endswith("\n2 hosts: 2 up; nothing critical, no warning\n")
    assert "hosts:" not in text_of(view("a"))
