"""`compare`: what differs, in text and JSON, and the exit code of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dflash_console.cli import compare
from dflash_console.cli.compare import Compared
from dflash_console.cli.ends import End, Unreached
from dflash_console.copies import Comparison
from dflash_console.fleet import HostView
from tests.cli import plans
from tests.cli.acting import Acting
from tests.cli.test_status import view

Found = tuple[object, object, Comparison | None, str]
DIFFERENT: Found = (plans.look("0.5.13"), plans.look(), plans.difference(20, 1, 3), "")
EQUAL: Found = (plans.look(), plans.look(), Comparison((), (), (), 44), "")


@pytest.fixture
def acting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Acting:
    acting = Acting(monkeypatch, tmp_path)
    finds(monkeypatch, DIFFERENT)
    return acting


def finds(monkeypatch: pytest.MonkeyPatch, found: Found, state: str = "up") -> None:
    """What a comparison gives, and the state of both links after it."""

    async def ask(*_: object) -> Found:
        return found

    def view_of(fleet: object, name: str) -> HostView:
        return view(name, state)

    monkeypatch.setattr(compare, "compare", ask)
    monkeypatch.setattr(compare, "view_of", view_of)


def test_what_differs_is_one_object_and_exit_1(acting: Acting, capfd: pytest.CaptureFixture[str]) -> None:
    assert acting("compare", "ct129", "ct200:/root/venv", "--json") == 1
    told = json.loads(capfd.readouterr().out)
    assert told["source"].items() >= {"host": "ct129", "version": "0.5.13", "tree": "tree of 0.5.13"}.items()
    assert told["target"].items() >= {"host": "ct200", "venv": "/root/venv", "version": "0.5.9"}.items()
    assert [len(told[word]) for word in ("added", "changed", "removed")] == [20, 1, 3]
    assert told["changed"] == ["sglang/srt/changed/000.py"]
    assert (told["same"], told["problem"]) == (40, None)


def test_the_text_has_the_counts_the_folders_and_the_first_files(
    acting: Acting, capfd: pytest.CaptureFixture[str]
) -> None:
    assert acting("compare", "ct129", "ct200") == 1
    out = capfd.readouterr().out
    for words in (
        "source  ct129:/root/venv_sglang  sglang 0.5.13, 44 files",
        "20 added, 1 changed, 3 removed, 40 the same",
        "sglang/srt/added    20 added",
        "+ sglang/srt/added/011.py",
        "  8 more added",
        "~ sglang/srt/changed/000.py",
        "- sglang/srt/removed/002.py",
    ):
        assert words in out
    assert "added/012.py" not in out


def test_equal_packages_are_exit_0(
    acting: Acting, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(monkeypatch, EQUAL)
    assert acting("compare", "ct129", "ct200") == 0
    assert "no difference, 44 the same" in capfd.readouterr().out


def test_packages_that_are_the_same_but_for_what_is_not_listed_are_not_equal(
    acting: Acting, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(monkeypatch, (*EQUAL[:3], "ct129 holds what can't be compared: sglang/pipe: a pipe, no file"))
    assert acting("compare", "ct129", "ct200", "--json") == 1
    out, err = capfd.readouterr()
    told = json.loads(out)
    assert (told["equal"], told["same"]) == (False, 44)
    assert "sglang/pipe" in told["problem"]
    assert "can't be compared whole: " in err


@pytest.mark.parametrize(("state", "code"), [("up", 1), ("unreachable", 3)])
def test_what_can_not_be_told_is_no_yes_and_a_lost_link_is_exit_3(
    acting: Acting,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    code: int,
) -> None:
    finds(monkeypatch, (plans.look(), None, None, "ct200: the file system is gone"), state)
    assert acting("compare", "ct129", "ct200", "--json") == code
    out, err = capfd.readouterr()
    assert json.loads(out)["problem"] == "ct200: the file system is gone"
    assert json.loads(out)["equal"] is False
    assert "can't be compared: ct200: the file system is gone" in err


def test_a_host_that_is_not_reached_is_exit_3(acting: Acting, capfd: pytest.CaptureFixture[str]) -> None:
    acting.places["ct200"] = Unreached(End("ct200"), "no route to host")
    assert acting("compare", "ct129", "ct200", "--json") == 3
    told = json.loads(capfd.readouterr().out)
    assert told["target"] == {
        "host": "ct200",
        "venv": None,
        "version": None,
        "tree": None,
        "files": None,
        "size": None,
    }
    assert told["problem"] == "ct200: no route to host"


def test_an_empty_answer_is_never_equal() -> None:
    assert compare.exit_code(Compared(plans.SOURCE, plans.TARGET)) == 1
