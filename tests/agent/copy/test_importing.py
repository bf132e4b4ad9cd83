"""The import check of a stage, with an interpreter that got ready before."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_console.agent.copy import importing
from dflash_console.agent.copy.importing import Importing
from dflash_console.agent.copy.warming import Warm
from tests.agent.copy.flow import lay_small
from tests.waiting import until_sync

COUNTING = """
import os
with open({log!r}, "a") as file:
    file.write("imported\\n")
"""


class Ground:
    """A live tree, a stage, and a module beside them that is dear to import."""

    def __init__(self, venv: Path, site: Path, stage: Path) -> None:
        self.venv, self.python = venv, str(venv / "bin/python")
        self.site, self.stage = site, stage
        self.log = stage.parent / "log"
        self.log.touch()
        self.warm: Warm | None = None
        lay_small(site, "0.5.9")
        lay_small(stage, "0.5.23")

    def dear(self, text: str) -> None:
        """What the module does when it is imported; it tells of it in the log."""
        (self.site / "dear.py").write_text(COUNTING.format(log=str(self.log)) + text)

    def get_ready(self) -> Warm:
        """Start it, and wait until it has begun with the module."""
        self.warm = Warm(self.python, str(self.venv), "sglang", ("absent", "dear"))
        until_sync(lambda: bool(self.log.read_text()), 30, "it has begun")
        return self.warm

    def swap(self) -> None:
        """The stage's package in the place of the live one."""
        (self.site / "sglang").rename(self.stage / "old")
        (self.stage / "sglang").rename(self.site / "sglang")

    def in_place(self) -> tuple[str, str] | None:
        """State and detail of what is in its place by the interpreter that got ready; None when it can't tell."""
        assert self.warm is not None
        found = self.warm.in_place([["sglang.srt.speculative.dflash_worker"]], 60.0, lambda: None)
        return None if found is None else (found["state"], found["detail"])

    def check(self, limit: float = 60.0) -> tuple[str, str]:
        """State and detail."""
        modules = [["sglang.srt.speculative.dflash_worker"]] * 200
        asked = Importing(self.python, "sglang", modules, limit, self.warm)
        try:
            asked.start(str(self.stage))
            found = asked.finish()
        finally:
            asked.stop()
        return found["state"], found["detail"]


@pytest.fixture
def ground(venv: Path, site: Path, tmp_path: Path) -> Iterator[Ground]:
    made = Ground(venv, site, tmp_path / "stage")
    yield made
    if made.warm is not None:
        made.warm.stop()


def test_what_was_imported_before_is_not_imported_again(ground: Ground) -> None:
    ground.dear("")
    (ground.stage / "sglang/__init__.py").write_text("import dear")
    ground.get_ready()
    state, detail = ground.check()
    assert (state, detail.partition(" (")[0]) == ("pass", "sglang, dflash_worker")
    assert ground.log.read_text() == "imported\n"


def test_the_stage_may_be_filled_after_it_got_ready(ground: Ground) -> None:
    ground.dear("")
    (ground.stage / "sglang").rename(ground.stage / "later")
    ground.get_ready()
    (ground.stage / "later").rename(ground.stage / "sglang")
    assert ground.check()[0] == "pass"


@pytest.mark.parametrize(
    "odd",
    [
        "raise RuntimeError('no')",
        "raise SystemExit(0)",
        "os._exit(0)",
        "os.kill(os.getpid(), 9)",
        "os.kill(os.getppid(), 9)",
        "os.closerange(0, 1024)",
        "os.close(3); open(os.devnull)",
        "print('x' * 1_000_000, flush=True)",
        "import sys; assert sys.stdin.read() == ''",
        "import sglang",
        "import importlib.metadata; importlib.metadata.version('sglang')",
        "import signal; signal.pause()",
        "import sys; sys.path.clear()",
        "import builtins; builtins.__import__ = None",
    ],
)
def test_whatever_goes_wrong_before_does_not_change_the_answer(
    ground: Ground, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "PATIENCE", 0.02)
    ground.dear(odd)
    ground.get_ready()
    state, detail = ground.check()
    assert (state, detail.partition(" (")[0]) == ("pass", "sglang, dflash_worker")


@pytest.mark.parametrize(
    "text", ["import no_such_thing", "raise ValueError('bad')", "1 +", "import dear; dear.gone"]
)
def test_a_tree_that_does_not_import_fails_all_the_same(ground: Ground, text: str) -> None:
    ground.dear("")
    (ground.stage / "sglang/__init__.py").write_text(text)
    ground.get_ready()
    warm_answer = ground.check()
    ground.warm = None
    assert warm_answer == ground.check()
    assert warm_answer[0] == "fail"


def test_one_that_was_killed_is_not_waited_for(ground: Ground) -> None:
    ground.dear("")
    warm = ground.get_ready()
    os.kill(warm.child.pid, signal.SIGKILL)
    assert ground.check()[0] == "pass"


