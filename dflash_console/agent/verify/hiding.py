"""What a unit's sandbox hides from it (systemd.exec(5)). Of a unit that runs, its own mounts tell; of another one, its
properties."""

from __future__ import annotations

import os

__all__ = ["PROPERTIES", "hidden_by"]

PROPERTIES = (
    "ProtectHome",
    "PrivateTmp",
    "InaccessiblePaths",
    "TemporaryFileSystem",
    "BindPaths",
    "BindReadOnlyPaths",
    "MountImages",
    "ExtensionImages",
    "ExtensionDirectories",
)
MOUNTED = ("BindPaths", "BindReadOnlyPaths", "MountImages")


def hidden_by(block: dict[str, str], path: str) -> tuple[str, bool]:
    """The property that hides a path from the unit, as `NAME=VALUE`, and whether that is sure: what is mounted there
    may show it again, or show something else. Empty when nothing does."""
    places = {os.path.abspath(path), os.path.realpath(path)}
    for name in ("ExtensionImages", "ExtensionDirectories"):
        if block.get(name) and any(_is_below(place, top) for place in places for top in ("/usr", "/opt")):
            return f"{name}={block[name]}", False
    mounted = [
        (name, word) for name in MOUNTED for word in block.get(name, "").split() if _touches(word, places)
    ]
    for name, top in _hidden_places(block):
        if any(_is_below(place, top) for place in places):
            return name, not mounted
    return (f"{mounted[0][0]}={mounted[0][1]}", False) if mounted else ("", True)


def _hidden_places(block: dict[str, str]) -> list[tuple[str, str]]:
    found = []
    home = block.get("ProtectHome", "no")
    if home in ("yes", "tmpfs", "true", "1"):
        found += [(f"ProtectHome={home}", top) for top in ("/home", "/root", "/run/user")]
    temporary = block.get("PrivateTmp", "no")
    if temporary in ("yes", "disconnected", "true", "1"):
        found += [(f"PrivateTmp={temporary}", top) for top in ("/tmp", "/var/tmp")]
    for name in ("InaccessiblePaths", "TemporaryFileSystem"):
        for word in block.get(name, "").split():
            top = word.lstrip("-+").partition(":")[0]
            found.append((f"{name}={top}", os.path.realpath(top)))
    return found


def _touches(word: str, places: set[str]) -> bool:
    """Whether a mount, `SOURCE:TARGET:OPTIONS`, comes over a path or above it."""
    parts = word.lstrip("-+").split(":")
    target = parts[1] if len(parts) > 1 and parts[1] else parts[0]
    return any(_is_below(place, os.path.realpath(target)) for place in places)


def _is_below(path: str, top: str) -> bool:
    return f"{path}/".startswith(f"{top.rstrip('/')}/")
