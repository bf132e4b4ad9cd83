"""The RECORD of the host that a copied package comes from, against the files here: it vouches for a tree for which the
RECORD here can't, being of another version.

It travels in lines beside the METADATA's, packed: 5,800 rows are 0.3 MB.
"""

from __future__ import annotations

import json
import stat

from ..verify.checks import check, first_few
from ..verify.files import tree_of
from ..verify.record import Record, compare, is_code, read_record
from .requirements import header_of

__all__ = ["check_source", "pack_record"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..verify.tree import Tree
    from .environment import Environment

MARK = "X-Record:"
LINE = 3000
SIZE_LIMIT = 16 << 20
"""Bytes of an unpacked RECORD."""


def pack_record(environment: Environment) -> list[str]:
    """The RECORD's rows of the package's own files, as lines; none without a RECORD."""
    import zlib
    from base64 import b64encode

    vouching = environment.ground.vouching
    record = read_record(vouching.path) if vouching is not None else ""
    if isinstance(record, str):
        return []
    prefix = f"{environment.package}/"
    rows = {name: row for name, row in record.rows.items() if name.startswith(prefix) and row[0]}
    text = b64encode(zlib.compress(json.dumps(rows).encode("ascii"))).decode("ascii")
    return [f"{MARK} {text[at : at + LINE]}" for at in range(0, len(text), LINE)]


def check_source(environment: Environment, message: dict[str, Any]) -> list[dict[str, Any]]:
    """The check `source`, where the package here is of another version than its dist-info and the RECORD of a host
    that has this version is at hand. Raises OSError when the disk fails."""
    rows = _rows(str(message.get("source_metadata") or ""))
    tree = tree_of(environment.ground)
    if not rows or tree is None or environment.tree_version == environment.dist_version:
        return []
    record = Record(environment.ground.home)
    record.rows = rows
    found = compare(record, tree)
    place = f"the RECORD of {environment.tree_version} on {(message.get('source') or {}).get('host') or 'its source'}"
    lost = [name for name in found.missing if is_code(name)]
    emptied = [name for name in found.changed if is_code(name) and _is_empty(tree, name, environment.package)]
    changed = [name for name in found.changed if name not in set(emptied)]
    parts = [("missing", lost), ("emptied", emptied), ("changed", changed), ("unreadable", found.unreadable)]
    told = [f"{len(names):,} {word} ({first_few(names, 2)})" for word, names in parts if names]
    evidence = [f"{word}: {name}" for word, names in parts for name in names]
    evidence += [f"missing, and no code: {name}" for name in found.missing if not is_code(name)]
    if lost or emptied:
        return [check("source", "fail", f"cut short or damaged: {', '.join(told)}, by {place}", evidence)]
    if told:
        return [check("source", "warn", f"{', '.join(told)}, by {place}: patched or damaged", evidence)]
    return [check("source", "pass", f"{len(found.same):,} files as in {place}", evidence)]


def _is_empty(tree: Tree, name: str, package: str) -> bool:
    seen = tree.files.get(name[len(package) + 1 :])
    return seen is not None and stat.S_ISREG(seen.mode) and seen.size == 0


def _rows(text: str) -> dict[str, tuple[str, str, int | None]]:
    """The rows that were packed; none when they can't be unpacked."""
    import zlib
    from base64 import b64decode

    packed = "".join(line[len(MARK) :].strip() for line in header_of(text) if line.startswith(MARK))
    try:
        data = zlib.decompressobj().decompress(b64decode(packed, validate=True), SIZE_LIMIT)
        rows = json.loads(data) if data else {}
        return {
            str(name): (str(row[0]), str(row[1]), row[2]) for name, row in rows.items() if ".." not in name
        }
    except (ValueError, zlib.error, AttributeError, LookupError, TypeError):
        return {}