def test_nothing_of_it_stays_when_it_is_not_asked(ground: Ground) -> None:
    ground.dear(f"open({str(ground.log)!r} + '.pid', 'w').write(str(os.getpid()) + chr(10))")
    warm = ground.get_ready()
    told = Path(f"{ground.log}.pid")
    until_sync(lambda: told.exists() and told.read_text().endswith("\n"), 30, "it told its number")
    warm.stop()
    until_sync(lambda: not Path(f"/proc/{int(told.read_text())}/exe").exists(), 30, "it has ended")


# ---- the second answer: of the package in its place


def test_one_interpreter_answers_for_the_stage_and_then_for_the_place(ground: Ground) -> None:
    ground.dear("")
    for folder, name in ((ground.stage, "new"), (ground.site, "old")):
        (folder / "sglang/__init__.py").write_text(
            f"import dear\nopen(dear.__file__ + '.{name}', 'w').close()"
        )
    ground.get_ready()
    assert ground.check()[0] == "pass"
    assert not (ground.site / "dear.py.old").exists()
    (ground.site / "dear.py.new").unlink()
    ground.swap()
    found = ground.in_place()
    assert found is not None
    assert found[0] == "pass"
    assert found[1].startswith(f"{ground.site}/sglang/__init__.py; dflash_worker (")
    assert (ground.site / "dear.py.new").exists()
    assert ground.log.read_text() == "imported\n"
    assert not list(ground.site.rglob("__pycache__"))


@pytest.mark.parametrize(
    "text", ["import no_such_thing", "raise ValueError('bad')", "import os; os._exit(0)"]
)
def test_what_does_not_import_in_its_place_is_left_to_a_fresh_one(ground: Ground, text: str) -> None:
    ground.dear("")
    ground.get_ready()
    assert ground.check()[0] == "pass"
    ground.swap()
    (ground.site / "sglang/__init__.py").write_text(text)
    assert ground.in_place() is None


def test_another_package_than_that_in_its_place_is_left_to_a_fresh_one(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_small(tmp_path / "shadow", "0.5.9")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "shadow"))
    ground.dear("")
    ground.get_ready()
    ground.swap()
    assert ground.in_place() is None


@pytest.mark.parametrize("text", ["import sglang", "import sglang, os; os._exit(7)"])
def test_a_start_that_takes_the_package_by_itself_is_left_to_a_fresh_one(ground: Ground, text: str) -> None:
    """It could not while none was in its place, when the one that got ready was started."""
    ground.dear("")
    (ground.site / "sglang").rename(ground.stage / "old")
    (ground.site / "start.pth").write_text(f"{text}\n")
    ground.get_ready()
    assert ground.check()[0] == "pass"
    (ground.stage / "sglang").rename(ground.site / "sglang")
    assert ground.in_place() is None


def test_one_with_threads_is_not_forked_and_answers_once(ground: Ground) -> None:
    ground.dear("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()")
    (ground.stage / "sglang/__init__.py").write_text("import dear")
    ground.get_ready()
    assert ground.check()[0] == "pass"
    ground.swap()
    assert ground.in_place() is None
    assert ground.log.read_text() == "imported\n"


def test_one_that_failed_for_the_stage_is_not_asked_again(ground: Ground) -> None:
    ground.dear("")
    (ground.stage / "sglang/__init__.py").write_text("raise ValueError('bad')")
    ground.get_ready()
    assert ground.check()[0] == "fail"
    assert ground.in_place() is None


# ---- nothing of it stays


def numbers(log: Path) -> list[int]:
    """The processes that have told their numbers."""
    return [int(line) for line in log.read_text().split() if line.isdigit()]


def is_there(pid: int) -> bool:
    """Whether a process runs."""
    return Path(f"/proc/{pid}/exe").exists()


@pytest.mark.parametrize("with_ctypes", [True, False])
@pytest.mark.parametrize("end", ["limit", "stop", "kill"])
def test_an_import_that_hangs_in_a_process_of_its_own_ends_with_the_rest(
    ground: Ground, end: str, with_ctypes: bool
) -> None:
    ground.dear("import ctypes\n" if with_ctypes else "")
    hang = f"import os, time; open({str(ground.log)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(1000)\n"
    (ground.stage / "sglang/__init__.py").write_text(hang)
    warm = ground.get_ready()
    warm.ask([["sglang.srt"]], 3.0 if end == "limit" or not with_ctypes else 60.0, str(ground.stage))
    until_sync(lambda: bool(numbers(ground.log)), 30, "it hangs")
    if end == "kill":
        os.kill(warm.child.pid, signal.SIGKILL)
    elif end == "stop":
        warm.stop()
    until_sync(lambda: not any(map(is_there, numbers(ground.log))), 30, "it is gone")
