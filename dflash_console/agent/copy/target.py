"""One copy or rollback on the side that receives it: what the requests from `claim` to `release` do.

In the order of a copy: claim, expect (several), want, begin_fill / feed / end_fill (several), check, swap, settle,
release. Of a rollback: claim, restore, settle, release. `close` may come at any time and twice.

All raise `place.Fault`, whose text is the answer's error, said for an operator: what, where, why, what next. Nothing
here reads or writes the channel, installs a signal handler, or waits for anybody but this machine's disk.
"""

from __future__ import annotations

import contextlib
import os
import time

from ..verify.checks import check
from . import backups, deal, disk, recover
from .deal import Deal
from .expected import Expected
from .ground import Spot, infos_in
from .importing import Importing
from .journal import Journal
from .pattern import pattern_of
from .place import Fault, Place, fault, new_id, read_manifest, read_provenance, step
from .stage import Stage
from .survey import has_same_content, is_same, listed, survey
from .swap import Item, signals_held_back
from .warming import Warm

__all__ = ["Target"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator


class Target:
    """Holds the lock from `claim` to `release` or `close`. `mind` is called while a child is waited for, and may
    raise."""

    def __init__(self, venv: str, package: str, mind: Callable[[], object] = lambda: None) -> None:
        self._venv, self._package = venv, package
        self._mind = mind
        self._place: Place | None = None
        self._spot: Spot | None = None
        self._number = ""
        self._journal: Journal | None = None
        self._expected = Expected(package)
        self._stage: Stage | None = None
        self._warm: Warm | None = None
        self._deal: Deal | None = None
        self._site = -1
        self._is_fit = False
        """Whether the stage was checked and all was well."""
        self._claimed: list[list[Any]] = []
        """What lay there when the lock was taken, by stat."""
        self._old: list[list[Any]] = []
        """The same with its hashes, as it was when the stage was checked."""
        self._provenance: dict[str, Any] | None = None
        """Of `_old`."""
        self._look: dict[str, Any] = {}
        self._claim: dict[str, Any] = {}
        self._keep, self._may_copy = 5, True

    def claim(
        self,
        by: str,
        what: str,
        origin: dict[str, str],
        stamp: str,
        tree: str,
        look: Callable[[], dict[str, Any]],
        keep_backups: int = 5,
        may_copy: bool = True,
    ) -> dict[str, Any]:
        """Take the lock, settle what an earlier copy left; a Claim.

        `origin` has host, venv, version. `look()` gives the Look of now as a dict (of it stamp, tree and version
        are used; may be `{}`); it is called once, after an interrupted copy was settled, and not when another has the
        lock. With `locked` or `changed` in the answer nothing is held any more: the target may be dropped. `stamp`
        empty: not compared. `tree` is the source's; what is laid is hashed again for the provenance. `may_copy`: as
        `Swap.may_copy`.
        """
        if self._place is not None:
            raise Fault("this copy has claimed its place already")
        spot = Spot(self._venv, self._package)
        place = Place(spot.venv)
        self._place, self._spot = place, spot
        try:
            held = place.take_lock(by, what)
            if held is not None:
                self.close()
                return {"locked": held}
            recovered = recover.recover(place, spot)
            self._site = os.open(spot.site, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            # Before the look: then its version and tree are those of what is found the same later.
            self._claimed = listed(self._site, self._tops(spot))
            self._look = look()
            now = str(self._look.get("stamp") or "")
            if stamp and now != stamp:
                self.close()
                words = f"{self._package} in {spot.site} is not as it was when the plan was made: plan again"
                return {"changed": words, "recovered": recovered}
            self._number = new_id()
            self._journal = Journal(place.fd, self._number, by=by, what=what, **{"from": origin})
            self._journal.write("claimed")
            self._warm = Warm(spot.python, spot.venv, self._package)
        except OSError as error:
            self.close()
            raise fault(error, f"{spot.venv} can't be copied to") from None
        except BaseException:
            self.close()
            raise
        self._claim = {"by": by, "origin": origin}
        self._keep, self._may_copy = keep_backups, may_copy
        return {"recovered": recovered}

    def expect(self, entries: list[list[Any]]) -> None:
        """Take the next entries of the tree that shall be there: [path, kind, size, mode, content] each."""
        self._held()
        if self._stage is not None:
            raise Fault("the tree is known already")
        self._expected.add(entries)

    def want(self, known: dict[str, str] | None = None) -> dict[str, Any]:
        """All was expected: which files have to be sent, {"wanted", "reused", "reused_bytes"}.

        `known`: sha256 by path of the live tree's files, as the look found them (what has another hash by now is
        noticed and becomes missing). None: they are hashed here, those that have the right size.
        """
        place, spot, _ = self._held()
        if self._stage is not None:
            raise Fault("the tree is known already")
        self._expected.finish()
        try:
            pattern = pattern_of(self._site, self._package)
        except OSError as error:
            raise fault(error, f"{spot.site} can't be read") from None
        self._stage = Stage(place, f"stage-{self._number}", self._expected, pattern, self._site, self._mind)
        return self._stage.fill_from(known)

    def begin_fill(self, order: list[int]) -> None:
        """Blocks follow, for these entries in this order."""
        self._staged().receiver.begin(order)

    def feed(self, block: bytes) -> bool:
        """Take one raw frame's payload; True when it was the end mark: then call `end_fill`.

        After a first fault the rest is dropped, and `end_fill` tells.
        """
        return self._staged().receiver.feed(block)

    @property
    def received(self) -> tuple[int, int]:
        """Files and bytes that came so far, over all fills, for `progress`."""
        receiver = self._staged().receiver
        return receiver.files, receiver.bytes

    def end_fill(self) -> dict[str, Any]:
        """{"missing": [indexes]}, once all reused files are there as well. Raises Fault with a path for what came
        wrong."""
        stage = self._staged()
        stage.receiver.end()
        return {"missing": stage.missing()}

    def check(self, modules: list[list[str]], limit: float) -> dict[str, Any]:
        """{"checks": [Check...]} of the stage, `limit` seconds for the import check. Any fail: `swap` refuses.

        Raises Fault when the package is not what it was at `claim`.
        """
        _, spot, journal = self._held()
        stage = self._staged()
        self._is_fit = False
        importing = Importing(spot.python, self._package, modules, limit, self._warm)
        try:
            checks = stage.check(importing, self._survey_old)
            if all(item["state"] != "fail" for item in checks):
                journal.write("staged")
                self._is_fit = True
        except OSError as error:
            raise fault(error, f"{stage.path} can't be checked") from None
        finally:
            importing.stop()
        return {"checks": checks}

    def swap(self) -> dict[str, Any]:
        """A Swapped. Holds signals back by itself. `is_undone`: the old tree is in place, `detail` says why."""
        place, _, _ = self._held()
        stage = self._staged()
        if not self._is_fit or self._deal is not None:
            raise Fault("the stage was not checked, or is swapped in already")
        # Whatever comes of it: of this stage nobody knows any more whether it is whole.
        self._is_fit = False
        new = {name: disk.inode_at(stage.fd, name) for name in self._expected.tops}
        deal.check_there(new, stage.path)
        claim = self._claim
        provenance = {
            "from_host": str(claim["origin"].get("host", "")),
            "from_venv": str(claim["origin"].get("venv", "")),
            "from_version": str(claim["origin"].get("version", "")),
            "at": time.time(),
            "by": claim["by"],
            "tree": stage.tree,
            "files": len(stage.entries),
        }
        with self._speaking(f"{place.path} can't be written"):
            return self._swap(stage.name, new, stage.entries, provenance, "copy")

    def restore(
        self, backup: str, modules: list[list[str]] | None = None, limit: float = 60.0
    ) -> dict[str, Any]:
        """A Swapped; puts a backup back ("": the newest that a copy replaced). Then settle as after swap."""
        place, spot, _ = self._held()
        if self._stage is not None or self._deal is not None:
            raise Fault("a copy is under way: it can't become a rollback")
        with self._speaking(f"{place.path}/backups can't be read"):
            info, names, lines = backups.proved(place, backup)
        checks = [check("backup", "pass", f"{info['id']}: all {len(lines):,} files as they were")]
        folder = f"backups/{info['id']}"
        importing = Importing(spot.python, self._package, modules or [], limit, self._warm)
        try:
            if self._package in names:
                importing.start(f"{place.path}/{folder}")
            with self._speaking(f"{spot.site} can't be read"):
                self._survey_old()
            if self._package in names:
                checks.append(importing.finish(self._mind))
        finally:
            importing.stop()
        if checks[-1]["state"] == "fail":
            words = f"nothing was changed: backup {info['id']} does not import: {checks[-1]['detail']}"
            return {"swap": "", "checks": checks, "is_undone": True, "detail": words}
        with self._speaking(f"{place.path} can't be written"):
            step("mkdir stage")
            os.mkdir(f"stage-{self._number}", 0o700, dir_fd=place.fd)
            home = disk.open_folder(folder, place.fd)
            try:
                new = {name: disk.inode_at(home, name) for name in names}
            finally:
                os.close(home)
            deal.check_there(new, f"{place.path}/{folder}")
            swapped = self._swap(folder, new, lines, info["provenance"], "rollback")
        return {**swapped, "checks": checks + swapped["checks"]}

    def find_spec(self, modules: list[list[str]], limit: float) -> dict[str, Any]:
        """The part `find_spec` of a verification of what is in its place now, {"checks": [Check]}; no check when the
        interpreter that got ready does not let it pass: then a fresh one has to be asked."""
        found = self._warm.in_place(modules, limit, self._mind) if self._warm is not None else None
        return {"checks": [found] if found is not None else []}

    def settle(self, keep: bool, note: str) -> dict[str, Any]:
        """{"undone", "detail"}; keep or undo what `swap` or `restore` did."""
        place, _, _ = self._held()
        if self._deal is None or not self._deal.is_swapped:
            raise Fault("nothing was swapped that could be kept or undone")
        doing = f"{place.path}: it could not be brought to its end, the next copy will"
        with self._speaking(doing), signals_held_back():
            if not keep:
                words = self._deal.take_back(note)
                self._deal = None
                return {"undone": True, "detail": f"{words}: {note}" if note else words}
            number = self._deal.number
            self._deal.is_verified = True
            self._deal.keep(note)
            self._deal = None
        try:
            gone = backups.prune(place, self._keep, [number])
        except Fault as problem:
            return {"undone": False, "detail": f"no old backups were removed: {problem}"}
        except OSError as error:
            return {"undone": False, "detail": f"old backups can't be removed: {error.strerror}"}
        return {"undone": False, "detail": f"old backups removed: {', '.join(gone)}" if gone else ""}

    def release(self) -> None:
        """Remove the stage and give the lock back. A swap that was not settled is kept (its checks passed)."""
        try:
            with self._speaking(f"{self._venv}: it could not be cleared up, the next copy will"):
                self._clear_up()
        finally:
            self._let_go()

    def close(self) -> None:
        """As `release`, raising nothing: the console is gone."""
        with contextlib.suppress(Exception):
            self.release()

    # ---- behind the requests

    def _held(self) -> tuple[Place, Spot, Journal]:
        if self._place is None or self._spot is None or self._journal is None:
            raise Fault("nothing was claimed")
        return self._place, self._spot, self._journal

    def _staged(self) -> Stage:
        if self._stage is None:
            raise Fault("no files are wanted yet")
        return self._stage

    @contextlib.contextmanager
    def _speaking(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise fault(error, doing) from None

    def _survey_old(self) -> None:
        """List what will be replaced, with its hashes, for the backup. Raises Fault when it changed since `claim`."""
        _, spot, _ = self._held()
        known = self._stage.reused if self._stage is not None else []
        self._old = survey(self._site, self._tops(spot), known)
        self._check_same(self._old)
        # What pip has laid over a copy since did not come from where the copy did.
        is_copied = has_same_content(read_manifest(spot.venv), self._old)
        self._provenance = read_provenance(spot.venv) if is_copied else None

    def _tops(self, spot: Spot) -> list[str]:
        return [self._package, *infos_in(spot.site, self._package)]

    def _check_same(self, now: list[list[Any]]) -> None:
        if not is_same(self._claimed, now):
            _, spot, _ = self._held()
            raise Fault(f"{self._package} in {spot.site} was changed while it was copied: plan again")

    def _swap(
        self,
        new_in: str,
        new: dict[str, int],
        lines: list[list[Any]],
        provenance: dict[str, Any] | None,
        reason: str,
    ) -> dict[str, Any]:
        place, spot, journal = self._held()
        names = dict.fromkeys([self._package, *new, *infos_in(spot.site, self._package)])
        try:
            items = [Item(name, disk.inode_at(self._site, name), new.get(name, 0)) for name in names]
            made = self._deal = Deal(place, self._number, journal, spot.site, self._package, new_in, items)
        except OSError as error:
            words = f"nothing was changed: {deal.words_of(error, spot.site, self._package)}"
            return {"swap": "", "checks": [], "is_undone": True, "detail": words}
        made.swap.may_copy = self._may_copy
        is_there = any(item.old for item in items)
        info = backups.about(self._number, reason, self._look if is_there else {}, self._provenance)
        with signals_held_back():
            try:
                spot.check_mounts()
                self._check_same(listed(self._site, self._tops(spot)))
                made.prepare(lines, provenance, info, self._old)
                checks = made.complete(spot.origin)
                failed = [item["detail"] for item in checks if item["state"] == "fail"]
                why = "; ".join(failed)
            except Fault as problem:
                checks, why = [], str(problem)
            except OSError as error:
                checks, why = [], deal.words_of(error, spot.site, self._package)
            if not why:
                return {"swap": made.swap.method, "backup": self._number, "checks": checks}
            try:
                words = made.take_back(why)
            except OSError as error:
                where = f"{spot.site}/{self._package}"
                doing = f"{where} could not be swapped ({why}), and undoing it is left to the next copy or rollback"
                raise fault(error, doing) from None
            self._deal = None
        return {"swap": made.swap.method, "checks": checks, "is_undone": True, "detail": f"{words}: {why}"}

    def _clear_up(self) -> None:
        if self._warm is not None:
            self._warm.stop()
        if self._stage is not None:
            self._stage.close()
        if self._place is None or self._journal is None or not self._number:
            return
        made, number = self._deal, self._number
        self._number = ""
        with signals_held_back():
            if made is not None and made.is_swapped:
                made.keep("the console was gone before it had settled it")
                with contextlib.suppress(Fault, OSError):
                    backups.prune(self._place, self._keep, [number])
            elif made is not None:
                made.take_back("it was cut short")
            elif disk.inode_at(self._place.fd, f"stage-{number}") or not self._is_settled():
                step("remove stage")
                disk.remove(self._place.fd, f"stage-{number}")
                self._journal.write("undone")

    def _is_settled(self) -> bool:
        """Whether the journal says so of this copy."""
        assert self._place is not None
        return recover.is_settled(self._place)

    def _let_go(self) -> None:
        if self._deal is not None:
            self._deal.close()
        if self._site >= 0:
            os.close(self._site)
        if self._place is not None:
            self._place.close()
        self._place, self._deal, self._site = None, None, -1
