"""The ENV block: every virtual environment with its package, where that comes from, and its modules."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_console.fleet import HostView
from dflash_console.model import Copied, Missing, Origin, Package, Venv
from dflash_console.ui.drawing.line import Ink, Line, Piece, Row, columns, cut_left, cut_middle, fits, flow
from dflash_console.ui.drawing.listing import listed
from dflash_console.ui.drawing.unread import lacking
from dflash_console.ui.drawing.verdict_lines import ago, verdict_line, verdict_on
from dflash_console.ui.drawing.words import REASON_WORDS, missing_text, plural
from dflash_console.verdict import Verdict

__all__ = ["copied_words", "module_mark", "module_names", "package_words", "venv_block"]

_INDENT = "     "


def venv_block(
    view: HostView,
    width: int,
    most: int | None = None,
    *,
    verdicts: Sequence[Verdict] = (),
    wall: float = 0.0,
) -> list[Line]:
    """The lines about a host's virtual environments, at most `most`; `wall` is the console's clock, for the age of
    verdicts."""
    if view.snapshot is None:
        return []
    lack = lacking(view, "venvs", bool(view.snapshot.venvs))
    if lack is not None:
        return [Row(width).add("ENV  ", "label").extend([lack]).line()]
    if not view.snapshot.venvs:
        return [Row(width).add("ENV  ", "label").add("none found", "dim").line()]
    paths = {venv.path for venv in view.snapshot.venvs}
    at = view.snapshot.at
    lines = listed(
        view.snapshot.venvs,
        lambda venv: [*_venv_lines(venv, width, at), *_proof(verdicts, venv.path, width, wall)],
        width,
        most,
    )
    # What was verified by name may be in none of the usual places.
    for verdict in verdicts:
        if verdict.venv not in paths:
            lines.append(
                Row(width).add("ENV  ", "label").add(cut_middle(verdict.venv, width - 5), "strong").line()
            )
            lines += _proof([verdict], verdict.venv, width, wall)
    return lines


def _proof(verdicts: Sequence[Verdict], venv: str, width: int, wall: float) -> list[Line]:
    verdict = verdict_on(verdicts, venv)
    if verdict is None:
        return []
    return [Row(width).add(_INDENT).extend(verdict_line(verdict, width - len(_INDENT), wall)).line()]


def _venv_lines(venv: Venv, width: int, at: float) -> list[Line]:
    row = Row(width).add("ENV  ", "label")
    if isinstance(venv.python, Missing):
        words = "not there" if venv.python.missing == "not_found" else REASON_WORDS[venv.python.missing]
        row.add(cut_middle(venv.path, max(12, row.room - columns(words) - 4)), "dim").item(
            f"✗ {words}", "warn"
        )
        return [row.line()]
    facts: list[Piece] = [(f"py {venv.python}", "dim"), _torch(venv)]
    package = venv.package
    if isinstance(package, Missing):
        words = "no package" if package.missing == "not_found" else REASON_WORDS[package.missing]
        facts.append((package.detail or words, "dim" if package.missing == "not_found" else "warn"))
    row.add(cut_middle(venv.path, row.room), "strong")
    lines = [row.line() for row in flow(row, facts, 5)]
    if isinstance(package, Missing):
        return lines
    came = copied_words(venv.copied, at) if venv.copied is not None else []
    return [*lines, *_package_lines(package, came, width), *_modules_lines(package, width)]


def _torch(venv: Venv) -> Piece:
    if isinstance(venv.torch_build, str):
        return f"torch {venv.torch_build}", "dim"
    if "torch" in venv.packages:
        return f"torch {venv.packages['torch']}", "dim"
    if venv.torch_build.missing == "not_found":
        return "no torch", "faint"
    return f"torch {REASON_WORDS[venv.torch_build.missing]}", "warn"


def package_words(package: Package) -> list[Piece]:
    """What is out of the ordinary with a package, most serious first."""
    words: list[Piece] = []
    if package.nested:
        words.append(("nested copy", "bad"))
    if package.kind == "namespace":
        words.append(("namespace, no __init__.py", "bad"))
    version, dist = package.version, package.dist_version
    if isinstance(dist, str) and isinstance(version, str) and version != dist:
        words.append((f"dist-info says {dist}", "warn"))
    if isinstance(dist, Missing):
        words.append(("no dist-info", "dim"))
    if package.kind == "editable":
        words.append(("editable", "note"))
    if package.outside:
        words.append(("outside the venv", "warn"))
    return words


def copied_words(copied: Copied, at: float) -> list[Piece]:
    """Where a package came from, how long before `at` of the host's clock, and what changed since; in one row."""
    source = f"from {copied.from_host}" if copied.from_host else "copied"
    if isinstance(copied.at, Missing):
        return [(source, "dim"), (f", {missing_text(copied.at)}", "warn")]
    pieces: list[Piece] = [(f"{source}, {ago(at - copied.at)}", "dim")]
    if not copied.verified:
        pieces.append((", never verified by its console", "warn"))
    if isinstance(copied.changed, int) and copied.changed:
        pieces.append((f", {plural(copied.changed, 'file')} changed since", "warn"))
    return pieces


