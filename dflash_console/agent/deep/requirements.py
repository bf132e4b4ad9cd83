"""The package's Requires-Dist against what is installed.

What a broken pin means was weighed by what healthy environments have: hosts where sglang runs well are often made
with `pip install --no-deps` or had a library upgraded by hand. So
- a pin that is not kept is a warning, and so is a distribution that is not there: most of sglang's hundred are
  imported late or not at all, and `import` proves those that are needed at once;
- torch of another minor version, or none, is a failure: compiled kernels are made for one minor version. Another
  patch version of it is a warning;
- no kernel package, or an older one, is a failure: sglang calls its functions by name. One that sglang's own minimum
  still admits, or a newer one, is a warning.
"""

from __future__ import annotations

import os
import platform
import sys

from ..venvs.distributions import normalise
from ..verify.checks import check, counted, first_few

__all__ = ["KERNELS", "check_requires", "header_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from packaging.requirements import Requirement

    from .environment import Environment
    from .minimums import Minimum

KERNELS = ("sglang-kernel", "sgl-kernel")
"""The kernel package was renamed with sglang 0.5.10."""


class Violation:
    """A requirement that is not met."""

    def __init__(self, requirement: Requirement, has: str, state: str) -> None:
        self.wants = str(requirement).partition(";")[0].strip()
        self.has = has
        """The version that is there; empty for none."""
        self.state = state

    def __str__(self) -> str:
        return (
            f"needs {self.wants}, has {self.has}"
            if self.has
            else f"needs {self.wants}, which is not installed"
        )


def check_requires(
    environment: Environment, message: dict[str, Any], minimums: list[Minimum]
) -> dict[str, Any]:
    """The check `requires`."""
    metadata, where = _metadata(environment, message)
    if not metadata:
        return check("requires", "unknown", where)
    requirements, unread = _requirements(metadata, _markers(environment))
    lines = [f"can't be read: {line}" for line in unread]
    floors = {normalise(minimum.name): minimum.version for minimum in minimums}
    violations: list[Violation] = []
    for requirement in requirements:
        violation, note = _look_at(environment, requirement, floors)
        if violation is not None:
            violations.append(violation)
        if note:
            lines.append(note)
    violations.sort(key=lambda violation: violation.state != "fail")
    lines = [str(violation) for violation in violations] + lines
    lines.append(f"read from {where}")
    if not violations:
        return check("requires", "pass", f"{counted(len(requirements), 'requirement')} met", lines)
    missing = sum(not violation.has for violation in violations)
    few = first_few([str(violation) for violation in violations])
    detail = (
        f"{len(violations)} of {counted(len(requirements), 'requirement')} not met"
        f"{f' ({missing} not installed)' if missing else ''}: {few}"
    )
    return check("requires", violations[0].state, detail, lines)


def _metadata(environment: Environment, message: dict[str, Any]) -> tuple[str, str]:
    """The METADATA that belongs to the tree, and where it is from; or nothing and why."""
    text = message.get("source_metadata")
    source = message.get("source") or {}
    place = f"{source.get('host') or 'the source host'}:{source.get('venv') or ''}".rstrip(":")
    if message.get("is_planned"):
        # The package that is there, and its dist-info, are about to be replaced by the source's.
        why = message.get("source_problem") or "the metadata of the source is not at hand"
        return (text, f"the dist-info on {place}, {_field(text, 'Version')}") if text else ("", why)
    name, tree, local = environment.package, environment.tree_version, environment.dist_version
    if environment.tree is None:
        return "", f"no {name} here"
    several = [os.path.basename(item.path) for item in environment.installed(name)]
    if len(several) > 1:
        return "", f"{len(several)} dist-infos of {name} at once: {first_few(several)}"
    if local and (not tree or _is_same(tree, local)):
        own = environment.metadata(name)
        return (
            (own, f"the dist-info here, {local}") if own else ("", f"the dist-info of {name} has no METADATA")
        )
    split = f"the tree is {tree or 'of an unknown version'}, the dist-info here {local or 'is not there'}"
    if not text:
        problem = message.get("source_problem")
        why = problem or "the metadata of where it comes from is not at hand: give its host the role source"
        return "", f"{split}; {why}"
    version = _field(text, "Version")
    if tree and not _is_same(tree, version):
        return "", f"{split}, and the dist-info on {place} {version or 'has no version'}"
    return text, f"the dist-info on {place}, {version}"


def _requirements(metadata: str, markers: dict[str, str]) -> tuple[list[Requirement], list[str]]:
    """Those that apply here, with no extra asked for; and the lines that are none."""
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
    from packaging.requirements import InvalidRequirement, Requirement

    found, unread = [], []
    for line in header_of(metadata):
        key, _, value = line.partition(":")
        if key.lower() != "requires-dist":
            continue
        try:
            requirement = Requirement(value.strip())
            if requirement.marker is None or requirement.marker.evaluate(markers):
                found.append(requirement)
        except (InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName):
            unread.append(value.strip())
    return found, unread


def _look_at(
    environment: Environment, requirement: Requirement, floors: dict[str, str]
) -> tuple[Violation | None, str]:
    """What is wrong with one requirement, and what else should be known of it."""
    from packaging.version import InvalidVersion, Version

    name = normalise(requirement.name)
    installed = environment.installed(name)
    if not installed:
        old = [
            f"{kernel} {item.version}"
            for kernel in KERNELS
            if name in KERNELS
            for item in environment.installed(kernel)
        ]
        state = "fail" if name == "torch" or name in KERNELS else "warn"
        return Violation(requirement, "", state), f"{requirement.name}: but there is {old[0]}" if old else ""
    note = f"{requirement.name}: {len(installed)} dist-infos at once: " if len(installed) > 1 else ""
    note += ", ".join(item.version or "?" for item in installed) if note else ""
    try:
        versions = [Version(item.version) for item in installed]
    except InvalidVersion as error:
        return None, f"{requirement.name}: can't be compared: {error}"
    wrong = [version for version in versions if not requirement.specifier.contains(version, prereleases=True)]
    if requirement.url or not wrong:
        return None, note
    state = "warn"
    if name == "torch":
        state = _torch_state(requirement, wrong[0])
    elif name in KERNELS:
        state = _kernel_state(requirement, wrong[0], floors.get(name))
    return Violation(requirement, " and ".join(map(str, versions)), state), note


def _torch_state(requirement: Requirement, version: Any) -> str:
    """A warning only when another patch version of the same minor one is wanted."""
    from packaging.version import Version

    pins = [
        Version(part.version)
        for part in requirement.specifier
        if part.operator == "==" and "*" not in part.version
    ]
    return "warn" if any(pin.release[:2] == version.release[:2] for pin in pins) else "fail"


def _kernel_state(requirement: Requirement, version: Any, floor: str | None) -> str:
    from packaging.version import Version

    if floor is not None:
        return "fail" if version < Version(floor) else "warn"
    pins = [
        Version(part.version)
        for part in requirement.specifier
        if part.operator == "==" and "*" not in part.version
    ]
    return "warn" if any(version > pin for pin in pins) else "fail"


def _markers(environment: Environment) -> dict[str, str]:
    """What markers are evaluated with: the environment's interpreter, on this machine; the agent's own may differ."""
    interpreter = environment.interpreter
    minor = f"{interpreter.minor[0]}.{interpreter.minor[1]}"
    full = interpreter.python if isinstance(interpreter.python, str) else minor
    if full.count(".") < 2:
        full = minor + ".0"
    return {
        "python_version": minor,
        "python_full_version": full,
        "implementation_version": full,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": sys.platform,
        "os_name": os.name,
        "platform_system": platform.system(),
        "platform_machine": platform.machine(),
        "platform_release": platform.release(),
        "platform_version": platform.version(),
        "extra": "",
    }


def _is_same(one: str, other: str) -> bool:
    """Whether two texts name the same version; a local part (`+cu130`, `+gabc`) makes no other one."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(one).public == Version(other).public
    except InvalidVersion:
        return one == other


def header_of(metadata: str) -> list[str]:
    """The lines before the description, which may hold anything."""
    header = metadata.replace("\r\n", "\n").partition("\n\n")[0]
    return header.encode("utf-8", "replace").decode("utf-8").split("\n")


def _field(metadata: str, key: str) -> str:
    for line in header_of(metadata):
        if line.startswith(key + ":"):
            return line[len(key) + 1 :].strip()[:100]
    return ""
