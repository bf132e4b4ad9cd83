"""What to do about a copy that died: finish it when the new tree is in place, else undo it, and say which.

The journal tells what was under way, the inodes tell how far it came.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time

from . import backups, disk
from .deal import Deal
from .ground import infos_in
from .journal import Journal, begin_anew, read_past
from .place import FOLDER, ID, Place, fault, holder, new_id, step
from .survey import survey
from .swap import Foreign, Item, signals_held_back

__all__ = ["is_settled", "recover", "unsettled"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .ground import Spot
    from .journal import Past

BEFORE_SWAP = ("claimed", "staged")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
NEW_IN = re.compile(rf"(stage-|backups/){ID.pattern}")
STEPS = {
    "claimed": "sending",
    "staged": "checking",
    "swapping": "swapping",
    "swapped": "settling",
    "undoing": "undoing",
}
OUTLOOKS = {
    "nothing": "will be undone: what was staged will be removed, the package is untouched",
    "finish": "will be finished: the new package is in place",
    "undo": "will be undone: the old package will be put back",
    "in place": "will be undone: the old package is in place",
    "foreign": "will be given up: somebody else put another package there since; the one before, if it lies with the "
    "copy, is kept as a backup",
}


def unsettled(venv: str, package: str) -> dict[str, Any] | None:
    """The Unsettled of an environment; None when the last copy was brought to its end, or still runs.

    Changes nothing.
    """
    if holder(venv) is not None:
        return None
    try:
        folder = disk.open_folder(f"{venv}/{FOLDER}")
    except OSError:
        return None
    try:
        past = read_past(folder)
        line = past.unsettled
        if line is None:
            return _spoilt(folder, past)
        return {
            "what": _title(line),
            "step": STEPS[line["state"]],
            "since": line["at"],
            "outlook": OUTLOOKS[_fate(folder, line)],
        }
    finally:
        os.close(folder)


def is_settled(target: Place) -> bool:
    """Whether the journal's last copy was brought to its end."""
    return read_past(target.fd).unsettled is None


def recover(target: Place, spot: Spot) -> str:
    """Settle what an earlier copy left; what was found and done, empty for nothing. The lock must be held.

    Raises Fault when it can't be settled, OSError.
    """
    past = read_past(target.fd)
    words: list[str] = []
    line = past.unsettled
    if line is not None:
        with signals_held_back():
            words.append(_settle(target, spot, line))
    elif past.problem:
        words += _save_stages(target, spot.package)
    words.append(begin_anew(target.fd, past))
    _sweep(target)
    return "; ".join(word for word in words if word)


def _title(line: dict[str, Any]) -> str:
    what, by = line.get("what"), line.get("by")
    words = what[:1000] if isinstance(what, str) and what else "a copy"
    return f"{words} by {by[:1000]}" if isinstance(by, str) and by else words


def _spoilt(folder: int, past: Past) -> dict[str, Any] | None:
    """A journal that can't be relied on, with a stage that it may have told of."""
    if not past.problem:
        return None
    return {
        "what": f"a copy of which nothing is known: {past.problem}",
        "step": "unknown",
        "since": past.last["at"] if past.last is not None else time.time(),
        "outlook": "the journal will be set aside; staged packages will be kept as backups",
    }


def _items(line: dict[str, Any]) -> list[Item] | None:
    """What a journal's line says of the swap; None when it makes no sense. Raises Fault for a hostile one."""
    package, inodes, new_in = line.get("package"), line.get("inodes"), line.get("new_in")
    if not isinstance(package, str) or not IDENTIFIER.fullmatch(package) or not isinstance(inodes, dict):
        return None
    if not isinstance(new_in, str) or not NEW_IN.fullmatch(new_in):
        return None
    items = []
    for name, numbers in inodes.items():
        if name != package and not (name.endswith((".dist-info", ".egg-info")) and "/" not in name):
            return None
        if (
            not isinstance(numbers, list)
            or len(numbers) != 3
            or not all(type(n) is int and n >= 0 for n in numbers)
        ):
            return None
        items.append(Item(name, *numbers))
    return items if items and items[0].name == package else None


