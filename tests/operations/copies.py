"""Looks, entries and plans as a copy has them, for tests that need no host."""

from __future__ import annotations

from typing import Any

from dflash_console.copies import Entry, Look, Side, TargetPlan
from dflash_console.verdict import NEEDED, Check, Verdict

__all__ = ["SOURCE", "TARGET", "entry", "failed", "look", "ready", "target_plan"]

SOURCE = Side("ct129", "/root/ml-env")
TARGET = Side("ct200", "/root/venv_sglang")


def entry(path: str, content: str = "0", size: int = 10, mode: int = 0o644, **fields: Any) -> Entry:
    """A file of the package."""
    return Entry(path, fields.get("kind", "file"), size, mode, content)


def look(**fields: Any) -> Look:
    """An ordinary package on an ordinary host."""
    given: dict[str, Any] = {
        "venv": "/root/venv_sglang",
        "site": "/root/venv_sglang/lib/python3.11/site-packages",
        "state": "whole",
        "version": "0.5.9",
        "dist_infos": ("sglang-0.5.9.dist-info",),
        "tree": "tree",
        "stamp": "stamp",
        "files": 2,
        "size": 20,
        "python": "3.11.2",
        "soabi": "cpython-311-x86_64-linux-gnu",
        "glibc": "2.36",
        "free": 1 << 40,
        "free_inodes": 1 << 20,
        "filesystem": "ext4",
    }
    return Look(**{**given, **fields})


def ready(host: str = "ct129", venv: str = "/root/ml-env") -> Verdict:
    """A package that was proved."""
    return Verdict(host, venv, tuple(Check(name, "pass", "as it should be") for name in NEEDED))


def failed(host: str = "ct129", venv: str = "/root/ml-env") -> Verdict:
    """A package that was proved not to be right."""
    checks = [Check(name, "fail" if name == "modules" else "pass", "missing: dflash_info") for name in NEEDED]
    return Verdict(host, venv, tuple(checks))


def target_plan(**fields: Any) -> TargetPlan:
    """A plan that may be carried out."""
    given: dict[str, Any] = {"side": TARGET, "look": look(), "checks": (Check("place", "pass"),)}
    return TargetPlan(**{**given, **fields})
