"""What a verification asks: which environments of a host, and what the agent has to be told for each part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dflash_console.config import Config, HostConfig
from dflash_console.fleet import HostView
from dflash_console.model import Gpu, Missing, Package, Venv
from dflash_console.verdict import DEEP_PARTS, QUICK_PARTS, Part

__all__ = ["LIMITS", "Order", "environments", "needed_sections", "order", "source_of"]

LIMITS: dict[Part, float] = {
    "files": 30.0,
    "find_spec": 60.0,
    "service": 60.0,
    "pins": 30.0,
    "abi": 120.0,
    "import": 300.0,
    "cuda": 60.0,
}
"""Seconds that a part may take on the host."""


BRIEF = 1.5
"""Seconds that the environment's interpreter may take for compiling in a verification that is to answer at once."""


class Order(msgspec.Struct, frozen=True):
    """One environment to be verified."""

    host: str
    venv: str
    is_deep: bool
    fields: dict[str, object]
    """What every part is told."""
    deep_fields: dict[str, object] = {}
    """What the deep parts are told besides."""
    source: tuple[str, str] | None = None
    """The host and environment that the package comes from, whose metadata a deep verification needs."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """What is asked, side by side."""
        return QUICK_PARTS + DEEP_PARTS if self.is_deep else QUICK_PARTS


def needed_sections(host: HostConfig, venv: str | None, *, is_deep: bool) -> frozenset[str]:
    """The sections of a host's picture that must have come before it can be verified."""
    needed = {"units"}
    if (venv is None and not host.venvs and host.package_venv is None) or is_deep:
        needed.add("venvs")
    if is_deep:
        needed.add("gpu")
    return frozenset(needed)


def environments(view: HostView) -> tuple[str, ...]:
    """The environments of a host that a verification is about when none is named.

    Those of the config; else those found that hold the package; else all that were found.
    """
    config = view.config
    named = [*(config.venvs or ()), *([config.package_venv] if config.package_venv else [])]
    if named:
        return tuple(dict.fromkeys(at_home(view, path) for path in named))
    found = view.snapshot.venvs if view.snapshot is not None else []
    holding = [venv.path for venv in found if not isinstance(venv.package, Missing)]
    return tuple(holding or [venv.path for venv in found])


def at_home(view: HostView, path: str) -> str:
    """A path of the config with the login user's home for `~/`, where that is known already."""
    home = view.snapshot.host.home if view.snapshot is not None else ""
    return f"{home.rstrip('/')}/{path[2:]}" if home and path.startswith("~/") else path.rstrip("/") or path


def order(
    view: HostView,
    config: Config,
    venv: str,
    views: Sequence[HostView],
    *,
    is_deep: bool,
    is_brief: bool | None = None,
) -> Order:
    """The order for one environment, from what is known of its host and of the others.

    `is_brief`: whether what no RECORD vouches for is only begun to be compiled, since somebody waits for the answer and
    may ask again; by default all but a deep one are.
    """
    snapshot = view.snapshot
    units = snapshot.units if snapshot is not None else []
    venv = at_home(view, venv)
    home = view.config.package_venv
    fields: dict[str, object] = {
        "venv": venv,
        "package": config.package.name,
        "modules": config.package.alternatives,
        "units": [unit.name for unit in units if unit.load != "not-found"],
        "brief": BRIEF if (not is_deep if is_brief is None else is_brief) else None,
        # Text can't tell whether two paths lead to one folder: there may be links on the way.
        "package_venv": at_home(view, home) if home else None,
        "is_package_venv": at_home(view, home) == venv if home else environments(view) == (venv,),
    }
    if not is_deep:
        return Order(view.config.name, venv, False, fields)
    deep: dict[str, object] = {}
    if snapshot is not None:
        deep["gpus"] = [_gpu_fields(gpu) for gpu in snapshot.gpu.gpus]
        deep["driver"] = {
            "version": _text(snapshot.gpu.driver),
            "cuda": _text(snapshot.gpu.cuda),
        }
    source = source_of(view, venv, views)
    if source is not None:
        host, there = source
        deep["source"] = {
            "host": host,
            "venv": there.path,
            "torch": _text(there.torch_build),
            "python": _text(there.python),
        }
        return Order(view.config.name, venv, True, fields, deep, (host, there.path))
    return Order(view.config.name, venv, True, fields, deep)


def source_of(view: HostView, venv: str, views: Iterable[HostView]) -> tuple[str, Venv] | None:
    """Where the package in an environment may come from: a host of the role `source` that has the same version of the
    tree as its dist-info. None when the tree is what was installed here, or no such host is known."""
    here = _package(view, venv)
    if here is None or here.version == here.dist_version:
        return None
    for other in views:
        if other.config.role != "source" or other.snapshot is None:
            continue
        for there in other.snapshot.venvs:
            package = there.package
            is_same_place = other.config.name == view.config.name and there.path == venv
            if isinstance(package, Package) and package.version == here.version and not is_same_place:
                return other.config.name, there
    return None


def _package(view: HostView, venv: str) -> Package | None:
    for candidate in view.snapshot.venvs if view.snapshot is not None else ():
        if candidate.path == venv and isinstance(candidate.package, Package):
            return candidate.package
    return None


def _gpu_fields(gpu: Gpu) -> dict[str, object]:
    is_busy = bool(gpu.processes) if isinstance(gpu.processes, list) else True
    return {"index": gpu.index, "uuid": _text(gpu.uuid), "busy": is_busy or gpu.hidden_memory > 0}


def _text(cell: str | Missing) -> str | None:
    return cell if isinstance(cell, str) else None
