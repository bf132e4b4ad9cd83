"""Whatever step a copy, a rollback or an undoing dies in, the package is the old or the new one, whole."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dflash_console.agent.copy import backups, place, recover
from dflash_console.agent.copy import target as copying
from dflash_console.agent.copy.target import Target
from tests.agent.copy.deaths import FakeImporting, FakeWarm, force_copied, force_two_step, killed_at
from tests.agent.copy.flow import BY, ORIGIN, copy, lay_small, state_of, whole
from tests.agent.environments import make_venv

METHODS = ("exchange", "two-step", "copied")
FALLBACKS = [
    (lay, method) for lay in ("another version", "the same version") for method in ("two-step", "copied")
]
KEPT = ("put manifest.json in place", "remove stage", "journal done", "fsync journal done")
"""Steps of one who was told to keep the new tree and has said so."""
Prepare = Callable[[], None]


class Ground:
    """An environment that is laid anew for each death."""

    def __init__(self, venv: Path, site: Path, lay: Callable[[Path], object]) -> None:
        self.venv, self.site = venv, site
        self.lay = lay
        self.again()
        self.old = state_of(site)

    def again(self) -> None:
        """As before any copy."""
        shutil.rmtree(self.venv / place.FOLDER, ignore_errors=True)
        for path in self.site.glob("sglang*"):
            shutil.rmtree(path)
        self.lay(self.site)

    def method(self, name: str) -> Prepare:
        """What has a process swap in this way."""
        fixed = {path.lstat().st_ino for path in self.site.glob("sglang*")}
        if name == "copied":
            return lambda: force_copied(fixed)
        return force_two_step if name == "two-step" else lambda: None


@pytest.fixture
def venv() -> Iterator[Path]:
    """In memory: on a disk each of some thousand fsyncs takes its time."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        make_venv(Path(folder) / "venv")
        yield Path(folder) / "venv"


