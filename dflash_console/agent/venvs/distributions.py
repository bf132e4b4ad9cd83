"""What is installed in an environment, by the metadata beside the packages: dist-info and egg-info."""

from __future__ import annotations

import json
import re

from ..section import missing, shortened
from .look import Look

__all__ = ["Distribution", "Distributions", "normalise"]

METADATA_LIMIT = 1 << 14
"""Bytes; Name and Version are in the first lines, the description after them may be long."""

INFO = re.compile(r"([^~].*?)(-\d[^-]*(-py[\d.]+)?)?\.(dist|egg)-info", re.DOTALL)
"""The name, then the version. pip leaves folders that begin with a tilde behind when it fails."""


class Distribution:
    """One dist-info or egg-info."""

    def __init__(self, folder: str, name: str, version: str, problem: str = "") -> None:
        self.path = f"{folder}/{name}"
        self.name = name
        self.version = version
        """By the metadata inside; empty when that can't be read."""
        self.problem = problem or f"{name} has no version in its METADATA"
        """Why the version is empty, when it is."""


class Distributions:
    """What importlib.metadata would find on a search path; read when asked for."""

    def __init__(self, folders: list[str], look: Look) -> None:
        self._look = look
        self._known: dict[str, list[tuple[str, str]]] = {}
        for folder in folders:
            for name in look.names(folder):
                match = INFO.fullmatch(name) if name.endswith("-info") else None
                if match:
                    self._known.setdefault(normalise(match[1]), []).append((folder, name))

    def find(self, name: str) -> list[Distribution]:
        """All in the first folder that has any of that name, more than one only in a spoilt environment."""
        places = self._known.get(normalise(name), [])
        return [self._read(folder, item) for folder, item in places if folder == places[0][0]]

    def version(self, name: str) -> str | dict[str, str]:
        """The version, or missing(...) when there is none or it can't be told."""
        found = self.find(name)
        if not found:
            return missing("not_found", f"no dist-info of {name}")
        if len(found) > 1:
            return missing("mismatch", f"{len(found)} at once: " + ", ".join(item.name for item in found))
        return found[0].version or missing("error", found[0].problem)

    def versions(self, names: list[str]) -> dict[str, str]:
        """Of those that are there, by the names asked for; more than one version is `0.5.9 and 0.5.11`."""
        there = {name: [item.version or "?" for item in self.find(name)] for name in names}
        return {name: " and ".join(versions) for name, versions in there.items() if versions}

    def direct_url(self, name: str) -> tuple[str, bool] | None:
        """Where it was installed from instead of an index, without credentials; and if it is editable."""
        for item in self.find(name):
            text = self._look.text(f"{item.path}/direct_url.json")
            try:
                record = json.loads(text) if text else None
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and isinstance(record.get("url"), str):
                folder = record.get("dir_info")
                editable = isinstance(folder, dict) and folder.get("editable") is True
                return _url(record), editable
        return None

    def _read(self, folder: str, name: str) -> Distribution:
        text = None
        for file in ("METADATA", "PKG-INFO"):
            text = text or self._look.text(f"{folder}/{name}/{file}", METADATA_LIMIT, is_head=True)
        # An egg-info may be a file.
        text = text or self._look.text(f"{folder}/{name}", METADATA_LIMIT, is_head=True)
        files = [f"{folder}/{name}/METADATA", f"{folder}/{name}/PKG-INFO", f"{folder}/{name}"]
        odd = next(
            (f"{file} is {self._look.odd[file]}, not a file" for file in files[:2] if file in self._look.odd),
            "",
        )
        return Distribution(folder, name, _version(text or ""), odd)


def _version(metadata: str) -> str:
    """The header ends at the first empty line; what follows is a description, with whatever lines in it."""
    for line in metadata.split("\n"):
        if not line.strip():
            break
        if line.startswith("Version:"):
            return shortened(line[len("Version:") :].strip(), 100)
    return ""


def normalise(name: str) -> str:
    """A distribution's name as indexes compare it: `Flashinfer_python` is `flashinfer-python`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _url(record: dict[str, object]) -> str:
    """The folder of a file URL, `git+https://host/path@revision` of a checkout, else the URL."""
    from urllib.parse import unquote

    url = str(record["url"])
    if url.startswith("file://"):
        return shortened(unquote(url[len("file://") :].partition("?")[0]), 1000)
    # Tokens travel before the host and in the query.
    url = re.sub(r"^([a-z0-9+.-]+://)[^/?#]*@", r"\1", url, flags=re.IGNORECASE).partition("?")[0]
    url = shortened(url, 1000)
    vcs = record.get("vcs_info")
    if not isinstance(vcs, dict):
        return url
    revision = vcs.get("requested_revision") or str(vcs.get("commit_id", ""))[:12]
    kind = shortened(str(vcs.get("vcs", "vcs")), 100)
    return f"{kind}+{url}" + (f"@{shortened(str(revision), 100)}" if revision else "")
