"""What speaks for and against a copy, check by check."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_console.config import HostConfig
from dflash_console.copies import Backup, Holder, Look, Unsettled
from dflash_console.operations.preflight import (
    Question,
    beside,
    needs_of,
    preflight,
    roll_back_checks,
)
from dflash_console.verdict import Check
from tests.operations.copies import SOURCE, TARGET, entry, failed, look, ready

HOST = HostConfig("ct200", role="target")
SO = "cpython-311-x86_64-linux-gnu"
FILES = [entry("sglang/__init__.py"), entry(f"sglang/srt/_core.{SO}.so"), entry("sglang/srt/x.abi3.so")]
NAMES = (
    "source",
    "names",
    "role",
    "place",
    "editable",
    "versions",
    "compiled",
    "pins",
    "mount",
    "filesystem",
    "links",
    "space",
    "inodes",
    "writable",
    "importers",
    "lock",
    "interrupted",
)


def question(
    target: Look | None = None, source: Look | None = None, host: HostConfig | None = None, **fields: Any
) -> Question:
    given: dict[str, Any] = {"entries": FILES, "verdict": ready(), "pins": Check("pins", "pass", "12 met")}
    given.update(fields)
    return Question(
        source=SOURCE,
        source_look=source or look(version="0.5.23"),
        side=TARGET,
        look=target or look(),
        host=host or HOST,
        **given,
    )


def checks(asked: Question) -> dict[str, Check]:
    return {check.name: check for check in preflight(asked)}


def needs(asked: Question) -> dict[str, str]:
    found = needs_of(
        asked.side, asked.host, asked.look, preflight(asked), verdict=asked.verdict, source=asked.source
    )
    return {need.code: need.text for need in found}


def test_where_there_is_no_environment_nothing_is_said_of_its_disk() -> None:
    nowhere = look(state="broken", site="", problem="no such folder", free=0, free_inodes=0, filesystem="")
    found = checks(question(nowhere))
    assert [name for name, check in found.items() if check.state == "fail"] == ["place"]
    disk = ("mount", "filesystem", "links", "space", "inodes", "writable")
    assert {found[name].state for name in disk} == {"unknown"}


def test_an_ordinary_copy_passes_every_check_and_needs_nothing_more() -> None:
    found = checks(question())
    assert tuple(found) == NAMES
    assert {check.state for check in found.values()} == {"pass"}, found
    assert all(check.detail for check in found.values())
    assert needs(question()) == {}


CASES: list[tuple[str, str, dict[str, Any], str]] = [
    ("place", "pass", {"state": "absent", "version": ""}, "nothing is there yet"),
    ("place", "warn", {"state": "namespace", "problem": "2 files"}, "leftovers"),
    ("place", "fail", {"state": "module"}, "single file sglang.py"),
    ("place", "fail", {"state": "outside", "problem": "a .pth line"}, "another place"),
    ("place", "fail", {"state": "broken", "problem": "no pyvenv.cfg"}, "no pyvenv.cfg"),
    ("editable", "fail", {"state": "editable", "problem": "/sgl-workspace"}, "uninstall it there"),
    ("versions", "warn", {"python": "3.12.1"}, "Python 3.12.1"),
    ("versions", "warn", {"python": ""}, "could not be told"),
    ("compiled", "fail", {"soabi": "cpython-312-x86_64-linux-gnu"}, f"made for {SO}"),
    ("compiled", "fail", {"soabi": "cpython-311-aarch64-linux-gnu"}, f"made for {SO}"),
    ("compiled", "warn", {"glibc": "2.31"}, "glibc 2.31, the source 2.36"),
    ("compiled", "warn", {"glibc": ""}, "could not be told"),
    ("compiled", "warn", {"soabi": ""}, "could not be told"),
    ("mount", "fail", {"mount": "/site/sglang"}, "unmount it"),
    ("filesystem", "warn", {"filesystem": "nfs4"}, "two renames"),
    ("filesystem", "warn", {"filesystem": "fuse.sshfs"}, "two renames"),
    ("filesystem", "warn", {"filesystem": "overlay"}, "expected in one step"),
    ("filesystem", "warn", {"filesystem": "overlay", "layer": "lower"}, "copied aside and removed before"),
    ("filesystem", "warn", {"filesystem": "overlay", "layer": "unknown"}, "can't be told there"),
    ("filesystem", "fail", {"is_same_filesystem": False}, "two filesystems"),
    ("links", "pass", {"hard_linked": 12}, "12 files with other names"),
    ("space", "fail", {"free": 100}, "make room"),
    ("inodes", "fail", {"free_inodes": 3}, "3 inodes are free"),
    ("inodes", "pass", {"free_inodes": None}, "no limit"),
    ("writable", "fail", {"is_writable": False, "denied": "owned by root"}, "owned by root"),
    ("importers", "warn", {"importers": ("process 7 (python)",)}, "process 7 (python)"),
    (
        "lock",
        "fail",
        {"lock": Holder("kim@laptop", 3600.0, "copy from ct129")},
        "kim@laptop (copy from ct129",
    ),
    (
        "interrupted",
        "warn",
        {"unsettled": Unsettled("copy by kim", "swapping", 1.0, "will be undone")},
        "will be undone",
    ),
]


@pytest.mark.parametrize(("name", "state", "fields", "words"), CASES)
def test_what_is_odd_at_the_target_is_one_check_with_its_reason(
    name: str, state: str, fields: dict[str, Any], words: str
) -> None:
    found = checks(question(look(**fields)))
    assert found[name].state == state
    assert words in found[name].detail
    others = {check.name: check.state for check in found.values() if check.state == "fail"}
    assert set(others) <= {name}


def test_compiled_files_of_another_platform_without_a_tag_do_not_fit() -> None:
    asked = question(look(soabi="cpython-311-aarch64-linux-gnu"), entries=[entry("sglang/x.so")])
    assert checks(asked)["compiled"].state == "fail"


def test_a_compiled_file_that_serves_nobody_at_the_source_forbids_nothing() -> None:
    files = [*FILES, entry("sglang/y.cpython-39-x86_64-linux-gnu.so")]
    assert checks(question(entries=files))["compiled"].state == "pass"


def test_pure_python_fits_everywhere() -> None:
    asked = question(look(soabi="cpython-312-aarch64-linux-musl", glibc=""), entries=FILES[:1])
    assert checks(asked)["compiled"].state == "pass"


@pytest.mark.parametrize(("given", "state"), [("pass", "pass"), ("warn", "warn"), ("fail", "warn")])
def test_pins_that_are_not_met_are_listed_and_forbid_nothing(given: Any, state: str) -> None:
    pins = Check("pins", given, "needs torch==2.9.1, has 2.11.0", ("needs torch==2.9.1, has 2.11.0",))
    found = checks(question(pins=pins))["pins"]
    assert (found.state, found.evidence) == (state, pins.evidence)
    assert "pins" not in needs(question(pins=pins))


def test_a_source_that_can_not_be_named_whole_is_not_copied() -> None:
    asked = question(source=look(strange=("sglang/pipe: a pipe, no file",)))
    assert checks(asked)["names"].state == "fail"
    assert "a pipe" in checks(asked)["names"].detail
    followed = question(source=look(followed=("sglang/data -> /srv/data",)))
    assert checks(followed)["names"].state == "warn"


def test_a_source_that_pip_knows_twice_is_not_copied() -> None:
    twice = ("sglang-0.5.9.dist-info", "sglang-0.5.23.dist-info")
    found = checks(question(source=look(dist_infos=twice)))["names"]
    assert found.state == "fail"
    assert all(name in found.detail for name in twice)


def test_an_environment_on_two_filesystems_is_refused_and_not_asked_about() -> None:
    asked = question(look(is_same_filesystem=False))
    assert checks(asked)["filesystem"].state == "fail"
    assert needs(asked) == {}


def test_a_source_that_is_being_changed_is_not_copied() -> None:
    assert checks(question(source=look(lock=Holder("kim@laptop", 1.0))))["source"].state == "fail"
    left = Unsettled("copy by kim", "swapping", 1.0, "will be undone")
    found = checks(question(source=look(unsettled=left)))["source"]
    assert found.state == "fail"
    assert "settle it first" in found.detail


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"host": HostConfig("ct200", role="source")}, "onto_source", "role source"),
        ({"host": HostConfig("ct200", role="target", production=True)}, "production", "type its name"),
        ({"verdict": failed()}, "unverified", "missing: dflash_info"),
        ({"verdict": None}, "unverified", "could not be verified"),
        ({"units": ("sglang.service",)}, "running", "unit sglang.service"),
        ({"target": look(importers=("process 7 (python)",))}, "running", "process 7"),
        ({"target": look(filesystem="nfs4")}, "warned", "nfs4"),
        ({"target": look(filesystem="overlay", layer="lower")}, "layer", "finds a part of it or none"),
        ({"target": look(filesystem="overlay", layer="unknown")}, "layer", "can't be told"),
        ({"target": look(python="3.12.1"), "entries": FILES[:1]}, "python", "Python 3.12.1"),
        ({"target": look(python=""), "entries": FILES[:1]}, "python", "could not be told"),
        (
            {"source": look(restless=("sglang/a.py",))},
            "unverified",
            "changed while it was read (sglang/a.py)",
        ),
    ],
)
def test_what_an_operator_may_decide_needs_a_yes_of_its_own(
    fields: dict[str, Any], code: str, words: str
) -> None:
    found = needs(question(**fields))
    assert list(found) == [code]
    assert words in found[code]


def test_an_overlay_alone_is_a_warning_that_needs_no_yes() -> None:
    asked = question(look(filesystem="overlay"))
    assert checks(asked)["filesystem"].state == "warn"
    assert needs(asked) == {}


def test_a_package_that_has_to_be_copied_aside_needs_room_for_a_second_one() -> None:
    one = checks(question(look(filesystem="overlay", size=50 << 20, files=1_000)))
    two = checks(question(look(filesystem="overlay", size=50 << 20, files=1_000, layer="lower")))
    assert "second" not in one["space"].detail
    assert "53.9 MiB of it to copy the old package aside" in two["space"].detail
    needed = {found["inodes"].detail.partition(" ")[0] for found in (one, two)}
    assert sorted(int(number.replace(",", "")) for number in needed)[1] > 1_000
    assert (
        checks(question(look(layer="lower", size=50 << 20, files=1_000, free=40 << 20)))["space"].state
        == "fail"
    )
    back = roll_back_checks(TARGET, HOST, look(layer="lower", size=50 << 20, free=40 << 20), (), "")
    assert {check.name: check.state for check in back}["space"] == "fail"


def test_modules_without_source_are_only_for_the_python_that_made_them() -> None:
    files = [*FILES[:1], entry("sglang/secret.pyc")]
    assert checks(question(entries=files))["compiled"].state == "pass"
    found = checks(question(look(python="3.12.1"), entries=files))["compiled"]
    assert (found.state, found.evidence) == ("fail", ("sglang/secret.pyc",))
    assert "1 module without source" in found.detail


def test_it_is_said_whether_the_source_changed_while_it_was_read() -> None:
    assert checks(question())["source"].detail.endswith("nothing changed while it was read")
    found = checks(question(source=look(restless=("sglang/a.py", "sglang/b.py"))))["source"]
    assert (found.state, found.evidence) == ("warn", ("sglang/a.py", "sglang/b.py"))
    both = checks(question(source=look(restless=("sglang/a.py",)), verdict=failed()))["source"]
    assert "is not ready itself" in both.detail
    assert "and it changed while it was read (sglang/a.py)" in both.detail


def test_a_host_that_is_only_observed_is_not_changed() -> None:
    host = HostConfig("ct200")
    assert checks(question(host=host))["role"].state == "fail"
    (role,) = [each for each in roll_back_checks(TARGET, host, look(), (), "") if each.name == "role"]
    assert role.state == "fail"
    assert 'role = "target"' in role.detail


def test_all_needs_are_told_at_once() -> None:
    host = HostConfig("ct200", role="source", production=True)
    asked = question(look(filesystem="nfs"), host=host, verdict=failed(), units=("a.service",))
    assert list(needs(asked)) == ["onto_source", "running", "unverified", "warned", "production"]


def test_what_goes_along_and_what_goes_away_is_said() -> None:
    ours, theirs = look(dist_infos=("sglang-0.5.23.dist-info",)), look()
    lines = beside(question(theirs, ours))
    assert any(line.startswith("copied beside it: sglang-0.5.23.dist-info") for line in lines)
    assert "taken away with the old one: sglang-0.5.9.dist-info" in lines


BACKUPS = (
    Backup("b3", 3.0, "0.5.23", 9, 9, "rollback"),
    Backup("b2", 2.0, "0.5.9", 5, 5, "copy"),
    Backup("b1", 1.0, "0.5.8", 4, 4, "copy"),
)


@pytest.mark.parametrize(
    ("backups", "wanted", "state", "words"),
    [
        (BACKUPS, "", "pass", "b2: 0.5.9"),
        (BACKUPS, "b1", "pass", "b1: 0.5.8"),
        (BACKUPS, "b9", "fail", "no backup b9; there are: b3, b2, b1"),
        (BACKUPS[:1], "", "fail", "no backup that a copy has left"),
        ((), "", "fail", "no backup is kept on ct200:/root/venv_sglang: there is nothing to put back"),
    ],
)
def test_a_rollback_needs_its_backup(
    backups: tuple[Backup, ...], wanted: str, state: str, words: str
) -> None:
    found = {check.name: check for check in roll_back_checks(TARGET, HOST, look(backups=backups), (), wanted)}
    assert found["backup"].state == state
    assert words in found["backup"].detail


def test_a_rollback_below_a_service_or_onto_a_source_needs_its_yes_too() -> None:
    seen = look(backups=BACKUPS)
    host = HostConfig("ct200", role="source", production=True)
    found = roll_back_checks(TARGET, host, seen, ("sglang.service",), "")
    codes = [need.code for need in needs_of(TARGET, host, seen, found, verdict=None, source=None)]
    assert codes == ["onto_source", "running", "production"]
