"""What `copy` asks, carries out, prints and exits with, over operations that do what the test says."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dflash_console.cli import app
from dflash_console.cli.consent import ALLOWABLE
from dflash_console.cli.ends import End, Unreached
from dflash_console.copies import Consent, FolderCount, Side, TargetPlan
from dflash_console.verdict import Check
from tests.cli import plans
from tests.cli.acting import Acting, Changed, typing

OTHER = Side("ct201", "/root/venv_sglang")
RUNNING, PRODUCTION = plans.RUNNING, plans.PRODUCTION
COPY = ("copy", "ct129", "ct200")


@pytest.fixture
def acting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Acting:
    return Acting(monkeypatch, tmp_path)


def answer(capfd: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    out, err = capfd.readouterr()
    return json.loads(out), err


def test_a_copy_that_goes_well_is_told_with_all_that_the_contract_names(
    acting: Acting, capfd: pytest.CaptureFixture[str]
) -> None:
    assert acting(*COPY, "--yes", "--json") == 0
    told, err = answer(capfd)
    (row,) = told["results"]
    assert (
        row.items()
        >= {
            "host": "ct200",
            "venv": "/root/venv_sglang",
            "state": "done",
            "added": 2,
            "changed": 1,
            "removed": 1,
            "bytes_sent": 250,
            "seconds": 1.25,
            "backup": "b1",
            "swap": "exchange",
        }.items()
    )
    assert row["verify"].items() >= {"host": "ct200", "ready": True}.items()
    assert row["from"] == {"host": "ct129", "venv": "/root/ml-env"}
    assert told["source"].items() >= {"host": "ct129", "version": "0.5.13", "tree": "tree of 0.5.13"}.items()
    assert told["source"]["verify"]["ready"] is True
    for words in ("looking", "2 added, 1 changed, 1 removed; 300B to send", "receiving 1/3 files", "done"):
        assert words in err
    assert "\x1b" not in err


def test_a_dry_run_tells_the_plan_and_carries_nothing_out(
    acting: Acting, capfd: pytest.CaptureFixture[str]
) -> None:
    acting.plan = plans.plan(plans.target(needs=(RUNNING, PRODUCTION)))
    assert acting(*COPY, "--dry-run", "--json") == 0
    (row,) = answer(capfd)[0]["results"]
    assert (row["state"], row["added"], row["changed"], row["removed"]) == ("planned", 2, 1, 1)
    assert [need["option"] for need in row["needs"]] == ["--allow running", "--confirm ct200"]
    assert acting(*COPY, "--dry-run") == 0
    out, _ = capfd.readouterr()
    for words in (
        "ct200:/root/venv_sglang  sglang 0.5.9, 44 files",
        "2 added, 1 changed, 1 removed, 40 the same; 300B to send",
        "sglang/srt/added",
        "--allow running: process 812",
        "torch==2.9",
        "✓ ready",
        "sglang-0.5.13.dist-info comes",
    ):
        assert words in out
    assert acting.carried == []


def test_a_dry_run_exits_as_the_copy_would_that_is_not_allowed_at_all(
    acting: Acting, capfd: pytest.CaptureFixture[str]
) -> None:
    acting.plan = plans.plan(plans.target(checks=(Check("versions", "fail", "python 3.11 and 3.12"),)))
    assert acting(*COPY, "--dry-run", "--json") == 4
    (row,) = answer(capfd)[0]["results"]
    assert row["state"] == "refused"
    assert "python 3.11 and 3.12" in row["detail"]


def test_without_a_terminal_and_without_yes_nothing_is_done_and_the_flags_are_named(
    acting: Acting, capfd: pytest.CaptureFixture[str]
) -> None:
    acting.plan = plans.plan(plans.target(needs=(RUNNING, PRODUCTION)))
    assert acting(*COPY, "--json") == 4
    told, err = answer(capfd)
    (row,) = told["results"]
    assert (row["state"], row["added"], row["bytes"]) == ("refused", 2, 300)
    assert "it needs --yes --allow running --confirm ct200" in row["detail"]
    assert "process 812" in row["detail"]
    assert row["detail"] in err
    assert acting.carried == []


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        ([], "--allow running --confirm ct200"),
        (["--allow", "running"], "--confirm ct200"),
        (["--confirm", "ct200"], "--allow running"),
        (["--confirm", "ct201", "--allow", "unverified"], "--allow running --confirm ct200"),
        (["--confirm", "ct200", "--allow", "running"], ""),
    ],
)
def test_yes_alone_covers_no_need(
    acting: Acting, capfd: pytest.CaptureFixture[str], flags: list[str], missing: str
) -> None:
    acting.plan = plans.plan(plans.target(needs=(RUNNING, PRODUCTION)))
    assert acting(*COPY, "--yes", "--json", *flags) == (4 if missing else 0)
    (row,) = answer(capfd)[0]["results"]
    assert (f"it needs {missing};" in row["detail"]) == bool(missing)
    assert len(acting.carried) == (0 if missing else 1)


def test_allow_takes_every_code_that_has_no_word_of_its_own() -> None:
    command = app.program.commands["copy"]
    (option,) = [parameter for parameter in command.params if parameter.name == "allow"]
    assert tuple(option.type.choices) == ALLOWABLE  # type: ignore[attr-defined]


@pytest.mark.parametrize("place", ["option", "config"])
def test_in_read_only_mode_nothing_is_carried_out(
    acting: Acting, capfd: pytest.CaptureFixture[str], place: str
) -> None:
    before = ["--read-only"] if place == "option" else []
    if place == "config":
        acting.config.write_text(acting.config.read_text() + "[console]\nread_only = true\n")
    for words in ((*COPY, "--yes", "--json"), ("rollback", "ct200", "--yes", "--json")):
        acting.plan = plans.plan(plans.target(look=plans.look(backups=(plans.backup(),))))
        assert acting(*before, *words) == 4
        (row,) = answer(capfd)[0]["results"]
        assert row["state"] == "refused"
        assert "read-only" in row["detail"]
    assert acting.carried == []
    assert acting(*before, *COPY, "--dry-run") == 0


# ---- several targets


def two(first: TargetPlan, second: TargetPlan | None = None) -> Any:
    return plans.plan(first, second or plans.target(OTHER))


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (("done", "done"), 0),
        (("done", "unreachable"), 3),
        (("refused", "unreachable"), 4),
        (("refused", "failed"), 1),
        (("undone", "done"), 1),
    ],
)
def test_the_exit_code_is_that_of_the_gravest_end(acting: Acting, states: tuple[str, str], code: int) -> None:
    async def work(target: TargetPlan, changed: Changed) -> None:
        changed(plans.run(target.side, states[target.side == OTHER]))

    acting.plan = two(plans.target())
    acting.work = work
    assert acting(*COPY, "ct201", "--yes") == code


def test_a_target_that_is_refused_or_not_reached_leaves_the_others_alone(
    acting: Acting, capfd: pytest.CaptureFixture[str]
) -> None:
    acting.plan = plans.plan(plans.target(OTHER))
    acting.places["ct200"] = Unreached(End("ct200"), "no route to host")
    assert acting(*COPY, "ct201", "--yes", "--json") == 3
    rows = answer(capfd)[0]["results"]
    assert [(row["host"], row["state"]) for row in rows] == [("ct200", "unreachable"), ("ct201", "done")]
    assert rows[0]["detail"] == "no route to host"
    assert (rows[0]["venv"], rows[0]["backup"], rows[0]["verify"]) == (None, None, None)


def test_a_source_that_is_not_reached_is_exit_3_and_one_without_a_package_is_refused(
    acting: Acting, capfd: pytest.CaptureFixture[str]
) -> None:
    acting.plan = plans.plan(problem="no sglang in /root/ml-env", look=None, verdict=None)
    assert acting(*COPY, "--yes", "--json") == 4
    (row,) = answer(capfd)[0]["results"]
    assert (row["state"], row["detail"]) == ("refused", "no sglang in /root/ml-env")
    acting.places["ct129"] = Unreached(End("ct129"), "no route to host")
    assert acting(*COPY, "--yes", "--json") == 3
    (row,) = answer(capfd)[0]["results"]
    assert (row["state"], row["detail"]) == ("unreachable", "ct129 was not reached: no route to host")


# ---- wrong usage


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("copy", "ct129"), "Missing argument 'TARGET...'"),
        (("copy", "ct129", "ct20"), "did you mean ct20"),
        (("copy", "ct12", "ct200"), "did you mean ct129?"),
        (("copy", "ct129", "ct200", "ct200"), "ct200 is named twice"),
        (("copy", "ct129", "ct200:/root/venv_sglang", "ct200"), "ct200:/root/venv_sglang is named twice"),
        (("copy", "ct129", "ct200:/a/", "ct200://a"), "ct200:/a is named twice"),
        (("copy", "ct200", "ct200"), "ct200 is source and target at once"),
        (("copy", "ct200:/root/venv_sglang", "ct200"), "is source and target at once"),
        (("copy", "ct129", "ct200:venv"), "'venv' is no whole path on the host; write ct200:/path"),
        (("copy", "ct129", "ct200:"), "is no whole path"),
        (("copy", "ct129", "ct200:/root/../etc"), "is no whole path"),
        (("copy", "ct129:./x", "ct200"), "is no whole path"),
        (
            ("copy", "ct129", "kpro6"),
            "kpro6 is only observed: nothing is changed there; to allow it, write role",
        ),
        (("copy", "ct129", "ct200", "--allow", "production"), "Invalid value for '--allow'"),
        (("rollback", "kpro6"), "kpro6 is only observed"),
        (("rollback", "ct20"), "did you mean ct20"),
        (("rollback", "ct200:x", "--list"), "is no whole path"),
        (("compare", "ct129", "ct129"), "ct129 is source and target at once"),
        (("compare", "ct129", "ct20"), "did you mean ct20"),
        (("compare", "ct129"), "Missing argument 'TARGET'"),
    ],
)
def test_wrong_usage_is_named_and_exits_with_2(
    acting: Acting, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    assert acting(*words) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert why in err
    assert acting.carried == []


# ---- asking


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        (["y\n", "ct200\n", "y\n"], 0),
        (["\n"], 4),
        (["n\n"], 4),
        (["y\n", "ct20\n"], 4),
        (["y\n", "y\n"], 4),
        (["y\n", "ct200\n", "\n"], 4),
        (["y\n", "ct200\n", "\x04"], 4),
        (["\x04"], 4),
    ],
)
def test_on_a_terminal_each_need_is_asked_for_and_no_answer_is_a_no(
    acting: Acting,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    answers: list[str],
    code: int,
) -> None:
    acting.plan = plans.plan(plans.target(needs=(RUNNING, PRODUCTION)))
    with typing(monkeypatch, *answers) as shown:
        assert acting(*COPY) == code
    assert (
        "process 812 (python -m sglang.launch_server) runs from there. Go on all the same? [y/N] " in shown[0]
    )
    assert [len(acting.carried), "not confirmed" in capfd.readouterr().out] == [code == 0, code == 4]
    if code == 0:
        assert "Copy from ct129:/root/ml-env onto ct200:/root/venv_sglang? [y/N] " in shown[0]
        ((_, consent),) = acting.carried
        assert consent == Consent(True, frozenset({"running"}), frozenset({"ct200"}))


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (("n\n",), "not confirmed: the answer was not yes (running)"),
        (("y\n", "ct20\n"), "not confirmed: what was typed is not ct200"),
        (("y\n", "ct200\n", "n\n"), "not confirmed: the answer was not yes\n"),
    ],
)
def test_a_target_that_was_not_confirmed_says_which_answer_was_lacking(
    acting: Acting,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    answers: tuple[str, ...],
    why: str,
) -> None:
    acting.plan = plans.plan(plans.target(needs=(RUNNING, PRODUCTION)))
    with typing(monkeypatch, *answers):
        assert acting(*COPY) == 4
    assert why in capfd.readouterr().out


def test_a_no_for_one_target_leaves_the_others(
    acting: Acting, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    acting.plan = two(plans.target(needs=(RUNNING,)))
    with typing(monkeypatch, "n\n", "y\n"):
        assert acting(*COPY, "ct201") == 4
    assert [side for side, _ in acting.carried] == [OTHER]
    assert "✓ ct201:/root/venv_sglang  done" in capfd.readouterr().out


def test_what_was_typed_before_the_question_is_no_answer(
    acting: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    with typing(monkeypatch, "\n", early="y\ny\n"):
        assert acting(*COPY) == 4
    assert acting.carried == []


# ---- Ctrl-C and other ends


def test_ctrl_c_waits_for_a_clean_end_and_says_where_each_target_stands(
    acting: Acting, capfd: pytest.CaptureFixture[str]
) -> None:
    async def work(target: TargetPlan, changed: Changed) -> None:
        if target.side == OTHER:
            changed(plans.run(OTHER))
            return
        changed(plans.run(target.side, "sending", files=1, all_files=3))
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            changed(
                plans.run(
                    target.side, "cancelled", detail="the stage is removed; the old package is in place"
                )
            )

    acting.plan = two(plans.target())
    acting.work = work
    assert acting(*COPY, "ct201", "--yes", "--json") == 130
    told, err = answer(capfd)
    assert [row["state"] for row in told["results"]] == ["cancelled", "done"]
    assert told["results"][0]["detail"] == "the stage is removed; the old package is in place"
    assert "cancelling: what was not swapped yet is left as it was" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_anything_was_begun_changes_nothing(
    acting: Acting, capfd: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    async def planning() -> None:
        signal.raise_signal(number)
        await asyncio.get_running_loop().create_future()

    acting.planning = planning
    before = signal.getsignal(number)
    assert acting(*COPY, "--yes", "--json") == 128 + number
    told, err = answer(capfd)
    assert [row["state"] for row in told["results"]] == ["cancelled"]
    assert "cancelled before anything was changed" in err
    assert acting.carried == []
    assert signal.getsignal(number) in (before, signal.default_int_handler)


def test_a_second_ctrl_c_does_not_wait(acting: Acting) -> None:
    async def work(target: TargetPlan, changed: Changed) -> None:
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            signal.raise_signal(signal.SIGINT)
            await asyncio.get_running_loop().create_future()

    acting.work = work
    assert acting(*COPY, "--yes") == 130


# ---- what hosts say


EVIL = "\x1b]0;x\x07\x1b[2J‮evil\x9b31m\n​"


@pytest.mark.parametrize("is_dry_run", [False, True])
def test_text_from_hosts_does_nothing_to_a_terminal(
    acting: Acting, capfd: pytest.CaptureFixture[str], is_dry_run: bool
) -> None:
    evil = Check(EVIL, "fail", EVIL, (EVIL,))
    look = plans.look(EVIL, backups=(plans.backup(id=EVIL, version=EVIL, in_use=EVIL),))
    need = msgspec.structs.replace(RUNNING, text=EVIL)
    difference = msgspec.structs.replace(plans.differs(), folders=(FolderCount(f"{EVIL}/{EVIL}", 1, 0, 0),))
    warned = msgspec.structs.replace(evil, state="warn")
    acting.plan = plans.plan(
        plans.target(look=look, difference=difference, checks=(warned,), needs=(need,), beside=(EVIL,)),
        plans.target(OTHER, problem=EVIL),
        look=look,
        verdict=plans.verdict(plans.SOURCE, evil),
    )

    async def work(target: TargetPlan, changed: Changed) -> None:
        verdict = plans.verdict(target.side, evil)
        changed(plans.run(target.side, "undone", detail=EVIL, checks=(evil,), notes=(EVIL,), verdict=verdict))

    acting.work = work
    flags = ["--dry-run"] if is_dry_run else ["--yes", "--allow", "running"]
    for words in (
        (*COPY, "ct201", *flags),
        ("rollback", "ct200", "--list"),
        ("rollback", "ct200", *flags[1:]),
    ):
        acting(*words)
        text = "".join(capfd.readouterr())
        assert "evil" in text
        assert not set(text) & set("\x1b\x07\x9b‮​")


def test_no_line_of_the_plan_is_wider_than_the_terminal(
    acting: Acting, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    long = "sglang/" + "/".join(f"folder{number}" for number in range(30))
    folders = (*plans.differs(50).folders, FolderCount(long, 0, 0, 1))
    difference = msgspec.structs.replace(plans.differs(50), folders=folders, more_folders=9)
    acting.plan = plans.plan(plans.target(difference=difference, needs=(RUNNING, PRODUCTION)))
    assert acting(*COPY, "--dry-run") == 0
    out = capfd.readouterr().out
    assert max(len(line) for line in out.splitlines()) <= 60