@pytest.fixture(autouse=True)
def nobody_uses_a_backup(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look through /proc after each death takes longer than all else."""
    monkeypatch.setattr(backups, "users", lambda numbers: {})


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """What is copied."""
    return lay_small(tmp_path / "new", "0.5.23", extra={"sglang/deep/er/x.py": "x = 1\n"})


def recovered(ground: Ground, prepare: Prepare = lambda: None) -> str:
    """What the next copy says of what it found; it does nothing else itself."""
    target = Target(str(ground.venv), "sglang")
    answer = target.claim(BY, "another", ORIGIN, "", "", dict)
    assert "locked" not in answer
    target.release()
    return str(answer["recovered"])


def prove(ground: Ground, step: str, outlook: str, words: str, new: dict[str, str]) -> None:
    """After the recovery: whole, what was foretold, no litter, and the old tree is a backup if the new one is live."""
    whole(ground.venv, ground.site, ground.old, new)
    assert recover.unsettled(str(ground.venv), "sglang") is None, step
    is_new = state_of(ground.site) == new
    if outlook:
        assert ("will be finished" in outlook) == is_new, (step, outlook, words)
        assert words, step
    else:
        assert words == "", step
    found = backups.listing(str(ground.venv))
    assert len(found) == is_new, step
    if found:
        provenance = place.read_provenance(str(ground.venv)) or {}
        # Only one that had been told to keep it knows that it was looked at.
        if words and step not in KEPT:
            assert provenance.get("verified") is False, step
        laid = ground.venv / place.FOLDER / "backups" / found[0]["id"]
        assert state_of(laid) == ground.old, step
        assert place.read_manifest(str(ground.venv)), step


def deaths(ground: Ground, work: Callable[[], object], method: str) -> Iterator[str]:
    """Each step that the work was killed at."""
    for number in range(1000):
        ground.again()
        step = killed_at(number, work, ground.method(method))
        if not step:
            return
        yield step
    raise AssertionError("it does not end")


def copied(venv: Path, new: Path, keep: bool) -> Callable[[], object]:
    """A copy that is kept, or undone when all had gone well."""

    def work() -> None:
        target, answer = copy(venv, new, until="swap")
        assert not answer.get("is_undone"), answer
        target.settle(keep, "as the test wants it")
        target.release()

    return work


LAYS: dict[str, Callable[[Path], object]] = {
    "another version": lambda site: lay_small(site, "0.5.9"),
    "the same version": lambda site: lay_small(site, "0.5.23"),
    "nothing": lambda site: None,
    "a dist-info alone": lambda site: lay_small(site, "0.5.9", only="sglang-0.5.9.dist-info"),
    "two dist-infos": lambda site: (
        lay_small(site, "0.5.9"),
        shutil.copytree(site / "sglang-0.5.9.dist-info", site / "sglang-0.5.8.dist-info"),
    ),
    "a nested mess": lambda site: (
        lay_small(site, "0.5.9"),
        shutil.copytree(site / "sglang", site / "sglang" / "sglang"),
    ),
}


@pytest.mark.parametrize(("lay", "method"), [(lay, "exchange") for lay in LAYS] + FALLBACKS)
def test_a_copy_that_dies_at_any_step_leaves_the_old_or_the_new_tree(
    venv: Path, site: Path, new: Path, lay: str, method: str
) -> None:
    ground = Ground(venv, site, LAYS[lay])
    copied(venv, new, True)()
    wanted = state_of(site)
    seen = []
    for step in deaths(ground, copied(venv, new, True), method):
        seen.append(step)
        now = {path: text for path, text in state_of(site).items() if path.startswith("sglang/")}
        states = [
            {p: t for p, t in state.items() if p.startswith("sglang/")} for state in (ground.old, wanted)
        ]
        if method == "two-step":
            states.append({})
        # A folder that can't be renamed is removed file by file, once a whole copy of it lies aside.
        if method != "copied" or not step.startswith(("put", "remove")):
            assert now in states, step
        told = recover.unsettled(str(venv), "sglang")
        prove(ground, step, told["outlook"] if told else "", recovered(ground), wanted)
    assert "journal done" in seen
    whole(venv, site, wanted)


@pytest.mark.parametrize(
    ("lay", "method"), [("another version", "exchange"), ("nothing", "exchange"), *FALLBACKS]
)
def test_an_undoing_that_dies_at_any_step_leaves_the_old_or_the_new_tree(
    venv: Path, site: Path, new: Path, lay: str, method: str
) -> None:
    ground = Ground(venv, site, LAYS[lay])
    copied(venv, new, True)()
    wanted = state_of(site)
    for step in deaths(ground, copied(venv, new, False), method):
        told = recover.unsettled(str(venv), "sglang")
        prove(ground, step, told["outlook"] if told else "", recovered(ground), wanted)
    whole(venv, site, ground.old)
    assert backups.listing(str(venv)) == []


@pytest.mark.parametrize("how", ["once", "for good"])
@pytest.mark.parametrize("lay", ["another version", "the same version", "nothing", "two dist-infos"])
def test_an_undoing_that_fails_at_any_step_is_never_turned_into_a_keeping(
    venv: Path, site: Path, new: Path, monkeypatch: pytest.MonkeyPatch, lay: str, how: str
) -> None:
    monkeypatch.setattr(copying, "Importing", FakeImporting)
    monkeypatch.setattr(copying, "Warm", FakeWarm)
    ground = Ground(venv, site, LAYS[lay])
    # A journal that takes no line at all can't tell that it was to be undone.
    for number in range(how == "for good", 1000):
        ground.again()
        target, _ = copy(venv, new, until="swap")
        steps: list[str] = []

        def fail(name: str, number: int = number, steps: list[str] = steps) -> None:
            steps.append(name)
            if len(steps) > number and (how == "for good" or len(steps) == number + 1):
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        place.watchers[:] = [fail]
        try:
            with contextlib.suppress(place.Fault):
                target.settle(False, "verify failed")
            target.close()
        finally:
            place.watchers[:] = []
        if len(steps) <= number:
            break
        told = recover.unsettled(str(venv), "sglang")
        if how == "once":
            whole(venv, site, ground.old)
            assert told is None, steps
        else:
            # The line itself is there when only its fsync fails.
            assert told is not None or steps[number] == "fsync journal undone", steps
            assert told is None or "will be undone" in told["outlook"], steps
        recovered(ground)
        whole(venv, site, ground.old)
        assert recover.unsettled(str(venv), "sglang") is None
        assert backups.listing(str(venv)) == []
        assert place.read_provenance(str(venv)) is None
    assert "journal undone" in steps


@pytest.mark.parametrize(
    ("lay", "method"), [("another version", "exchange"), ("nothing", "exchange"), *FALLBACKS]
)
def test_a_rollback_that_dies_at_any_step_leaves_one_tree_live_and_the_other_one_a_backup(
    venv: Path, site: Path, new: Path, tmp_path: Path, lay: str, method: str
) -> None:
    def lay_copied(site: Path) -> None:
        LAYS[lay](site)
        copied(venv, new, True)()

    LAYS[lay](site)
    first = state_of(site)
    ground = Ground(venv, site, lay_copied)
    second = ground.old

    def work() -> None:
        target = Target(str(venv), "sglang")
        target.claim(BY, "rollback", ORIGIN, "", "", dict)
        answer = target.restore("")
        assert not answer.get("is_undone"), answer
        target.settle(True, "")
        target.release()

    for step in deaths(ground, work, method):
        told = recover.unsettled(str(venv), "sglang")
        words = recovered(ground)
        whole(venv, site, first, second)
        is_back = state_of(site) == first
        if told:
            assert words
            assert ("will be finished" in told["outlook"]) == is_back or first == second, (step, told, words)
        (backup,) = backups.listing(str(venv))
        laid = venv / place.FOLDER / "backups" / backup["id"]
        assert state_of(laid) == (second if is_back else first), step
        if first != second:
            assert backup["reason"] == ("rollback" if is_back else "copy"), step
    whole(venv, site, first)


@pytest.mark.parametrize("method", METHODS)
def test_recoveries_that_die_as_well_come_to_an_end(venv: Path, site: Path, new: Path, method: str) -> None:
    ground = Ground(venv, site, LAYS["another version"])
    copied(venv, new, True)()
    wanted = state_of(site)
    for number in range(1000):
        ground.again()
        prepare = ground.method(method)
        step = killed_at(number, copied(venv, new, True), prepare)
        if not step:
            return
        if not step.startswith(("exchange", "take", "put", "gather", "journal", "remove", "copy")):
            continue
        # Each next one is killed a step later than the one before.
        for later in range(1000):
            if not killed_at(later, lambda: recovered(ground), prepare):
                break
        recovered(ground)
        prove(ground, step, "", "", wanted)
    assert os.listdir(venv / place.FOLDER)
