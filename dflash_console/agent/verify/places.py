"""Checks of where the package comes from: the interpreter, origin, modules, nested copies, what shadows it."""

from __future__ import annotations

import os
import re

from ..venvs.importing import EDITABLE_MODULE, Finder, SearchPath
from .checks import check, first_few
from .ground import leaf
from .question import home

__all__ = ["check_modules", "check_nested", "check_origin", "check_python", "check_shadow"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .ground import Ground
    from .tree import Tree

HARMLESS_PTH = frozenset(["distutils-precedence.pth", "_virtualenv.pth", "a1_coverage.pth"])
"""Files whose code, of setuptools, virtualenv and coverage, adds nothing to the search path."""


def check_python(ground: Ground, tree: Tree | None) -> dict[str, Any]:
    """Whether the environment and its interpreter are there, and the compiled files are for it."""
    if ground.problem is not None:
        return check("python", "fail", f"{ground.folder}: {ground.problem['detail']}")
    python = ground.interpreter.python
    if isinstance(python, dict):
        return check("python", "fail", f"{ground.folder}: {python['detail']}")
    foreign = _foreign(ground, tree) if tree is not None else []
    if foreign:
        detail = f"{python}, but {len(foreign)} compiled for another Python: {first_few(foreign, 2)}"
        return check("python", "warn", detail, foreign)
    return check("python", "pass", f"{python}, {ground.python()}")


def _foreign(ground: Ground, tree: Tree) -> list[str]:
    """Compiled modules with another Python's tag in their name, and none beside them for this one."""
    minor = ground.interpreter.minor
    tag = f"cpython-{minor[0]}{minor[1]}{ground.interpreter.threads}-"
    found = []
    for name in tree.names:
        match = re.search(r"\.cpython-\d+t?-[^/]*\.so$", name) if name.endswith(".so") else None
        if match and not match[0].startswith(f".{tag}"):
            ours = re.sub(r"^\.cpython-\d+t?-", f".{tag}", match[0])
            if name[: match.start()] + ours not in tree.names:
                found.append(name)
    return found


def check_origin(ground: Ground, cells: dict[str, Any], should_be_empty: bool | None) -> dict[str, Any]:
    """Where an import of the package would come from. `should_be_empty`: what RECORD says of its __init__.py."""
    if "missing" in cells:
        adder = _path_code(ground) if cells["missing"] == "not_found" else ""
        if adder:
            words = f"code in {adder} may put it on the path: find_spec's own answer decides"
            return check("origin", "warn", f"{cells['detail']} by the files, but {words}")
        state = "unknown" if cells["missing"] in ("error", "hung", "permission") else "fail"
        return check("origin", state, f"{ground.folder}: {cells['detail']}")
    origin, site = cells["origin"], ground.site
    if isinstance(origin, dict):
        return check("origin", "fail", f"{ground.package} is {origin['detail']}")
    if ground.found is None or ground.found.folders is None:
        return check("origin", "fail", f"{origin}: a single file, not a package")
    size = ground.look.size(origin)
    if size is None or ground.look.text(origin, 1, is_head=True) is None:
        number = ground.look.errors.get(origin, 0)
        return check("origin", "fail", f"{origin}: {os.strerror(number) if number else 'no regular file'}")
    if size == 0 and not should_be_empty:
        return check("origin", "fail" if should_be_empty is False else "warn", f"empty: {origin}")
    if cells["kind"] == "editable":
        source = cells["editable_from"] or ground.where
        return check("origin", "warn", f"{origin}: an editable install of {source}, not in {site}")
    if cells["outside"]:
        real = os.path.realpath(origin)
        if origin.startswith(f"{site}/"):
            return check("origin", "warn", f"{origin} is a link out of the environment, to {real}")
        return check("origin", "warn", f"{origin} lies outside the environment's own {site}")
    return check("origin", "pass", origin)


def check_modules(ground: Ground, cells: dict[str, Any], modules: list[list[str]]) -> dict[str, Any]:
    """Each configured module, by its first alternative that can serve."""
    if "missing" in cells and cells["missing"] == "not_found" and _path_code(ground):
        return check("modules", "warn", "not told by the files: find_spec's own answer decides")
    if "missing" in cells:
        return check("modules", "fail", f"missing: {', '.join(map(_either, modules))}")
    told: dict[str, Any] = cells["modules"]
    faults: dict[str, list[str]] = {"missing": [], "empty": [], "unreadable": [], "unusable": []}
    evidence = []
    for name, origin in told.items():
        if isinstance(origin, str):
            evidence.append(f"{name}: {origin}")
            continue
        kind = "missing"
        if origin is not None:
            words = origin["detail"]
            kind = "empty" if words.startswith("zero bytes") else "unusable"
            kind = "unreadable" if origin["missing"] == "permission" else kind
            evidence.append(f"{name}: {words.replace('zero bytes', 'empty, zero bytes')}")
        else:
            evidence.append(f"{name}: not there")
        listed = next((item for item in modules if name in item), [name])
        faults[kind].append(_either(listed) if kind == "missing" else leaf(name))
    wrong = [f"{kind}: {', '.join(names)}" for kind, names in faults.items() if names]
    if not wrong:
        served = ", ".join(map(leaf, told)) or "none are listed"
        poor = _poor_alternatives(ground, told, modules)
        if poor:
            return check(
                "modules", "warn", f"{first_few(poor)}, though another one serves: {served}", evidence + poor
            )
        return check("modules", "pass", served, evidence)
    detail = "; ".join(wrong)
    if cells["nested"]:
        inside = [item for item in modules if any(map(_finds(ground), item))]
        detail += f"; {'they lie' if inside else 'a copy lies'} in the nested {ground.where}/{ground.package}"
    return check("modules", "fail", detail, evidence)


def _poor_alternatives(ground: Ground, told: dict[str, Any], modules: list[list[str]]) -> list[str]:
    """Alternatives that are there and can't serve, beside one that does."""
    found = []
    for name in (name for alternatives in modules if len(alternatives) > 1 for name in alternatives):
        module = ground.finder.find(name) if name not in told else None
        if module is None or not module.origin:
            continue
        size = ground.look.size(module.origin)
        if size == 0 and not module.folders:
            found.append(f"empty: {module.origin}")
        elif size is None or ground.look.text(module.origin, 1, is_head=True) is None:
            number = ground.look.errors.get(module.origin, 0)
            found.append(f"{os.strerror(number) if number else 'no regular file'}: {module.origin}")
    return found


def _path_code(ground: Ground) -> str:
    """The first .pth file with code that may change the search path, which is not run here; empty without one."""
    for site in ground.path.folders:
        for name in ground.look.names(site):
            if not name.endswith(".pth") or name.startswith(".") or name in HARMLESS_PTH or "nspkg" in name:
                continue
            text = ground.look.text(f"{site}/{name}") or ""
            lines = re.split(r"[\r\n]+", text)
            if any(
                line.startswith(("import ", "import\t")) and not EDITABLE_MODULE.match(line) for line in lines
            ):
                return f"{site}/{name}"
    return ""


def _finds(ground: Ground) -> Any:
    """Whether a module is in the nested copy."""
    return lambda name: ground.finder.find(f"{ground.package}.{name}") is not None


def _either(alternatives: list[str]) -> str:
    first, *others = map(leaf, alternatives)
    return first + (f" (or {' or '.join(others)})" if others else "")


def check_nested(ground: Ground, cells: dict[str, Any]) -> dict[str, Any]:
    """Whether the tree holds a second copy of itself: what `scp -r` onto a folder does."""
    inner = f"{ground.where}/{ground.package}"
    if cells["nested"]:
        return check("nested", "warn", f"a nested copy: {inner}/__init__.py (scp -r onto a folder does that)")
    if os.path.isdir(inner):
        return check("nested", "warn", f"a nested folder: {inner}, without __init__.py")
    return check("nested", "pass", "no copy inside itself")


# ---- shadows


def check_shadow(ground: Ground) -> dict[str, Any]:
    """Whether another package of that name comes first for this login, or is hidden behind this one."""
    origin = ground.found.origin if ground.found is not None else None
    hidden: list[str] = []
    checkouts: list[str] = []
    for folder in _python_path():
        other = _origin_in(ground, folder)
        if other and origin and os.path.realpath(other) != os.path.realpath(origin):
            return check("shadow", "fail", f"PYTHONPATH of this login puts {other} before {origin}")
    for folder in ground.path.folders:
        other = _origin_in(ground, folder)
        if other and other != origin:
            (checkouts if folder in ground.path.editable else hidden).append(other)
    mapped = ground.path.mapping.get(ground.package)
    if mapped and origin and not f"{origin}/".startswith(f"{mapped}/"):
        checkouts.append(mapped)
    evidence = [f"hidden: {other}" for other in checkouts + hidden]
    if checkouts and origin:
        detail = f"{origin} hides the editable install of {checkouts[0]}"
        return check("shadow", "warn", detail, evidence)
    words = f"nothing before it; hidden behind it: {first_few(hidden)}" if hidden else "nothing before it"
    return check("shadow", "pass", words, evidence)


def _python_path() -> list[str]:
    """The folders in the login's PYTHONPATH; Python takes an empty one for the working directory."""
    text = os.environ.get("PYTHONPATH", "")
    return [os.path.join(home(), folder) for folder in text.split(":")] if text else []


def _origin_in(ground: Ground, folder: str) -> str | None:
    """The package as it would be found in one folder alone; None also for a mere folder of its name."""
    path = SearchPath()
    path.folders = [folder]
    found = Finder(ground.interpreter, path, ground.look).find(ground.package)
    return found.origin if found is not None else None
