"""Virtual environments and the package in them.

One cause gives one finding: what a nested copy hides is not also missing, what a copy that was cut short left is
told with it, and a venv that is not there lacks nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from dflash_console.findings.picture import Picture
from dflash_console.model import Finding, Level, Missing, Package, Venv

__all__ = [
    "broken_modules",
    "interrupted_copies",
    "missing_modules",
    "missing_venvs",
    "namespace_remains",
    "nested_copies",
    "no_package",
    "other_origins",
    "versions_differ",
]


def packages(picture: Picture) -> Iterator[tuple[Venv, Package]]:
    """The venvs that have the package, each with it."""
    for venv in picture.snapshot.venvs:
        if isinstance(venv.package, Package):
            yield venv, venv.package


def settled(picture: Picture) -> Iterator[tuple[Venv, Package]]:
    """Those of them that no copy was cut short in."""
    return ((venv, package) for venv, package in packages(picture) if not venv.interrupted)


def is_wanted_in(picture: Picture, venv: Venv) -> bool:
    """Whether the package of this venv is the one that copies come from or go to."""
    if picture.package_venv is not None:
        return picture.is_package_venv(venv.path)
    return picture.role in ("source", "target")


def is_sound(package: Package) -> bool:
    """Whether the tree is one that an import can start in."""
    return not package.nested and package.kind != "namespace"


def missing_venvs(picture: Picture) -> Iterator[Finding]:
    """A venv that the config or a unit names and that is not there or can't be read."""
    for venv in picture.snapshot.venvs:
        if not isinstance(venv.python, Missing) or venv.source == "found":
            continue
        who = "the config names it" if venv.source == "config" else "a unit starts from it"
        if venv.python.missing == "not_found":
            text = f"no venv is there; {who}"
            yield Finding("venv_missing", "warning", venv.path, text, step_for(venv))
        else:
            detail = venv.python.detail or venv.python.missing
            yield Finding("venv_unreadable", "warning", venv.path, f"can't be read: {detail}")


def step_for(venv: Venv) -> str:
    """What helps when a venv is not there."""
    return (
        "correct venvs or package_venv in config.toml"
        if venv.source == "config"
        else "systemctl cat its unit"
    )


def interrupted_copies(picture: Picture) -> Iterator[Finding]:
    """A copy into a venv that was begun and neither finished nor undone."""
    for venv in picture.snapshot.venvs:
        if venv.interrupted:
            lack = what_lacks(venv.package)
            text = f"not settled{f', and {lack}' if lack else ''}: {venv.interrupted}"
            level: Level = "critical" if lack else "warning"
            yield Finding("copy_interrupted", level, venv.path, text, "c or b finishes or undoes it")


def what_lacks(package: Package | Missing) -> str:
    """Why a package can't be used as it lies there; empty when nothing shows that."""
    if isinstance(package, Missing):
        return "the package is not there" if package.missing == "not_found" else "the package can't be read"
    if not is_sound(package):
        return "the package is not whole"
    lost = [leaf(name) for name, origin in package.modules.items() if not isinstance(origin, str)]
    return f"the package lacks {', '.join(lost)}" if lost else ""


def nested_copies(picture: Picture) -> Iterator[Finding]:
    """A tree that holds a copy of itself, as `scp -r` onto an existing folder makes it."""
    for venv, package in packages(picture):
        if package.nested:
            name = package.name
            text = f"nested copy: {name}/{name} holds a second tree, Python still imports the outer one"
            yield Finding(
                "nested_copy",
                "critical",
                venv.path,
                text,
                "move the whole folder away, then copy again: never onto it",
            )


def namespace_remains(picture: Picture) -> Iterator[Finding]:
    """A folder of the package's name without `__init__.py`."""
    for venv, package in settled(picture):
        if package.kind == "namespace" and not package.nested:
            text = f"{package.name} is a folder without __init__.py: remains of an uninstall or a half copy"
            yield Finding(
                "namespace_remains",
                "critical",
                venv.path,
                text,
                "move the remains away, then copy or install it",
            )


