"""config.toml: what loads, and that every mistake is named with file, key and what to do."""

from __future__ import annotations

import errno
import os
import re
import socket
import tomllib
from pathlib import Path

import pytest

from dflash_console.config import Config, HostConfig, PackageConfig, default_path, load
from dflash_console.errors import ConfigError

ROOT = Path(__file__).parent.parent


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "config.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(folder: Path, text: str | bytes) -> Config:
    return load(write(folder, text), {})


def fault(folder: Path, text: str | bytes) -> str:
    """The error's text without the file's name, which each has to start with."""
    path = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return re.sub(r"^line \d+: ", "", message.removeprefix(f"{path}: "))


# ---- what loads


def test_the_example_loads_and_tells_the_story() -> None:
    config = load(ROOT / "config.toml.example", {})
    assert [(h.name, h.address, h.role) for h in config.hosts.values()] == [
        ("ct129", "10.1.230.172", "source"),
        ("ct200", "10.1.2.200", "target"),
        ("kpro6", "10.1.2.6", "observe"),
    ]
    assert config.package == PackageConfig()
    assert config.path == ROOT / "config.toml.example"


def test_the_example_names_every_key_and_no_other(tmp_path: Path) -> None:
    text = (ROOT / "config.toml.example").read_text()
    uncommented = re.sub(r"^# (?=(\w+ = |\[))", "", text, flags=re.MULTILINE).replace("~/.ssh/config", "none")
    config = load(write(tmp_path, uncommented.replace('theme = "..."', 'theme = "t"')), {})
    tables = tomllib.loads(uncommented)
    assert set(tables["console"]) == set(type(config.console).__struct_fields__)
    assert set(tables["package"]) == set(PackageConfig.__struct_fields__)
    keys = {key for table in tables["hosts"].values() for key in table}
    assert keys == set(HostConfig.__struct_fields__) - {"name"}


def test_without_a_file_the_fleet_is_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    config = load(None, {})
    (host,) = config.hosts.values()
    assert (host.name, host.local, config.path) == (socket.gethostname(), True, None)


def test_without_a_hosts_table_the_fleet_is_this_machine(tmp_path: Path) -> None:
    config = read(tmp_path, "[console]\ninterval = 2\n")
    assert [host.local for host in config.hosts.values()] == [True]
    assert config.console.interval == 2.0


def test_the_file_is_the_named_one_then_the_variable_then_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert default_path({}) == tmp_path / "dflash-console" / "config.toml"
    variable = {"DFLASH_CONSOLE_CONFIG": str(tmp_path / "other.toml")}
    assert default_path(variable) == tmp_path / "other.toml"
    (tmp_path / "other.toml").write_text("[hosts.b]\n")
    assert list(load(write(tmp_path, "[hosts.a]\n"), variable).hosts) == ["a"]
    assert list(load(None, variable).hosts) == ["b"]


def test_a_host_is_called_by_its_tables_name_and_keeps_the_files_order(tmp_path: Path) -> None:
    config = read(tmp_path, '[hosts.z]\n[hosts.a]\naddress = "10.0.0.1"\n[hosts."m.example"]\n')
    assert [(h.name, h.address) for h in config.hosts.values()] == [
        ("z", "z"),
        ("a", "10.0.0.1"),
        ("m.example", "m.example"),
    ]


def test_alternatives_of_a_module_are_kept_in_order(tmp_path: Path) -> None:
    config = read(tmp_path, '[package]\nmodules = ["p.a", ["p.b", "p.c"]]\n')
    assert config.package.alternatives == [["p.a"], ["p.b", "p.c"]]


def test_the_ssh_config_may_lie_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ssh_config").write_text("")
    assert read(tmp_path, '[console]\nssh_config = "ssh_config"\n').console.ssh_config == str(
        tmp_path / "ssh_config"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read(tmp_path, '[console]\nssh_config = "~/ssh_config"\n').console.ssh_config == str(
        tmp_path / "ssh_config"
    )
    assert read(tmp_path, '[console]\nssh_config = "none"\n').console.ssh_config == "none"


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    assert list(read(tmp_path, b"\xef\xbb\xbf[hosts.a]\r\nport = 22\r\n").hosts) == ["a"]


# ---- files that can't be read


def test_a_named_file_has_to_be_there(tmp_path: Path) -> None:
    for path, environ in (
        (tmp_path / "no.toml", {}),
        (None, {"DFLASH_CONSOLE_CONFIG": str(tmp_path / "no.toml")}),
    ):
        with pytest.raises(ConfigError, match=r"no\.toml: no such file; .*--config"):
            load(path, environ)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this is a folder"):
        load(tmp_path, {})


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_file_that_cannot_be_read_is_told_with_the_systems_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = write(tmp_path, "")

    def refuse(*_: object) -> object:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigError, match=rf"config\.toml: can't be read: {os.strerror(number)}"):
        load(path, {})