def _package_lines(package: Package, came: list[Piece], width: int) -> list[Line]:
    row = Row(width).add(_INDENT)
    if isinstance(package.version, str):
        row.add(f"{package.name} {package.version}", "text")
    else:
        row.add(package.name).add(f" version {REASON_WORDS[package.version.missing]}", "warn")
    rows = [row]
    if came and columns("".join(text for text, _ in came)) + 2 > row.room:
        rows.append(Row(width).add(_INDENT).extend(came))
    elif came:
        row.add("  ").extend(came)
    rows = [*rows[:-1], *flow(rows[-1], package_words(package), 5)]
    origin = package.origin if isinstance(package.origin, str) else ""
    if package.editable_from and package.kind == "editable":
        origin = package.editable_from
    if origin:
        room = rows[-1].room - 2
        if not fits(origin, room):
            rows.append(Row(width).add(_INDENT))
            rows[-1].add(cut_left(origin, rows[-1].room), "faint")
        else:
            rows[-1].add("  ").add(cut_left(origin, room), "faint")
    return [row.line() for row in rows]


def module_names(modules: Sequence[str]) -> dict[str, str]:
    """Short names of modules: the last part, without `dflash_` where all of them begin so."""
    last = {module: module.rsplit(".", 1)[-1] for module in modules}
    if last and all(name.startswith("dflash_") for name in last.values()):
        return {module: name.removeprefix("dflash_") for module, name in last.items()}
    return last


def module_mark(origin: Origin) -> tuple[str, Ink, str]:
    """Whether a module is there, as (mark, ink, word); the word is empty when all is well."""
    if isinstance(origin, str):
        return "✓", "ok", ""
    if origin is None:
        return "✗", "bad", ""
    return "!", "bad", origin.detail or REASON_WORDS[origin.missing]


def _modules_lines(package: Package, width: int) -> list[Line]:
    names = module_names(list(package.modules))
    row = Row(width).add(_INDENT)
    is_dflash = any(module.rsplit(".", 1)[-1].startswith("dflash") for module in names)
    row.add("dflash" if is_dflash else "modules", "dim")
    rows = [row]
    for module, origin in package.modules.items():
        mark, ink, word = module_mark(origin)
        text = f" {names[module]} ({word})" if word else f" {names[module]}"
        if not fits(text, rows[-1].room - 3):
            rows.append(Row(width).add(_INDENT + " " * 6))
        rows[-1].add("  ").add(mark, ink).add(text, "text" if ink == "ok" else ink)
    if package.modules and all(origin is None for origin in package.modules.values()):
        rows[-1].item("none is there", "bad")
    return [row.line() for row in rows]