def broken_modules(picture: Picture) -> Iterator[Finding]:
    """Module files that are there and can't serve: empty, or not readable."""
    for venv, package in settled(picture):
        broken = {name: why for name, why in package.modules.items() if isinstance(why, Missing)}
        if broken and is_sound(package):
            listed = ", ".join(leaf(name) for name in broken)
            why = next(iter(broken.values()))
            text = f"{listed}: the file is there and can't be imported ({why.detail or why.missing})"
            yield Finding("module_broken", "critical", venv.path, text, "copy the package again")


def missing_modules(picture: Picture) -> Iterator[Finding]:
    """Wanted modules that the package lacks, where the package is meant to be whole."""
    for venv, package in settled(picture):
        absent = [name for name, origin in package.modules.items() if origin is None]
        if not absent or not is_sound(package) or not is_wanted_in(picture, venv):
            continue
        version = f" {package.version}" if isinstance(package.version, str) else ""
        if len(absent) == len(package.modules):
            text = f"{package.name}{version} has no DFlash at all: a build as PyPI ships it"
        else:
            text = f"{package.name}{version} lacks {', '.join(leaf(name) for name in absent)}"
        yield Finding("modules_missing", "warning", venv.path, text, "copy the patched package here")


def no_package(picture: Picture) -> Iterator[Finding]:
    """The venv that is meant to hold the package does not, or no venv of a source or target does."""
    readable = [venv for venv in picture.snapshot.venvs if isinstance(venv.python, str)]
    for venv in readable:
        if venv.interrupted:
            continue
        if isinstance(venv.package, Missing) and not is_absent(venv):
            text = f"the package can't be read: {venv.package.detail or venv.package.missing}"
            yield Finding("package_unreadable", "warning", venv.path, text)
        elif is_absent(venv) and picture.is_package_venv(venv.path):
            yield Finding(
                "package_missing", "warning", venv.path, "the package is not in it", "copy or install it here"
            )
    is_named = picture.package_venv is not None or picture.role == "observe"
    if readable and not is_named and all(is_absent(venv) for venv in readable):
        text = "the package is in none of the venvs that were found"
        yield Finding(
            "package_missing", "warning", "venvs", text, "name its venv: package_venv in config.toml"
        )


def is_absent(venv: Venv) -> bool:
    """Whether the package is known not to be in the venv."""
    return isinstance(venv.package, Missing) and venv.package.missing == "not_found"


def versions_differ(picture: Picture) -> Iterator[Finding]:
    """The tree is of another version than its dist-info: copied beside what pip laid for another one."""
    for venv, package in packages(picture):
        tree, dist = package.version, package.dist_version
        if isinstance(tree, str) and isinstance(dist, str) and tree != dist and is_sound(package):
            text = (
                f"{package.name} {tree} was copied over {dist}: torch and kernels here are those for {dist}"
            )
            level: Level = "warning" if picture.role == "target" else "note"
            yield Finding(
                "version_differs", level, venv.path, text, "see that torch and the kernels fit the tree"
            )


def other_origins(picture: Picture) -> Iterator[Finding]:
    """The package is not the venv's own: an editable install, or a path that leads elsewhere."""
    for venv, package in packages(picture):
        if package.kind == "editable":
            source = f" of {package.editable_from}" if package.editable_from else ""
            text = f"{package.name} is an editable install{source}: it changes with that folder"
            yield Finding("package_editable", "note", venv.path, text)
        elif package.outside and isinstance(package.origin, str):
            text = f"{package.name} comes from outside the venv: {package.origin}"
            yield Finding("package_outside", "note", venv.path, text)


def leaf(module: str) -> str:
    """The last part of a module's name."""
    return module.rpartition(".")[2]
