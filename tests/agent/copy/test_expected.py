"""What a console may not have laid into an environment."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from dflash_console.agent.copy.expected import MOST_FILES, Expected
from dflash_console.agent.copy.place import Fault

SUM = hashlib.sha256(b"x").hexdigest()
NONE = hashlib.sha256(b"").hexdigest()
INIT = ["sglang/__init__.py", "file", 1, 0o644, SUM]


def file(path: str, size: object = 1, mode: object = 0o644, content: object = SUM) -> list[Any]:
    return [path, "file", size, mode, content]


def link(path: str, target: str) -> list[Any]:
    return [path, "link", len(target), 0o777, target]


def taken(*entries: object) -> Expected:
    expected = Expected("sglang")
    expected.add([INIT, *entries])
    expected.finish()
    return expected


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/sglang/x.py",
        "sglang/../../x.py",
        "sglang/..",
        "..",
        "../sglang/x.py",
        "sglang/./x.py",
        "sglang//x.py",
        "sglang/",
        "sglang",
        "",
        "x.py",
        "sitecustomize.py",
        "other/x.py",
        "sglang-0.5.9.data/x.py",
        "sglang_router-1.0.dist-info/RECORD",
        "~glang/x.py",
        ".dflash-console/x.py",
        "sglang/__pycache__/x.pyc",
        "sglang/a\0b.py",
        "sglang/a\nb.py",
        "sglang/a\x1b[2Jb.py",
        "sglang/a\udce9.py",
        "sglang/" + "a" * 256,
        "sglang/" + "a/" * 1600 + "x.py",
        "sglang/" + "a/" * 63 + "x.py",
        7,
        None,
    ],
)
def test_a_path_that_a_package_may_not_hold_is_refused(path: Any) -> None:
    with pytest.raises(Fault):
        taken(file(path))


@pytest.mark.parametrize(
    "entry",
    [
        ["sglang/x", "file", 1, 0o644],
        ["sglang/x", "device", 1, 0o644, SUM],
        ["sglang/x", "folder", 1, 0o755, SUM],
        ["sglang/x", None, 1, 0o755, SUM],
        file("sglang/x", mode=0o4755),
        file("sglang/x", mode=0o2755),
        file("sglang/x", mode=0o666),
        file("sglang/x", mode=0o777),
        file("sglang/x", mode=True),
        file("sglang/x", size=-1),
        file("sglang/x", size=1.5),
        file("sglang/x", size=True),
        file("sglang/x", size=1 << 70),
        file("sglang/x", size=0),
        file("sglang/x", content=NONE),
        file("sglang/x", content="no hash"),
        file("sglang/x", content=SUM.upper()),
        file("sglang/x", content=None),
        "sglang/x",
        {},
    ],
)
def test_an_entry_that_makes_no_sense_is_refused(entry: object) -> None:
    with pytest.raises(Fault):
        taken(entry)


@pytest.mark.parametrize(
    "entries",
    [
        [file("sglang/x"), file("sglang/x")],
        [file("sglang/x"), link("sglang/x", "__init__.py")],
        [file("sglang/x"), file("sglang/x/y")],
        [file("sglang/x/y"), file("sglang/x")],
        [link("sglang/x", "srt"), file("sglang/srt/y"), file("sglang/x/y")],
        [file("sglang-0.5.9.dist-info/RECORD"), file("sglang-0.5.8.dist-info/RECORD")],
        [file("sglang-0.5.9.dist-info")],
    ],
)
def test_entries_that_can_not_be_together_are_refused(entries: list[object]) -> None:
    with pytest.raises(Fault):
        taken(*entries)


@pytest.mark.parametrize(
    "target",
    [
        "/etc/passwd",
        "../x",
        "../../x",
        "../sglang/__init__.py",
        "missing.py",
        "",
        ".",
        "srt/../../x",
        "circle",
        "self",
        "linked/../__init__.py",
        "linked/x.py",
        "a\0b",
    ],
)
def test_a_link_that_leaves_the_tree_or_leads_nowhere_is_refused(target: str) -> None:
    rest = [
        file("sglang/srt/deep/x.py"),
        link("sglang/linked", "srt/deep"),
        link("sglang/circle", "self"),
    ]
    taken(*rest[:2])
    with pytest.raises(Fault):
        taken(*rest, link("sglang/self", target))


@pytest.mark.parametrize("target", ["__init__.py", "srt", "srt/../srt/x.py", "./srt/x.py", "chain"])
def test_a_link_inside_the_package_is_taken(target: str) -> None:
    expected = taken(file("sglang/srt/x.py"), link("sglang/chain", "srt/x.py"), link("sglang/it", target))
    assert len(expected.links) == 2
    assert list(expected.folders) == ["sglang", "sglang/srt"]


def test_a_tree_without_the_package_itself_is_refused() -> None:
    expected = Expected("sglang")
    expected.add([file("sglang/x.py"), file("sglang-0.5.9.dist-info/RECORD")])
    with pytest.raises(Fault, match=r"no sglang/__init__\.py"):
        expected.finish()


def test_a_tree_of_as_many_folders_as_a_path_may_have_is_taken_and_one_more_is_not() -> None:
    expected, path = Expected("sglang"), "sglang"
    for _ in range(62):
        path += "/a"
        expected.add([file(f"{path}/x.py")])
    # Its folder is known, so that the path is not looked at wholly.
    expected.add([file(f"{path}/y.py")])
    with pytest.raises(Fault, match="nested more than 64"):
        expected.add([file(f"{path}/a/x.py")])


def test_the_dist_info_may_come_first_and_in_any_spelling() -> None:
    expected = Expected("my_package")
    expected.add([file("My.Package-1.0.dist-info/RECORD"), file("my_package/__init__.py")])
    expected.finish()
    assert expected.tops == ["my_package", "My.Package-1.0.dist-info"]


def test_more_files_than_any_package_has_are_refused() -> None:
    expected = Expected("sglang")
    for at in range(0, MOST_FILES, 4000):
        expected.add([file(f"sglang/{number}.py") for number in range(at, at + 4000)])
    with pytest.raises(Fault, match="more than 100,000 files"):
        expected.add([INIT])
