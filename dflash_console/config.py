"""config.toml: what to watch and how. Every mistake is named with file, key and the nearest valid key.

The console never writes this file; what it remembers by itself is in state.py.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import socket
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import msgspec
import platformdirs
from msgspec import Meta

from dflash_console.errors import ConfigError
from dflash_console.model import Role

__all__ = ["Config", "ConsoleConfig", "HostConfig", "PackageConfig", "default_path", "load"]

VARIABLE = "DFLASH_CONSOLE_CONFIG"
SIZE_LIMIT = 1 << 20
"""Bytes; a longer file is no config of a small fleet."""

DFLASH_MODULES: list[str | list[str]] = [
    ["sglang.srt.speculative.dflash_worker", "sglang.srt.speculative.dflash_worker_v2"],
    "sglang.srt.speculative.dflash_info",
    "sglang.srt.speculative.dflash_utils",
]
DEFAULT_UNITS = ["*sglang*.service", "*dflash*.service"]


class ConsoleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[console]`."""

    interval: Annotated[float, Meta(ge=0.2, le=60)] = 1.0
    """Seconds between two samples of a host."""
    theme: str | None = None
    read_only: bool = False
    mouse: bool = True
    ssh_config: str | None = None
    """An absolute path, as for `ssh -F`; None for the user's own files, `none` for no file at all."""


class PackageConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[package]`: the package that is moved between hosts, and the modules that make it whole."""

    name: str = "sglang"
    modules: list[str | list[str]] = msgspec.field(default_factory=lambda: [*DFLASH_MODULES])
    keep_backups: Annotated[int, Meta(ge=1, le=100)] = 5
    """How many packages that were replaced are kept in an environment; the oldest others are removed."""

    @property
    def alternatives(self) -> list[list[str]]:
        """Each wanted module as the list of the names that are accepted for it, most wanted first."""
        return [[item] if isinstance(item, str) else list(item) for item in self.modules]


class HostConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table `[hosts.NAME]`."""

    name: str
    address: str = ""
    """A name or alias of the ssh config, or an address; the table's name where none is given."""
    local: bool = False
    """This machine, reached without SSH."""
    user: str | None = None
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    jump: str | None = None
    """As for `ssh -J`."""
    role: Role = "observe"
    production: bool = False
    """A change asks for the host's name to be typed."""
    venvs: list[str] | None = None
    """Absolute, or from the login user's home (`~/`); None to look in the usual places only."""
    package_venv: str | None = None
    """The one that copies come from or go to."""
    units: list[str] = msgspec.field(default_factory=lambda: [*DEFAULT_UNITS])
    """Names or globs; `user:` before one asks the login user's own manager."""
    paths: list[str] = []
    """As `venvs`."""
    python: str | None = None
    """The interpreter that runs the agent, the only one tried: an absolute path or a command's name."""

    def __post_init__(self) -> None:
        if not self.address:
            msgspec.structs.force_setattr(self, "address", self.name)


class Config(msgspec.Struct, frozen=True):
    """All of config.toml."""

    console: ConsoleConfig
    package: PackageConfig
    hosts: dict[str, HostConfig]
    """In the file's order."""
    path: Path | None = None
    """The file; None when there is none."""


def default_path(environ: Mapping[str, str]) -> Path:
    """Where the config is when no --config names it: $DFLASH_CONSOLE_CONFIG, else the user's folder."""
    named = environ.get(VARIABLE)
    return (
        Path(named).expanduser() if named else platformdirs.user_config_path("dflash-console") / "config.toml"
    )


def load(path: Path | None, environ: Mapping[str, str]) -> Config:
    """Reads the config; without any file, the fleet is this machine. Raises ConfigError.

    A file that `path` or $DFLASH_CONSOLE_CONFIG names has to be there; only the user's folder may lack one.
    """
    file = path if path is not None else default_path(environ)
    text = _read(file, needed=path is not None or bool(environ.get(VARIABLE)))
    if text is None:
        return Config(ConsoleConfig(), PackageConfig(), _this_machine())
    try:
        tables = tomllib.loads(text)
    except ValueError as error:  # also an integer of thousands of digits, which is no TOMLDecodeError
        raise ConfigError(f"{file}: not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{file}: not valid TOML: nested too deeply") from None
    try:
        return _config(tables, file)
    except _Wrong as wrong:
        line = _line_of(wrong.key, text)
        raise ConfigError(f"{file}:{f' line {line}:' if line else ''} {wrong}") from None


# ---- reading


def _read(file: Path, needed: bool) -> str | None:
    try:
        with file.open("rb") as stream:
            data = stream.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        if needed:
            raise ConfigError(f"{file}: no such file; name another with --config or ${VARIABLE}") from None
        return None
    except IsADirectoryError:
        raise ConfigError(f"{file}: this is a folder; name the config file in it") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: can't be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > SIZE_LIMIT:
        raise ConfigError(f"{file}: longer than {SIZE_LIMIT >> 20} MiB; this is no config file")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}: not UTF-8: byte 0x{data[error.start]:02x} in line {line}") from None


def _this_machine() -> dict[str, HostConfig]:
    name = socket.gethostname() or "localhost"
    return {name: HostConfig(name, local=True)}


# ---- checking


class _Wrong(Exception):
    """What is wrong with a key; becomes a ConfigError once the file's name stands before it."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"{key}: {what}" if key else what)
        self.key = key


def _line_of(key: str, text: str) -> int | None:
    """The line of a key, or of its table's header; None where it is written in another way, or twice."""
    wanted = re.sub(r"(\[\d+\])+$", "", key)
    table = ""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if header := re.match(r"\s*\[([^\[\]]+)\]\s*(#.*)?$", line):
            table = header[1].strip()
            found += [number] if table == wanted else []
        elif (name := re.match(r"\s*([\w-]+|\"[^\"]*\")\s*=", line)) and f"{table}.{name[1]}".lstrip(
            "."
        ) == wanted:
            found.append(number)
    return found[0] if len(found) == 1 else None


KEYS: dict[str, tuple[str, ...]] = {
    "console": ConsoleConfig.__struct_fields__,
    "package": PackageConfig.__struct_fields__,
    "hosts.NAME": tuple(field for field in HostConfig.__struct_fields__ if field != "name"),
}
"""The valid keys of each table."""

ROLES: tuple[str, ...] = get_args(Role)


def _config(tables: dict[str, Any], file: Path) -> Config:
    _refuse_unknown("", tables, ("console", "package", "hosts"))
    console = _struct("console", _table("console", tables.get("console", {})), ConsoleConfig)
    package = _struct("package", _table("package", tables.get("package", {})), PackageConfig)
    _check_package(package)
    if "hosts" not in tables:
        hosts = _this_machine()
    else:
        hosts = {name: _host(name, table) for name, table in _table("hosts", tables["hosts"]).items()}
        if not hosts:
            raise _Wrong(
                "hosts", "no host in it; add a table [hosts.NAME], or leave it out to watch this machine"
            )
    return Config(_console(console, file), package, hosts, file)


def _console(console: ConsoleConfig, file: Path) -> ConsoleConfig:
    named = console.ssh_config
    if named is None or named == "none":
        return console
    try:
        path = file.absolute().parent / Path(named).expanduser()
        is_file = path.is_file()
    except (RuntimeError, ValueError, OSError) as error:
        raise _Wrong("console.ssh_config", f"{named!r} can't be used: {error}") from None
    if not is_file:
        raise _Wrong("console.ssh_config", f"{path} is not a file; name one, or leave the key out")
    return msgspec.structs.replace(console, ssh_config=str(path))


def _check_package(package: PackageConfig) -> None:
    if not package.name.isidentifier():
        raise _Wrong("package.name", f"expected the name of a top-level package, got {package.name!r}")
    for number, accepted in enumerate(package.alternatives):
        key = f"package.modules[{number}]"
        if not accepted:
            raise _Wrong(key, "an empty list of alternatives; name at least one module")
        for name in accepted:
            if not all(part.isidentifier() for part in name.split(".")):
                raise _Wrong(key, f"expected a module such as sglang.srt.server_args, got {name!r}")
    _refuse_twice("package.modules", (name for accepted in package.alternatives for name in accepted))


def _host(name: str, value: object) -> HostConfig:
    key = f"hosts.{_quoted(name)}"
    table = _table(key, value)
    if not _is_word(name) or set(name) & {":", "/"} or len(name) > 64:
        raise _Wrong(
            key, "a host's name has no spaces, `:` or `/`, no `-` at its start and at most 64 characters"
        )
    _refuse_unknown(key, table, KEYS["hosts.NAME"])
    host = _struct(key, table, HostConfig, name=name)
    if table.get("address") == "":
        raise _Wrong(f"{key}.address", "empty; leave the key out to use the table's name")
    _check_reach(key, host)
    for field, paths in (("venvs", host.venvs or []), ("paths", host.paths)):
        for number, path in enumerate(paths):
            _check_path(f"{key}.{field}[{number}]", path)
        _refuse_twice(f"{key}.{field}", (os.path.normpath(path) for path in paths))
    if host.package_venv is not None:
        _check_path(f"{key}.package_venv", host.package_venv)
    for number, unit in enumerate(host.units):
        if not _is_word(unit.removeprefix("user:")) or "/" in unit:
            raise _Wrong(f"{key}.units[{number}]", f"expected a unit's name or glob, got {unit!r}")
    _refuse_twice(f"{key}.units", host.units)
    return host


def _check_reach(key: str, host: HostConfig) -> None:
    for field in ("user", "port", "jump"):
        if host.local and getattr(host, field) is not None:
            raise _Wrong(f"{key}.{field}", "no SSH is used where local = true; remove one of the two")
    for field, word in (("address", host.address), ("user", host.user), ("jump", host.jump)):
        if word is not None and not _is_word(word):
            raise _Wrong(
                f"{key}.{field}", f"expected a word without spaces and without `-` at its start, got {word!r}"
            )
    python = host.python
    if python is not None and not (_is_plain(python) and (python.startswith("/") or "/" not in python)):
        raise _Wrong(f"{key}.python", f"expected an absolute path or a command's name, got {python!r}")


def _check_path(key: str, path: str) -> None:
    if not _is_plain(path) or not path.startswith(("/", "~/")):
        raise _Wrong(key, f"expected an absolute path, or one that starts with ~/, got {path!r}")


def _is_plain(text: str) -> bool:
    return bool(text) and text.isprintable() and not text.startswith("-")


def _is_word(text: str) -> bool:
    return _is_plain(text) and not any(character.isspace() for character in text)


def _refuse_twice(key: str, items: Iterable[str]) -> None:
    seen: set[str] = set()
    for item in items:
        if item in seen:
            raise _Wrong(key, f"{item} is listed twice")
        seen.add(item)


def _refuse_unknown(key: str, table: Mapping[str, object], valid: tuple[str, ...]) -> None:
    for name in table:
        if name not in valid:
            raise _Wrong(f"{key}.{_quoted(name)}".lstrip("."), f"unknown key; {_advice(name, valid)}")


def _advice(name: str, valid: tuple[str, ...]) -> str:
    homes = [table for table, keys in KEYS.items() if name in keys]
    near = difflib.get_close_matches(name.lower(), valid, n=1, cutoff=0.6)
    if homes:
        return f"it belongs into [{homes[0]}]"
    return f"did you mean {near[0]}?" if near else "valid here: " + ", ".join(valid)


def _quoted(key: str) -> str:
    """A key as TOML writes it."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


# ---- types, in the words of TOML

S = TypeVar("S", ConsoleConfig, PackageConfig, HostConfig)


def _table(key: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong(key, f"expected a table [{key}], got {_shown(value)}")
    return value


def _struct(key: str, table: Mapping[str, object], kind: type[S], **more: object) -> S:
    _refuse_unknown(key, table, KEYS.get(key, KEYS["hosts.NAME"]))
    try:
        return msgspec.convert({**table, **more}, kind)
    except msgspec.ValidationError as error:
        raise _in_words(key, table, str(error)) from None


def _in_words(key: str, table: Mapping[str, object], text: str) -> _Wrong:
    """Rewords msgspec, whose messages end with the place: "Expected `int`, got `str` - at `$.port`"."""
    what, _, place = text.partition(" - at `$")
    place = place.rstrip("`")
    value: Any = table
    for name, number in re.findall(r"\.(\w+)|\[(\d+)\]", place):
        value = value[name or int(number)]
    if what.startswith("Invalid enum value"):
        near = difflib.get_close_matches(str(value).lower(), ROLES, n=1, cutoff=0.5)
        expected = "one of " + ", ".join(ROLES) + (f" (did you mean {near[0]}?)" if near else "")
    else:
        expected = what.removeprefix("Expected ").partition(", got ")[0]
        expected = re.sub(r"`([a-z |]+)`", lambda match: _kinds(match[1]), expected)
        expected = expected.replace(" >= ", " of at least ").replace(" <= ", " of at most ")
    return _Wrong(key + place, f"expected {expected}, got {_shown(value)}")


KINDS = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


def _kinds(union: str) -> str:
    return " or ".join(KINDS.get(kind, kind) for kind in union.split(" | ") if kind != "null")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a table"
    return repr(value)[:80] if isinstance(value, str | int | float) else str(value)
