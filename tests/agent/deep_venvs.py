"""Environments for the deep parts: real trees of sglang, and the metadata of what they ask for."""

from __future__ import annotations

import shutil
from pathlib import Path

from packaging.requirements import Requirement

from tests.agent.environments import make_venv
from tests.wheels import wheel

__all__ = ["METADATA", "add", "healthy", "metadata", "remove", "tree_of"]

METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nWords.\n"


def healthy(folder: Path, version: str = "0.5.13.post1") -> Path:
    """An environment with sglang's tree and the dist-info of all it asks for; its site-packages."""
    site = make_venv(folder)
    _lay(version, site)
    for line in metadata(version).split("\n\n")[0].splitlines():
        if line.startswith("Requires-Dist:"):
            requirement = Requirement(line.partition(":")[2].strip())
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                add(site, requirement.name, _least(requirement))
    torch = site / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("")
    write_torch(site, "2.11.0+cu130", "13.0")
    return site


def write_torch(site: Path, version: str, cuda: str | None) -> None:
    """torch's own words about its build."""
    text = f"from typing import Optional\n__version__ = {version!r}\ncuda: Optional[str] = {cuda!r}\nhip = None\n"
    (site / "torch" / "version.py").write_text(text)


def metadata(version: str) -> str:
    """The METADATA of a real sglang."""
    return (wheel(version) / f"sglang-{version}.dist-info" / "METADATA").read_text()


def add(site: Path, name: str, version: str, folder: str = "") -> Path:
    """Adds a distribution's metadata, and nothing else of it."""
    info = site / (folder or f"{name.replace('-', '_')}-{version}.dist-info")
    info.mkdir()
    (info / "METADATA").write_text(METADATA.format(name=name, version=version))
    return info


def remove(site: Path, name: str) -> None:
    """Removes a distribution's metadata."""
    (info,) = site.glob(f"{name.replace('-', '_')}-[0-9]*.dist-info")
    shutil.rmtree(info)


def tree_of(site: Path, version: str) -> None:
    """Replaces the tree by another version's, as a copy does: the dist-info stays."""
    shutil.rmtree(site / "sglang")
    _lay(version, site, ("sglang/",))


def _lay(version: str, site: Path, places: tuple[str, ...] = ("sglang/", "sglang-")) -> None:
    """The files of a real wheel that the deep parts read, of the thousands that it has."""
    wanted = (
        "__init__.py",
        "_version.py",
        "version.py",
        "engine.py",
        "common.py",
        ".so",
        "METADATA",
        "WHEEL",
        "RECORD",
    )
    source = wheel(version)
    for file in source.rglob("*"):
        name = file.relative_to(source)
        if str(name).startswith(places) and file.name.endswith(wanted) and file.is_file():
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, site / name)


def _least(requirement: Requirement) -> str:
    bounds = [part.version for part in requirement.specifier if part.operator in ("==", ">=", "~=")]
    return max(bounds, default="1.0")