def test_what_is_not_utf8_is_told_with_its_line(tmp_path: Path) -> None:
    assert fault(tmp_path, b"[console]\ntheme = '\xe4'\n") == "not UTF-8: byte 0xe4 in line 2"


def test_an_endless_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="longer than 1 MiB"):
        load(Path("/dev/zero"), {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[console]\ninterval 1\n", "line 2"),
        ("[hosts.a]\n[hosts.a]\n", r"hosts.*a.*line 2"),
        ("[hosts.a]\nport = 1\nport = 2\n", "line 3"),
        ("[console]\ninterval = " + "9" * 5000, "not valid TOML"),
        ("x = " + "[" * 5000, "not valid TOML"),
    ],
)
def test_what_is_not_toml_is_told_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    message = fault(tmp_path, text)
    assert message.startswith("not valid TOML: ")
    assert re.search(says, message)


# ---- keys and values

WRONG = [
    # unknown keys
    ("[consol]\n", "consol: unknown key; did you mean console?"),
    ("[console]\nintervall = 2\n", "console.intervall: unknown key; did you mean interval?"),
    ("[console]\nread-only = true\n", "console.read-only: unknown key; did you mean read_only?"),
    ("[console]\nvenvs = []\n", "console.venvs: unknown key; it belongs into [hosts.NAME]"),
    ("[hosts.a]\ninterval = 1\n", "hosts.a.interval: unknown key; it belongs into [console]"),
    ("[hosts.a]\nROLE = 'target'\n", "hosts.a.ROLE: unknown key; did you mean role?"),
    ("[hosts.a]\nname = 'b'\n", "hosts.a.name: unknown key; it belongs into [package]"),
    (
        "[package]\nzzz = 1\n",
        "package.zzz: unknown key; valid here: name, modules, keep_backups",
    ),
    ('[hosts.a]\n"a b\\n" = 1\n', r'hosts.a."a b\n": unknown key; valid here: '),
    # wrong types
    ("console = 1\n", "console: expected a table [console], got 1"),
    ("hosts = []\n", "hosts: expected a table [hosts], got a list"),
    ("[hosts]\nct129 = '10.0.0.1'\n", "hosts.ct129: expected a table [hosts.ct129], got '10.0.0.1'"),
    ("[console]\nmouse = 'yes'\n", "console.mouse: expected true or false, got 'yes'"),
    ("[console]\ninterval = true\n", "console.interval: expected a number, got true"),
    ("[console]\ninterval = 2026-01-01\n", "console.interval: expected a number, got 2026-01-01"),
    ("[hosts.a]\nport = '22'\n", "hosts.a.port: expected an integer, got '22'"),
    ("[hosts.a]\nvenvs = '/v'\n", "hosts.a.venvs: expected a list, got '/v'"),
    ("[hosts.a]\nvenvs = ['/v', 3]\n", "hosts.a.venvs[1]: expected a string, got 3"),
    ("[package]\nmodules = ['p.a', ['p.b', {}]]\n", "package.modules[1][1]: expected a string, got a table"),
    ("[package]\nmodules = [1]\n", "package.modules[0]: expected a string or a list, got 1"),
    ("[package]\nkeep_backups = 0\n", "package.keep_backups: expected an integer of at least 1, got 0"),
    ("[package]\nkeep_backups = 101\n", "package.keep_backups: expected an integer of at most 100, got 101"),
    ("[package]\nkeep_backups = true\n", "package.keep_backups: expected an integer, got true"),
    # bounds
    ("[console]\ninterval = 0.1\n", "console.interval: expected a number of at least 0.2, got 0.1"),
    ("[console]\ninterval = 61\n", "console.interval: expected a number of at most 60.0, got 61"),
    ("[console]\ninterval = nan\n", "console.interval: expected a number of at least 0.2, got nan"),
    ("[hosts.a]\nport = 0\n", "hosts.a.port: expected an integer of at least 1, got 0"),
    ("[hosts.a]\nport = 70000\n", "hosts.a.port: expected an integer of at most 65535, got 70000"),
    # values
    (
        "[hosts.a]\nrole = 'tarket'\n",
        "hosts.a.role: expected one of source, target, observe (did you mean target?), got 'tarket'",
    ),
    ("[hosts.a]\nrole = 'x'\n", "hosts.a.role: expected one of source, target, observe, got 'x'"),
    ("[hosts.a]\nrole = 3\n", "hosts.a.role: expected a string, got 3"),
    ("[hosts]\n", "hosts: no host in it; add a table [hosts.NAME]"),
    (
        "[hosts.a]\nvenvs = ['ml-env']\n",
        "hosts.a.venvs[0]: expected an absolute path, or one that starts with ~/",
    ),
    (
        "[hosts.a]\nvenvs = ['~bob/x']\n",
        "hosts.a.venvs[0]: expected an absolute path, or one that starts with ~/",
    ),
    (
        "[hosts.a]\npaths = ['']\n",
        "hosts.a.paths[0]: expected an absolute path, or one that starts with ~/, got ''",
    ),
    ('[hosts.a]\npaths = ["/a\\u001b[m"]\n', r"hosts.a.paths[0]: expected an absolute path"),
    ("[hosts.a]\npackage_venv = 'v'\n", "hosts.a.package_venv: expected an absolute path"),
    ("[hosts.a]\nvenvs = ['/v', '/v/']\n", "hosts.a.venvs: /v is listed twice"),
    ("[hosts.a]\nunits = ['a.service', 'a.service']\n", "hosts.a.units: a.service is listed twice"),
    ("[hosts.a]\nunits = ['--all']\n", "hosts.a.units[0]: expected a unit's name or glob, got '--all'"),
    ("[hosts.a]\nunits = ['user:']\n", "hosts.a.units[0]: expected a unit's name or glob, got 'user:'"),
    ("[hosts.a]\nlocal = true\njump = 'b'\n", "hosts.a.jump: no SSH is used where local = true; remove one"),
    ("[hosts.a]\nlocal = true\nport = 22\n", "hosts.a.port: no SSH is used where local = true; remove one"),
    ("[hosts.a]\naddress = '-oProxyCommand=x'\n", "hosts.a.address: expected a word without spaces"),
    ("[hosts.a]\naddress = ''\n", "hosts.a.address: empty; leave the key out to use the table's name"),
    ("[hosts.a]\nuser = 'a b'\n", "hosts.a.user: expected a word without spaces"),
    ("[hosts.a]\npython = 'bin/python'\n", "hosts.a.python: expected an absolute path or a command's name"),
    ('[hosts.a]\npython = "/a\\nb"\n', "hosts.a.python: expected an absolute path or a command's name"),
    ('[hosts."a:b"]\n', 'hosts."a:b": a host\'s name has no spaces'),
    ('[hosts."-a"]\n', "hosts.-a: a host's name has no spaces"),
    ('[hosts.""]\n', 'hosts."": a host\'s name has no spaces'),
    ("[package]\nname = 'a.b'\n", "package.name: expected the name of a top-level package, got 'a.b'"),
    ("[package]\nmodules = ['p..a']\n", "package.modules[0]: expected a module such as"),
    ("[package]\nmodules = ['p.a', []]\n", "package.modules[1]: an empty list of alternatives"),
    ("[package]\nmodules = ['p.a', ['p.b', 'p.a']]\n", "package.modules: p.a is listed twice"),
    ("[console]\nssh_config = 'no-such-file'\n", "console.ssh_config: "),
    ("[console]\nssh_config = '~no-such-user/x'\n", "console.ssh_config: "),
]


