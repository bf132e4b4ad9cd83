"""The section `venvs`: the environments of the config, of the watched units and in the usual places.

Each is read in a child, since it may lie on a dead mount. What was looked at is marked, and read anew when
a mark changed. Marks of a local filesystem are checked here (2 microseconds a file), others in a child.
"""

from __future__ import annotations

import os

from ..child import OneShot
from ..section import Section, missing
from .look import has_changed
from .reading import absent, look_at, search

__all__ = ["VenvSection"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..child import Channel
    from .reading import Counted, Item

COUNT = 29.9
"""Seconds between two counts of what changed since a copy, at least; mostly it is FULL."""
COUNT_SHARE = 0.0006
"""Of one CPU that such counts may take."""
STALL = 5.0
"""Seconds without a word from a child, after which what it looks at counts as hung."""
LONGEST = 120.0
"""Seconds that a child may take, all in all."""
# A tenth less than meant, so that a tick that comes a little early still counts.
CHECK = 1.9
"""Seconds between two checks of the marks."""
FULL = 59.9
"""Seconds between two full readings, with a new search."""
AGAIN = 29.9
"""Seconds before what hung is asked again."""
ITEMS_LIMIT = 1000
"""Environments that are shown at most (bounds.MOST_ITEMS); those of the config come first, then the units'."""
UNITS_WAIT = 6.0
"""Seconds that the first value waits for what the watched units start; they are told within 5, or never."""


class _Lane:
    """One child at a time, watched for progress. One that can't be killed stays until it is gone."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        """What the child has yet to answer, in its order."""
        self.spec: object = None
        self._shot = OneShot(LONGEST)
        self._taken = 0
        self._heard: float | None = None

    @property
    def is_busy(self) -> bool:
        return self._shot.is_busy

    def start(self, work: Callable[[Channel], object], paths: list[str], spec: object, now: float) -> bool:
        if not self._shot.start(work, now):
            return False
        self.paths, self.spec = paths, spec
        self._taken, self._heard = 0, now
        return True

    def fds(self) -> list[int]:
        return self._shot.fds()

    def read(self, now: float) -> tuple[list[tuple[str, Any]], str | None]:
        """The new answers by path, and how the child ended: None while it runs, "" when all is well."""
        outcome = self._shot.ready(now)
        values = self._shot.values[self._taken :]
        self._taken += len(values)
        answers = list(zip(self.paths, values))
        self.paths = self.paths[len(answers) :]
        self._heard = None if outcome else now
        return answers, outcome.error if outcome else None

    def has_stalled(self, now: float) -> bool:
        """True once when the child hangs; it is killed then."""
        if self._heard is None or now - self._heard < STALL:
            return False
        self.close()
        return True

    def close(self) -> None:
        self._heard = None
        self._shot.close()


class _Known:
    """What the last look at an environment gave."""

    def __init__(self, venv: dict[str, Any], real: str) -> None:
        self.venv = venv
        self.real = real
        self.marks: dict[str, list[int] | int] = {}
        self.is_young = False
        self.is_remote = False
        self.is_gone = False
        self.cut: list[str] = []
        self.counted: Counted | None = None
        self.count_at = 0.0
        """When the changed files of a copy may be counted anew."""


class VenvSection(Section):
    """A Venv for each environment, once by real path: those of the config, of the units, those found."""

    name = "venvs"

    def __init__(self) -> None:
        self._spec: dict[str, Any] = {}
        self._interpreters: list[str] = []
        self._found: list[str] = []
        self._sources: dict[str, str] = {}
        """What is watched, in order: a folder or an interpreter, with the source that it is listed for."""
        self._known: dict[str, _Known] = {}
        self._due: set[str] = set()
        """Those to be read whatever their marks say."""
        self._main = _Lane()
        self._alone: dict[str, _Lane] = {}
        """A lane for each environment that hung, so that it hangs no other."""
        self._alone_at: dict[str, float] = {}
        self._search = _Lane()
        self._has_searched = False
        self._search_note = ""
        self._note = ""
        self._dropped = 0
        """How many of the environments ITEMS_LIMIT leaves out."""
        self._is_stale = False
        """Whether something came since the value was put together."""
        self._check_at = self._full_at = 0.0
        self._now = 0.0
        self._units_by: float | None = None
        """When the first value is told without the units; None before the first tick."""
        self._is_waiting = False
        """Whether the first value waits for the units."""

    @property
    def note(self) -> str:
        """What is not shown or not read whole, and why; mostly empty."""
        return self._note

    def configure(self, spec: dict[str, Any]) -> None:
        self._is_waiting = self.value is None and bool(spec.get("units"))
        self._spec = spec
        self._known.clear()
        self._arrange()
        self.refresh()

    def observe(self, name: str, value: Any) -> None:
        """Take the venvs and interpreters that the watched units start."""
        if name == "units":
            told = [row.get("venv") or row.get("interpreter") for row in value or []]
            self.add_interpreters([path for path in told if isinstance(path, str)])
            if self._is_waiting:
                self._is_waiting = False
                self._read(set(self._due), self._now)
                self._publish()

    def add_interpreters(self, paths: list[str]) -> None:
        """The interpreters of the watched units, or their environments' folders: all that there are now."""
        if paths != self._interpreters:
            self._interpreters = list(paths)
            self._arrange()
            self._check_at = 0.0

    def refresh(self) -> None:
        self._check_at = self._full_at = 0.0
        self._alone_at = dict.fromkeys(self._alone_at, 0.0)

    def fds(self) -> list[int]:
        return [fd for lane in self._lanes() for fd in lane.fds()]

    def ready(self, fd: int, now: float) -> None:
        self._now = now
        lane = next((lane for lane in self._lanes() if fd in lane.fds()), None)
        if lane is self._search:
            self._take_found(now)
        elif lane is not None:
            self._take(lane, now)
        self._publish()

    def tick(self, now: float) -> None:
        self._now = now
        if self._units_by is None:
            self._units_by = now + UNITS_WAIT
        self._is_waiting = self._is_waiting and now < self._units_by
        self._mind_stalls(now)
        if now >= self._full_at:
            self._full_at = now + FULL
            self._due.update(self._sources)
            self._search.start(search, ["search"], None, now)
        if now >= self._check_at:
            self._check_at = now + CHECK
            self._check(now)
        for path, lane in list(self._alone.items()):
            if path in self._sources and now >= self._alone_at[path]:
                self._alone_at[path] = now + AGAIN
                self._start(lane, [path], now)
            elif path not in self._sources and not lane.is_busy:
                del self._alone[path], self._alone_at[path]
        self._publish()

    def close(self) -> None:
        for lane in self._lanes():
            lane.close()

    def _lanes(self) -> list[_Lane]:
        return [self._main, self._search, *self._alone.values()]

    # ---- what to look at

    def _arrange(self) -> None:
        """Bring `_sources` up to date; the first source that names a path counts."""
        sources: dict[str, str] = {}
        interpreters = [path for path in self._interpreters if _may_be_python(path)]
        for paths, source in (
            (self._spec.get("venvs") or [], "config"),
            (interpreters, "unit"),
            (self._found, "found"),
        ):
            for path in paths:
                sources.setdefault(path, source)
        self._dropped = max(0, len(sources) - ITEMS_LIMIT)
        if self._dropped:
            sources = dict(list(sources.items())[:ITEMS_LIMIT])
        same = {path for path, source in sources.items() if self._sources.get(path) == source}
        self._known = {path: known for path, known in self._known.items() if path in same}
        self._due &= sources.keys()
        self._sources = sources
        self._is_stale = True

    def _check(self, now: float) -> None:
        remote = set()
        for path, known in self._known.items():
            if known.is_remote:
                remote.add(path)
            elif known.is_young or has_changed(known.marks):
                self._due.add(path)
        self._read(self._due | remote, now)

    def _read(self, wanted: set[str], now: float) -> None:
        """Read those wanted, and all that are not known yet."""
        paths = [
            path
            for path in self._sources
            if path not in self._alone and (path in wanted or path not in self._known)
        ]
        if paths:
            self._start(self._main, paths, now)

    def _start(self, lane: _Lane, paths: list[str], now: float) -> None:
        spec = self._spec
        items: list[Item] = []
        for path in paths:
            known = self._known.get(path)
            is_due = known is None or known.is_young or path in self._due
            marks = None if known is None or is_due else known.marks
            counted = known.counted if known is not None and now < known.count_at else None
            items.append((path, self._sources[path], marks, counted))
        if lane.start(lambda channel: look_at(channel, items, spec), paths, spec, now):
            self._due.difference_update(paths)

    # ---- what came back

    def _take(self, lane: _Lane, now: float) -> None:
        answers, error = lane.read(now)
        for path, seen in answers:
            if self._alone.get(path) is lane:
                del self._alone[path], self._alone_at[path]
                lane.close()
            if seen is not None and path in self._sources and lane.spec is self._spec:
                self._is_stale = True
                before = self._known.get(path)
                known = self._known[path] = _Known(seen["venv"], seen["real"])
                known.counted = seen["counted"]
                known.count_at = before.count_at if before is not None and not seen["cost"] else 0.0
                if seen["cost"]:
                    known.count_at = now + max(COUNT, seen["cost"] / COUNT_SHARE)
                known.marks, known.is_young = seen["marks"], seen["is_young"]
                known.is_remote, known.is_gone = seen["is_remote"], seen["is_gone"]
                known.cut = seen["cut"]
        if error:
            self._set_aside(lane, missing("error", error), now)
        if error is not None:
            self._read(self._due, now)

    def _take_found(self, now: float) -> None:
        answers, error = self._search.read(now)
        for _, (self._found, self._search_note) in answers:
            self._arrange()
        if error is not None:
            if error:
                self._search_note = f"the search for venvs failed ({error}): name them in the config"
            self._has_searched = self._is_stale = True
            self._read(self._due, now)

    def _mind_stalls(self, now: float) -> None:
        if self._search.has_stalled(now):
            self._search_note = f"the search for venvs hung for {STALL:g} s: name them in the config"
            self._has_searched = self._is_stale = True
        for lane in (self._main, *self._alone.values()):
            if lane.has_stalled(now):
                text = f"no answer within {STALL:g} s: the filesystem that it lies on may be dead"
                self._set_aside(lane, missing("hung", text), now)

    def _set_aside(self, lane: _Lane, reason: dict[str, str], now: float) -> None:
        """Give the environment that a child hung or died at a lane of its own, away from the others."""
        if not lane.paths:
            return
        path, *rest = lane.paths
        self._due.update(rest)
        self._due &= self._sources.keys()
        if path in self._sources:
            self._known[path] = _Known(absent(path, self._sources[path], reason), path)
            self._is_stale = True
        self._alone[path] = lane
        self._alone_at[path] = now + AGAIN
        if lane is self._main:
            self._main = _Lane()

    def _publish(self) -> None:
        if not self._is_stale or self._is_waiting or not self._has_searched:
            return
        if self._sources.keys() - self._known.keys():
            return
        rows: dict[str, dict[str, Any]] = {}
        for path, source in self._sources.items():
            known = self._known[path]
            if source != "found" or not known.is_gone:
                rows.setdefault(known.real, known.venv)
        self._is_stale = False
        self._note = self._left_out()
        value = list(rows.values())
        if value != self.value:
            self.value = value

    def _left_out(self) -> str:
        words = [self._search_note] if self._search_note else []
        if self._dropped:
            words.append(f"{self._dropped} more venvs not shown (limit {ITEMS_LIMIT})")
        cut = list(dict.fromkeys(path for known in self._known.values() for path in known.cut))
        if cut:
            others = f" and {len(cut) - 1} more" if len(cut) > 1 else ""
            words.append(f"only partly read, being too large: {cut[0]}{others}")
        return "; ".join(words)


def _may_be_python(path: str) -> bool:
    """Whether a unit's interpreter is one, and not a shell; a folder is taken for an environment."""
    name = os.path.basename(path)
    return name.startswith("python") or os.path.basename(os.path.dirname(path)) != "bin"
