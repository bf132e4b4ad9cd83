"""The requests that only one who holds the lock may make: from the wire to `Target`, and its answers back."""

from __future__ import annotations

from ..verify.checks import check
from .importers import importers_check
from .looking import look
from .place import Fault

__all__ = ["TargetRequests"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .looking import Seen
    from .pipe import Pipe
    from .target import Target


class TargetRequests:
    """What came since `claim`."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._target: Target | None = None
        self._seen: Seen | None = None
        """The live tree, as it was when the lock was taken."""

    def claim(self, message: dict[str, Any], seen: Seen | None) -> dict[str, Any]:
        """Take the lock; a copies.Claim. `seen` is the last look."""
        if self._target is not None:
            raise Fault("this process has claimed an environment already: release it first")
        from .target import Target

        venv, package = str(message["venv"]), str(message["package"])
        target = Target(venv, package, self._pipe.mind)

        def look_again() -> dict[str, Any]:
            self._seen = look(venv, package, self._pipe, seen)
            return self._seen.look

        try:
            answer = target.claim(
                by=str(message["by"]),
                what=str(message["what"]),
                origin=message["origin"],
                stamp=str(message.get("stamp", "")),
                tree=str(message.get("tree", "")),
                look=look_again,
                keep_backups=int(message.get("keep_backups", 5)),
                may_copy=bool(message.get("may_copy")),
            )
        except BaseException:
            target.close()
            raise
        if answer.get("locked") or answer.get("changed"):
            target.close()
        else:
            self._target = target
            answer["importers"] = self._seen.look["importers"] if self._seen is not None else []
        return answer

    def expect(self, message: dict[str, Any]) -> None:
        """Take entries of the tree that shall be there."""
        self._held.expect(message["entries"])

    def want(self) -> dict[str, Any]:
        """Which files have to come."""
        entries = self._seen.listing.entries if self._seen is not None else []
        known = {path: content for path, kind, _, _, content in entries if kind == "file"}
        return self._held.want(known if self._seen is not None else None)

    def fill(self, message: dict[str, Any]) -> dict[str, Any]:
        """Take blocks, up to the end mark."""
        target = self._held
        target.begin_fill(message["order"])
        while not target.feed(self._pipe.raw()):
            self._pipe.progress(*target.received)
        return target.end_fill()

    def check(self, message: dict[str, Any]) -> dict[str, Any]:
        """Check the stage; and who runs from what it is to replace, for much may have begun while it came."""
        target, seen = self._held, self._seen
        search = seen.importers() if seen is not None else None
        try:
            answer = target.check(message["modules"], float(message["limit"]))
            if search is not None:
                answer["checks"].append(importers_check(search.read(self._pipe.mind)))
            return answer
        finally:
            if search is not None:
                search.close()

    def swap(self) -> dict[str, Any]:
        """Put the stage in the place of the package; a copies.Swapped."""
        return self._held.swap()

    def find_spec(self, message: dict[str, Any]) -> dict[str, Any]:
        """A part of the verification of what is in its place."""
        return self._held.find_spec(message["modules"], float(message["limit"]))

    def settle(self, message: dict[str, Any]) -> dict[str, Any]:
        """Keep what was done, or undo it."""
        return self._held.settle(bool(message["keep"]), str(message.get("note", "")))

    def restore(self, message: dict[str, Any]) -> dict[str, Any]:
        """Put a backup back; a copies.Swapped."""
        from .backups import Unfit

        modules = message.get("modules")
        try:
            return self._held.restore(
                str(message.get("backup", "")), modules, float(message.get("limit", 60.0))
            )
        except Unfit as problem:
            failed = [check("backup", "fail", str(problem))]
            return {
                "swap": "",
                "checks": failed,
                "is_undone": True,
                "detail": f"nothing was changed: {problem}",
            }

    def release(self) -> None:
        """Give the lock back; without one there is nothing to do."""
        target, self._target, self._seen = self._target, None, None
        if target is not None:
            target.release()

    def close(self) -> None:
        """As release, at the process's end."""
        if self._target is not None:
            self._target.close()

    @property
    def _held(self) -> Target:
        if self._target is None:
            raise Fault("nothing is claimed: `claim` comes first")
        return self._target