@pytest.mark.parametrize(("text", "says"), WRONG, ids=[says.split(": ")[0] for _, says in WRONG])
def test_a_mistake_is_named_by_its_key_with_what_would_be_right(tmp_path: Path, text: str, says: str) -> None:
    assert fault(tmp_path, text).startswith(says)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# hosts\n[hosts.a]\nport = 22\n\n[hosts.b]\nrole = 'x'\n", 6),
        ("[hosts.a]\nvenvs = [\n  '/v',\n  'w',\n]\n", 2),
        ("[console]\n[hosts.a]\n[consol]\n", 3),
        ("[console]\n\n  intervall = 2  # s\n", 3),
        ('[hosts."m.example"]\nport = 0\n', 2),
        ('[hosts."a:b"]\n', 1),
        ("[ hosts.a ] # x\nport = 0\n", 2),
        ("console = 1\n", 1),
        ("[hosts]\na = { role = 'x' }\n", None),
        ("hosts.a.role = 'x'\n", None),
        ("[hosts.a]\nunits = ['x y', '''\nunits = 3\n''']\n", None),
    ],
)
def test_a_mistake_is_told_with_its_line_where_that_is_certain(
    tmp_path: Path, text: str, line: int | None
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    told = re.match(rf"{re.escape(str(path))}: (?:line (\d+): )?\w", str(caught.value))
    assert told is not None
    assert told[1] == (str(line) if line else None)
