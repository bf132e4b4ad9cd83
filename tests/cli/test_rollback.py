"""`rollback`: what it lists, asks for, puts back and says when there is nothing to put back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dflash_console.cli.ends import End, Unreached
from dflash_console.copies import Backup, CopyPlan, TargetPlan, Unsettled
from tests.cli import plans
from tests.cli.acting import Acting, Changed, typing

UNSETTLED = Unsettled(
    "copy from ct129 by kim@laptop", "swapping", 1e9, "will be undone: the old package is in place"
)


@pytest.fixture
def acting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Acting:
    acting = Acting(monkeypatch, tmp_path)
    backups = (plans.backup(3, reason="rollback"), plans.backup(2, version="0.5.7"), plans.backup(1))
    acting.plan = keeping(*backups)
    return acting


def keeping(*backups: Backup, unsettled: Unsettled | None = None) -> CopyPlan:
    plan = plans.target(
        look=plans.look(backups=backups, unsettled=unsettled), difference=None, checks=(), beside=()
    )
    return plans.plan(plan)


def test_the_newest_that_a_copy_replaced_is_put_back(
    acting: Acting, capfd: pytest.CaptureFixture[str]
) -> None:
    assert acting("rollback", "ct200", "--yes", "--json") == 0
    out, err = capfd.readouterr()
    (row,) = json.loads(out)["results"]
    assert (row["state"], row["swap"], row["from"]) == ("done", "exchange", None)
    assert "0.5.9 is to be replaced by 0.5.7 of backup b2" in err
    assert acting.backups == ["b2"]


def test_another_one_is_named_by_its_id(acting: Acting, capfd: pytest.CaptureFixture[str]) -> None:
    assert acting("rollback", "ct200", "--yes", "--backup", "b1") == 0
    assert acting.backups == ["b1"]
    assert "✓ ct200:/root/venv_sglang  done" in capfd.readouterr().out
    assert acting("rollback", "ct200", "--yes", "--backup", "b9") == 1
    assert "no backup b9 is there; there are: b3, b2, b1" in capfd.readouterr().out


@pytest.mark.parametrize("as_json", [False, True])
def test_no_backup_is_exit_1_with_words(
    acting: Acting, capfd: pytest.CaptureFixture[str], as_json: bool
) -> None:
    acting.plan = keeping(plans.backup(3, reason="rollback"))
    assert acting("rollback", "ct200", "--yes", *(["--json"] if as_json else [])) == 1
    out, _ = capfd.readouterr()
    assert "a copy replaced none of the backups there; name the one to put back with --backup ID: b3" in out
    if as_json:
        assert json.loads(out)["results"][0]["state"] == "failed"
    assert acting.carried == []


@pytest.mark.parametrize("words", [(), ("--backup", "b9")])
def test_a_place_without_any_backup_is_told_so(
    acting: Acting, capfd: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    acting.plan = keeping()
    assert acting("rollback", "ct200", "--yes", *words) == 1
    assert "no backup is kept there: there is nothing to put back" in capfd.readouterr().out


def test_a_copy_that_was_broken_off_is_settled_first_and_said(
    acting: Acting, capfd: pytest.CaptureFixture[str]
) -> None:
    async def settle(target: TargetPlan, changed: Changed) -> None:
        note = "the copy from ct129 by kim@laptop was undone"
        changed(plans.run(target.side, "failed", detail="no backup is there", notes=(note,), verdict=None))

    acting.plan = keeping(unsettled=UNSETTLED)
    acting.work = settle
    assert acting("rollback", "ct200", "--yes") == 1
    out, err = capfd.readouterr()
    assert "broken off at `swapping`: will be undone: the old package is in place" in err
    assert "the copy from ct129 by kim@laptop was undone" in out
    assert acting.backups == [""]


def test_it_is_asked_for_and_refused_without_a_terminal(
    acting: Acting, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert acting("rollback", "ct200", "--json") == 4
    (row,) = json.loads(capfd.readouterr().out)["results"]
    assert row["detail"] == "not confirmed: it needs --yes"
    assert acting.carried == []
    with typing(monkeypatch, "y\n") as shown:
        assert acting("rollback", "ct200") == 0
    assert "Put it back into ct200:/root/venv_sglang? [y/N] " in shown[0]
    assert "b2  sglang 0.5.7, 40 files" in shown[0]


def test_the_list_has_every_backup_with_what_is_known_of_it(
    acting: Acting, capfd: pytest.CaptureFixture[str]
) -> None:
    kept = plans.backup(2, provenance=plans.provenance(), in_use="process 7 (python)")
    acting.plan = keeping(kept, plans.backup(1, version="", files=0, size=0))
    assert acting("rollback", "ct200", "--list", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["host"], told["venv"]) == ("ct200", "/root/venv_sglang")
    first, second = told["backups"]
    assert first == {
        "id": "b2",
        "at": "2001-09-09T01:46:42Z",
        "version": "0.5.8",
        "files": 40,
        "size": 4000,
        "reason": "copy",
        "from": {
            "host": "kpro6",
            "venv": "/root/x",
            "version": "0.5.8",
            "at": "2001-09-09T01:46:40Z",
            "by": "kim@laptop",
        },
        "in_use": "process 7 (python)",
    }
    assert (second["version"], second["from"], second["in_use"]) == (None, None, None)
    assert acting("rollback", "ct200", "--list") == 0
    out = capfd.readouterr().out
    assert "b2  sglang 0.5.8, 40 files, 3.9K, replaced " in out
    assert "had come from kpro6:/root/x, in use by process 7 (python)" in out
    assert "b1  no sglang, 0 files" in out


def test_an_empty_list_says_so(acting: Acting, capfd: pytest.CaptureFixture[str]) -> None:
    acting.plan = keeping()
    assert acting("rollback", "ct200", "--list") == 0
    out, err = capfd.readouterr()
    assert (out, "no backup is kept there" in err) == ("", True)


@pytest.mark.parametrize("words", [("--list",), ("--yes", "--json")])
def test_a_host_that_is_not_reached_is_exit_3(
    acting: Acting, capfd: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    acting.places["ct200"] = Unreached(End("ct200"), "no route to host")
    assert acting("rollback", "ct200", *words) == 3
    assert "no route to host" in "".join(capfd.readouterr())
