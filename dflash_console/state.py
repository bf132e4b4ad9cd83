"""state.toml: what the console remembers by itself, such as the theme.

The file may be of another version of the console, or broken: keys that this one doesn't know stay in it, and
a broken file is moved aside, never overwritten.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import platformdirs
import tomli_w

from dflash_console.errors import StateError

__all__ = ["State", "default_state_path", "load_state", "save_state"]

SIZE_LIMIT = 1 << 20


class State(msgspec.Struct, frozen=True):
    """What is remembered; each key may be absent."""

    theme: str | None = None


def default_state_path() -> Path:
    """state.toml in the user's state folder, such as ~/.local/state/dflash-console."""
    return platformdirs.user_state_path("dflash-console") / "state.toml"


def load_state(path: Path) -> State:
    """What was remembered; defaults when there is no file.

    Raises StateError when the file can't be used. A broken one is moved aside first: it is said once, and the
    next call gives defaults.
    """
    return _read(path)[0]


def save_state(path: Path, state: State) -> None:
    """Replaces the file in one step (mode 0600), keeping keys that `State` doesn't have. Raises StateError.

    A broken file that is in the way is moved aside; one that can't be read is left alone.
    """
    path = Path(os.path.realpath(path))  # a link into somebody's dotfiles stays a link
    kept: dict[str, Any] = {}
    with contextlib.suppress(_MovedAside):
        kept = _read(path)[1]
    tables = {key: value for key, value in kept.items() if key not in State.__struct_fields__}
    tables.update((key, value) for key, value in msgspec.structs.asdict(state).items() if value is not None)
    _replace(path, tables)


class _MovedAside(StateError):
    """The file was broken and is out of the way now."""


def _read(path: Path) -> tuple[State, dict[str, Any]]:
    try:
        with path.open("rb") as stream:
            data = stream.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        return State(), {}
    except OSError as error:
        raise StateError(f"{path}: can't be read: {error.strerror}; using defaults") from None
    try:
        if len(data) > SIZE_LIMIT:
            raise ValueError(f"longer than {SIZE_LIMIT >> 20} MiB")
        tables = tomllib.loads(data.decode("utf-8"))
        return msgspec.convert(tables, State), tables
    except (ValueError, RecursionError) as error:  # all of: not UTF-8, not TOML, a wrong type
        raise _move_aside(path, error) from None


def _move_aside(path: Path, why: Exception) -> StateError:
    number = 1
    while (aside := path.with_name(f"{path.name}.broken-{number}")).exists():
        number += 1
    try:
        path.rename(aside)
    except OSError as error:
        return StateError(
            f"{path}: broken ({why}) and can't be moved aside: {error.strerror}; using defaults"
        )
    return _MovedAside(f"{path}: broken ({why}); moved to {aside.name}, using defaults")


def _replace(path: Path, tables: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # mkstemp's mode is 0600
        try:
            with open(handle, "wb") as stream:
                tomli_w.dump(tables, stream)
                stream.flush()
                os.fsync(handle)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise StateError(
            f"{path}: can't be written: {error.strerror}; this is remembered until the end only"
        ) from None
