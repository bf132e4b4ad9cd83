"""The minimum versions that sglang itself asks for when it starts: `assert_pkg_version("name", "min", ...)` in its
source, read as text.

sglang (0.5.9 to 0.5.23, srt/entrypoints/engine.py) checks the kernel package on CUDA, flashinfer only when that is
the attention backend, and nothing when SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK is set. So what is below is a failure
where the condition is known to hold, and a warning where it can't be told.
"""

from __future__ import annotations

import ast
import os
import re

from ..verify.checks import check, first_few

__all__ = ["SKIP", "Minimum", "check_minimums", "is_skipped", "read_minimums"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .environment import Environment, Unit

SKIP = "SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK"
NAME = b"assert_pkg_version("
CALL = re.compile(r"(?<!def )assert_pkg_version\(\s*(['\"])([^'\"]+)\1,\s*(['\"])([^'\"]+)\3")
FILE_LIMIT = 4 << 20
BACKEND = re.compile(r"--(?:\w+-)*attention-backend(?:=(.*))?", re.DOTALL)
"""`--attention-backend`, and those of prefill, decode and draft."""


class Minimum:
    """One call: which distribution, what version at least, sglang's further words, and the conditions around it."""

    def __init__(self, name: str, version: str, words: str, conditions: list[str], where: str) -> None:
        self.name = name
        self.version = version
        self.words = words
        self.conditions = conditions
        """The source of the `if`s around the call, outermost first."""
        self.where = where
        """File and line."""


def read_minimums(tree: str | None) -> list[Minimum]:
    """All the calls in a package's tree, each distribution's highest version once."""
    found: dict[str, Minimum] = {}
    for path in _sources(tree) if tree else ():
        try:
            with open(path, "rb") as file:
                data = file.read(FILE_LIMIT)
        except OSError:
            continue
        if NAME not in data:
            continue
        for minimum in _calls(
            data.decode("utf-8", "replace"), os.path.relpath(path, os.path.dirname(tree or ""))
        ):
            known = found.get(minimum.name)
            if known is None or _is_below(known.version, minimum.version):
                found[minimum.name] = minimum
    return list(found.values())


def check_minimums(environment: Environment, unit: Unit, minimums: list[Minimum]) -> dict[str, Any]:
    """The check `minimums`."""
    if environment.tree is None:
        return check("minimums", "unknown", f"no {environment.package} to read")
    if not minimums:
        return check("minimums", "pass", "the package asks for none when it starts")
    faults: list[tuple[str, str, str]] = []
    lines = []
    for minimum in minimums:
        complaint = _complaint(environment, minimum)
        if complaint is None:
            version = environment.installed(minimum.name)[0].version
            lines.append(f"{minimum.name} {version}: at least {minimum.version} ({minimum.where})")
            continue
        state, why = _weight(environment, unit, minimum)
        if state != "pass":
            faults.append((state, complaint, why))
        lines.append(f"{complaint}{minimum.words}")
        lines.append(f"  {minimum.where}, {why}")
    if not faults:
        return check("minimums", "pass", "; ".join(line for line in lines if not line.startswith(" ")), lines)
    faults.sort(key=lambda fault: fault[0] != "fail")
    detail = "; ".join(f"{complaint.strip().rstrip('.')} ({why})" for _, complaint, why in faults)
    return check("minimums", faults[0][0], detail, lines)


def is_skipped(unit: Unit) -> bool:
    """Whether the unit tells sglang not to look at versions."""
    return unit.variables.get(SKIP, "").lower() in ("true", "1")


def _sources(tree: str) -> list[str]:
    found = []
    for folder, folders, names in os.walk(tree):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [f"{folder}/{name}" for name in names if name.endswith(".py")]
    return found


def _calls(source: str, where: str) -> list[Minimum]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Written for a newer Python than the agent's.
        return [
            Minimum(match[2], match[4], "", [], f"{where}:{source.count(chr(10), 0, match.start()) + 1}")
            for match in CALL.finditer(source)
        ]
    found: list[Minimum] = []
    _visit(tree, [], source, where, found)
    return found


def _visit(
    node: ast.AST, tests: list[tuple[ast.expr, bool]], source: str, where: str, found: list[Minimum]
) -> None:
    """Walk the tree with the tests of the `if`s around, and whether each must hold."""
    if isinstance(node, ast.Call) and _called(node) == NAME[:-1].decode():
        words = [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]
        if len(words) > 1:
            further = words[2] if len(words) > 2 else ""
            conditions = [_condition(source, *test) for test in tests]
            found.append(Minimum(words[0], words[1], further, conditions, f"{where}:{node.lineno}"))
    for name, value in ast.iter_fields(node):
        inside = tests
        if isinstance(node, ast.If) and name in ("body", "orelse"):
            inside = [*tests, (node.test, name == "body")]
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                _visit(child, inside, source, where, found)


def _called(node: ast.Call) -> str:
    return str(getattr(node.func, "id", getattr(node.func, "attr", "")))


def _condition(source: str, test: ast.expr, must_hold: bool) -> str:
    words = " ".join((ast.get_source_segment(source, test) or "").split())
    return words if must_hold else f"not ({words})"


def _complaint(environment: Environment, minimum: Minimum) -> str | None:
    """sglang's own words about a version; None when all is well."""
    installed = environment.installed(minimum.name)
    if not installed:
        return f"{minimum.name} with minimum required version {minimum.version} is not installed. "
    version = installed[0].version
    if _is_below(version, minimum.version):
        return (
            f"{minimum.name} is installed with version {version}, which "
            f"is less than the minimum required version {minimum.version}. "
        )
    return None


def _weight(environment: Environment, unit: Unit, minimum: Minimum) -> tuple[str, str]:
    """How bad it is, and when sglang looks at it."""
    if is_skipped(unit):
        return "warn", f"not checked at the start: {unit.name} sets {SKIP}"
    conditions = [condition for condition in minimum.conditions if SKIP not in condition]
    unknown = [
        condition for condition in conditions if "flashinfer" not in condition and condition != "_is_cuda"
    ]
    if unknown:
        return "warn", f"checked at the start if {first_few(unknown)}"
    if any("flashinfer" in condition for condition in conditions):
        backends = _backends(unit.arguments)
        if not backends:
            return "warn", "checked at the start if flashinfer is the attention backend"
        if "flashinfer" not in backends:
            return "pass", f"not checked at the start: the attention backend is {first_few(sorted(backends))}"
    if "_is_cuda" in conditions and environment.torch and not environment.torch_cuda:
        return "warn", f"checked at the start on CUDA, for which torch {environment.torch} is not built"
    return "fail", "checked at the start"


def _backends(arguments: list[str]) -> set[str]:
    """The attention backends that a command line names."""
    found = set()
    for word, following in zip(arguments, [*arguments[1:], ""]):
        match = BACKEND.fullmatch(word)
        if match:
            found.add(match[1] if match[1] is not None else following)
    return found


def _is_below(version: str, minimum: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version) < Version(minimum)
    except InvalidVersion:
        return False