def _fate(folder: int, line: dict[str, Any]) -> str:
    """Which of OUTLOOKS it is, by what lies where."""
    if line["state"] in BEFORE_SWAP:
        return "nothing"
    items, site = _items(line), line.get("site")
    if items is None or not isinstance(site, str):
        return "foreign"
    try:
        fd = os.open(site, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return "undo"
    try:
        at = disk.inode_at(fd, items[0].name)
    finally:
        os.close(fd)
    first = items[0]
    if at not in (0, first.old, first.new, first.gone):
        return "foreign"
    if line["state"] == "undoing" or at != first.new:
        return "in place" if at == first.old else "undo"
    return "finish"


def _settle(target: Place, spot: Spot, line: dict[str, Any]) -> str:
    number, fate = line["id"], _fate(target.fd, line)
    about = f"{_title(line)} was cut short while {STEPS[line['state']]}"
    journal = Journal(
        target.fd, number, by=line.get("by", ""), what=line.get("what", ""), **{"from": line.get("from")}
    )
    if fate == "nothing":
        step("remove stage")
        disk.remove(target.fd, f"stage-{number}")
        journal.write("undone", note="cut short")
        return f"{about}: what was staged was removed, the package is as it was"
    items, site = _items(line), line.get("site")
    if items is None or site not in spot.sites:
        kept = _save_stages(target, str(line.get("package") or spot.package))
        journal.write("undone", note="its journal makes no sense")
        return "; ".join(
            [f"{about}, and its journal does not tell where: the package was left as it is", *kept]
        )
    made = Deal(target, number, journal, str(site), items[0].name, line["new_in"], items)
    try:
        return f"{about}: {_bring_to_end(made, spot, line, fate)}"
    except OSError as error:
        raise fault(error, f"{about}; it can't be brought to its end now") from None
    finally:
        made.close()


def _bring_to_end(made: Deal, spot: Spot, line: dict[str, Any], fate: str) -> str:
    try:
        if fate == "finish":
            failed = ""
            if line["state"] != "swapped":
                checks = made.complete(spot.origin)
                failed = "; ".join(item["detail"] for item in checks if item["state"] == "fail")
            if not failed:
                made.keep("finished by the next copy")
                return "it was finished, the new package is in place"
            made.undo(failed)
            return f"it was undone, the old package is in place ({failed})"
        if fate != "foreign":
            made.undo("undone by the next copy")
            return "it was undone, the old package is in place"
    except Foreign:
        pass
    kept = made.abandon("somebody else replaced the package meanwhile")
    return f"somebody else has replaced the package since: it was left, {kept}"


def _sweep(target: Place) -> None:
    """Remove what no journal tells of: it lies there since a death before or after a copy's lines."""
    for name in os.listdir(target.fd):
        if name.startswith(("stage-", ".")):
            step("sweep")
            try:
                disk.remove(target.fd, name)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EBUSY):
                    raise


def _save_stages(target: Place, package: str) -> list[str]:
    """Keep staged packages as backups: without a journal, nobody can tell that one is not the old package."""
    words = []
    for name in sorted(os.listdir(target.fd)):
        if not name.startswith("stage-"):
            continue
        try:
            stage = disk.open_folder(name, target.fd)
        except OSError:
            continue
        try:
            if not disk.inode_at(stage, package):
                continue
            names = [package, *infos_in(f"{target.path}/{name}", package)]
            number = new_id()
            info = {
                "id": number,
                "at": time.time(),
                "version": "",
                "reason": "copy",
                "tree": "",
                "provenance": None,
            }
            backups.seal(target.fd, stage, info, survey(stage, names), names)
            for other in set(os.listdir(stage)) - {*names, backups.INFO, "manifest.json"}:
                disk.remove(stage, other)
            step("keep stage")
            disk.rename(target.fd, name, target.fd, f"backups/{number}")
            words.append(f"{name} was kept as backup {number}")
        finally:
            with contextlib.suppress(OSError):
                os.close(stage)
    return words
