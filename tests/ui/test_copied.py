"""Where a package was copied from, what changed since, and a copy that is not settled, on panel and page."""

from __future__ import annotations

import msgspec
import pytest

from dflash_console.harmless import is_harmless
from dflash_console.model import Copied, Missing
from dflash_console.ui.drawing.line import columns, plain
from tests.ui import builders
from tests.ui.builders import HOSTILE, WALL, copied
from tests.ui.test_pages import page
from tests.ui.test_panels import drawn, line_with, text_of

CAME = "from ct129, 3 h 12 m ago"
KIM = Copied("ct129", "/root/ml-env", "0.5.11", WALL - 11_520, "kim@laptop", 0)


def test_a_panel_tells_where_a_package_came_from_and_how_much_changed() -> None:
    line = line_with(text_of(copied(), 100), CAME)
    assert f"sglang 0.5.11  {CAME}, 2 files changed since" in line
    inks = {text: ink for line in drawn(copied(), 100) for text, ink in line}
    assert inks[CAME] == "dim"
    assert inks[", 2 files changed since"] == "warn"
    assert "changed since" not in text_of(copied(copied=KIM))
    one = msgspec.structs.replace(KIM, changed=1)
    assert f"{CAME}, 1 file changed since" in text_of(copied(copied=one), 100)
    assert " ago" not in line_with(text_of(copied(copied=None), 100), "sglang 0.5.11")


def test_a_copy_whose_console_was_gone_before_it_was_verified_says_so() -> None:
    unseen = msgspec.structs.replace(KIM, verified=False)
    inks = {text: ink for line in drawn(copied(copied=unseen), 100) for text, ink in line}
    assert inks[", never verified by its console"] == "warn"
    assert "never verified by its console" in page(copied(copied=unseen))
    assert "never verified" not in text_of(copied(copied=KIM), 100)


@pytest.mark.parametrize("width", [40, 52, 60, 66, 80, 250])
@pytest.mark.parametrize(
    "came",
    [
        KIM,
        msgspec.structs.replace(KIM, changed=1_234_567),
        Copied(HOSTILE, HOSTILE, HOSTILE, 0.0, HOSTILE, Missing("hung", HOSTILE)),
        Copied("x" * 4096, "", "", Missing("error", HOSTILE), "", 1 << 62),
        Copied("", "", "", 1e11, ""),
    ],
)
def test_whatever_a_copy_left_fits_and_is_harmless(came: Copied, width: int) -> None:
    view = copied(copied=came, interrupted=HOSTILE)
    assert {columns(plain(line)) for line in drawn(view, width)} == {width}
    assert all(is_harmless(line) for line in (*text_of(view, width).split("\n"), *page(view).split("\n")))


def test_a_page_tells_all_of_a_copy() -> None:
    text = page(copied())
    assert f"{CAME}, 0.5.11, by kim@laptop, /root/ml-env" in text
    assert "2 files changed since" in text
    assert "not settled copy from ct129 by sam@desk since 2026-08-02 02:41:07" in " ".join(text.split())
    unknown = copied(copied=msgspec.structs.replace(KIM, changed=Missing("error", "no manifest.json")))
    assert "changes since: error: no manifest.json" in page(unknown)
    assert "copied" not in page(builders.ct129())


def test_a_copy_whose_record_does_not_tell_is_still_told() -> None:
    spoilt = Copied("", "", "", Missing("error", "provenance.json does not tell"), "")
    for text in (text_of(copied(copied=spoilt), 100), page(copied(copied=spoilt))):
        assert "copied" in text
        assert "error: provenance.json does not tell" in text


def test_a_copy_that_is_not_settled_is_a_finding_with_the_key_that_helps() -> None:
    text = text_of(copied(), 160)
    line = line_with(text, "not settled: ")
    assert line.startswith("│ ▲ /root/venv_sglang  not settled: copy from ct129 by sam@desk since ")
    assert "→ c or b finishes or undoes it" in text
