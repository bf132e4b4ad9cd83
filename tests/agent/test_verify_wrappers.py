"""What a unit's command does before its Python starts: followed where it is plain, a reason where it is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dflash_console.agent.verify.hiding import hidden_by
from dflash_console.agent.verify.wrappers import unwrap
from tests.agent.test_verify_find_spec import package
from tests.agent.test_verify_service import NAME, Units, needs_root, told, units, venv, verify

__all__ = ["units", "venv"]

PYTHON = "/v/bin/python"
GIVEN = {"PATH": "/usr/bin:/bin", "A": "old", "HOME": "/home/x"}


@pytest.mark.parametrize(
    ("command", "words", "folder", "changes"),
    [
        (f"{PYTHON} -m x", "-m x", "/w", {}),
        (f"/usr/bin/env A=b B=c {PYTHON} -m x", "-m x", "/w", {"A": "b", "B": "c"}),
        (f"/usr/bin/env -u A -C sub {PYTHON}", "", "/w/sub", {"A": None}),
        (f"/usr/bin/env --unset=A --chdir=/y -- {PYTHON}", "", "/y", {"A": None}),
        (f"/usr/bin/env -i B=c {PYTHON}", "", "/w", {"A": None, "HOME": None, "PATH": None, "B": "c"}),
        (f"/usr/bin/env PATH=/z:${{PATH}} {PYTHON}", "", "/w", {"PATH": "/z:/usr/bin:/bin"}),
        (f"/usr/bin/numactl --cpunodebind=0 nice -n 5 env B=c {PYTHON} -m x", "-m x", "/w", {"B": "c"}),
        (f"/bin/bash -c exec {PYTHON} -m x --port $PORT", "-m x --port $PORT", "/w", {}),
        (f"/bin/bash -c cd /y && exec {PYTHON} -m x", "-m x", "/y", {}),
        (f"/bin/sh -ec cd sub; export B=c A; B=d {PYTHON} -m x >> /log 2>&1; true", "-m x", "/w/sub", {"B": "d"}),
        (f"/bin/bash -c export P=/q:$P; cd ~/z; echo up; exec env C=d {PYTHON}", "", "/home/x/z",
         {"P": "/q:", "C": "d"}),
        (f"/bin/bash -c A=new; B=c; {PYTHON}", "", "/w", {"A": "new"}),
        (f"/bin/bash -c nvidia-smi -pm 1; {PYTHON}", "", "/w", {}),
    ],
)  # fmt: skip
def test_what_is_plain_is_followed(
    command: str, words: str, folder: str, changes: dict[str, str | None]
) -> None:
    launch = unwrap(command.split()[0], command, GIVEN, "/w")
    assert launch.problem == ""
    assert launch.words[0] == PYTHON
    if "2>&1" not in command:
        assert launch.words[1:] == words.split()
    assert launch.folder == folder
    expected = {**GIVEN, **changes}
    assert launch.environment == {name: value for name, value in expected.items() if value is not None}


@pytest.mark.parametrize(
    "text",
    [
        f"eval $SETUP; {PYTHON}",
        f". /etc/profile.d/cuda.sh; {PYTHON}",
        f"cd $(dirname $0) && {PYTHON}",
        f"cd `pwd` && {PYTHON}",
        f"if true; then cd /y; fi; {PYTHON}",
        f"setup() {{ cd /y; }}; setup; {PYTHON}",
        f"(cd /y; {PYTHON})",
        f"cd /y || exit 1; {PYTHON}",
        f"cat x | {PYTHON}",
        f"conda activate y; {PYTHON}",
        f"pushd /y; {PYTHON}",
        "exec",
        "cd /y",
        f"cd 'y; {PYTHON}",
        f"declare -x PYTHONPATH=/y; {PYTHON}",
    ],
)
def test_what_a_shell_does_otherwise_is_a_reason(text: str) -> None:
    launch = unwrap("/bin/bash", f"/bin/bash -c {text}", GIVEN, "/w")
    assert launch.problem.startswith("started through a shell, whose effect can't be told: ")


@pytest.mark.parametrize(
    "command", [f"/bin/bash -lc {PYTHON}", f"/usr/bin/env -S A=b {PYTHON}", "/usr/bin/env", "/bin/sh"]
)
def test_options_that_read_or_split_more_are_a_reason(command: str) -> None:
    assert unwrap(command.split()[0], command, GIVEN, "/w").problem


def test_a_script_is_followed_by_its_first_line_or_its_text(tmp_path: Path, venv: Path) -> None:
    script = tmp_path / "run"
    script.write_text(f"#!{venv}/bin/python -I\nimport sys\n")
    launch = unwrap(str(script), f"{script} serve --tool python", GIVEN, "/w")
    assert launch.words == [f"{venv}/bin/python", "-I", str(script), "serve", "--tool", "python"]
    script.write_text(
        f"#!/bin/bash\n# a comment\nset -e\nsource {venv}/bin/activate\ncd /y\nexec python -m x\n"
    )
    (venv / "bin/activate").touch()
    launch = unwrap(str(script), str(script), GIVEN, "/w")
    assert (launch.problem, launch.words, launch.folder) == ("", ["python", "-m", "x"], "/y")
    assert launch.environment["PATH"] == f"{venv}/bin:/usr/bin:/bin"
    assert launch.environment["VIRTUAL_ENV"] == str(venv)
    script.write_text(f"#!/bin/bash\nsource /etc/x.sh\nexec {venv}/bin/python -m x\n")
    assert "can't be told" in unwrap(str(script), str(script), GIVEN, "/w").problem


# ---- a unit that does not run


def test_what_env_sets_decides_over_a_unit_that_does_not_run(
    units: Units, venv: Path, tmp_path: Path
) -> None:
    other = package(tmp_path / "other")
    units.say(f"/usr/bin/env PYTHONPATH={tmp_path}/other {venv}/bin/python -m sglang.serve")
    check = told(venv)
    assert (check.state, f"imports {other}/__init__.py" in check.detail) == ("fail", True)
    units.say(f"/usr/bin/env -C {tmp_path}/other {venv}/bin/python -m sglang.serve")
    assert f"imports {other}/__init__.py" in told(venv).detail
    units.say(
        f"/usr/bin/env -u PYTHONPATH {venv}/bin/python -m sglang.serve",
        Environment=f"PYTHONPATH={tmp_path}/other",
    )
    assert told(venv).state == "pass"
    units.say(f"/bin/bash -c cd {tmp_path}/other && exec {venv}/bin/python -m sglang.serve")
    assert f"imports {other}/__init__.py" in told(venv).detail


def test_a_shell_that_may_do_anything_is_unknown_and_never_passes(
    units: Units, venv: Path, tmp_path: Path
) -> None:
    units.say(f"/bin/bash -c . /etc/profile; exec {venv}/bin/python -m sglang.serve")
    check = told(venv)
    assert check.state == "unknown"
    assert "started through a shell, whose effect can't be told: " in check.detail
    script = tmp_path / "run.sh"
    script.write_text(f"#!/bin/bash\n. /etc/profile\nexec {venv}/bin/python -m sglang.serve\n")
    script.chmod(0o755)
    units.say(str(script))
    assert told(venv).state == "unknown"


def test_variables_that_a_unit_is_not_given_or_passed_are_followed(
    units: Units, venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path / "other")
    command = f"{venv}/bin/python -m sglang.serve"
    variable = f"PYTHONPATH={tmp_path}/other"
    units.say(command, Environment=variable)
    assert told(venv).state == "fail"
    for word in ("PYTHONPATH", variable):
        units.say(command, Environment=variable, UnsetEnvironment=f"X {word}")
        assert told(venv).state == "pass"
    units.say(command, Environment=variable, UnsetEnvironment="PYTHONPATH=/another")
    assert told(venv).state == "fail"
    units.say(command, PassEnvironment="FROM_MANAGER")
    assert told(venv).state == "pass"
    real = open

    def closed(path: object, *words: object, **named: object) -> object:
        if path == "/proc/1/environ":
            raise PermissionError(13, "Permission denied")
        return real(path, *words, **named)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", closed)
    units.say(command, PassEnvironment="LANG")
    assert told(venv).state == "pass"
    units.say(command, PassEnvironment="LANG PYTHONPATH")
    check = told(venv)
    assert (check.state, "systemd's own PYTHONPATH, which can't be read" in check.detail) == ("unknown", True)


def test_an_environment_that_is_hidden_from_the_unit_will_not_start(
    units: Units, venv: Path, tmp_path: Path
) -> None:
    command = f"{venv}/bin/python -m sglang.serve"
    for name, value in (("InaccessiblePaths", f"-{tmp_path}"), ("TemporaryFileSystem", f"{tmp_path}:ro")):
        units.say(command, 0, **{name: value})
        check = told(venv)
        assert check.state == "fail"
        assert check.detail == f"will not start: {name}={tmp_path} hides {venv}/bin/python from it"
        units.say(command, 0, **{name: value, "BindPaths": f"/srv/venv:{venv}:rbind"})
        assert told(venv).state == "unknown"
    units.say(command, InaccessiblePaths=f"/nowhere {tmp_path}/work", WorkingDirectory=str(tmp_path / "work"))
    (tmp_path / "work").mkdir()
    assert (told(venv).state, f"can't tell what it sees at {tmp_path}/work" in told(venv).detail) == (
        "unknown",
        True,
    )
    units.say(command, InaccessiblePaths="/nowhere", ProtectHome="read-only")
    assert told(venv).state == "pass"


@pytest.mark.parametrize(
    ("block", "path", "expected"),
    [
        ({"ProtectHome": "yes"}, "/home/x/venv", ("ProtectHome=yes", True)),
        ({"ProtectHome": "tmpfs"}, "/root/venv", ("ProtectHome=tmpfs", True)),
        ({"ProtectHome": "read-only"}, "/home/x/venv", ("", True)),
        ({"ProtectHome": "yes"}, "/homes/x", ("", True)),
        ({"ProtectHome": "yes", "BindPaths": "/home/x"}, "/home/x/venv", ("ProtectHome=yes", False)),
        ({"ProtectHome": "yes", "BindPaths": "/home/y"}, "/home/x/venv", ("ProtectHome=yes", True)),
        ({"PrivateTmp": "yes"}, "/var/tmp/venv", ("PrivateTmp=yes", True)),
        ({"BindReadOnlyPaths": "/a:/srv"}, "/srv/venv", ("BindReadOnlyPaths=/a:/srv", False)),
        ({"ExtensionImages": "/x.raw"}, "/opt/venv", ("ExtensionImages=/x.raw", False)),
        ({}, "/opt/venv", ("", True)),
    ],
)
def test_what_hides_a_path_is_named(block: dict[str, str], path: str, expected: tuple[str, bool]) -> None:
    assert hidden_by(block, path) == expected


# ---- who reads, and which environment


@needs_root
@pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="needs a Python that everybody may run")
def test_files_that_the_units_user_may_not_read_fail_though_they_are_not_listed(
    units: Units, tmp_path: Path, venv: Path
) -> None:
    from tests.agent.environments import make_venv

    venv = tmp_path / "everybody's"
    site = make_venv(venv, "/usr/bin/python3")
    package(site)
    (site / "sglang/lib").mkdir()
    (site / "sglang/lib/deep.py").write_text("x = 1\n")
    (site / "sglang/late.py").write_text("x = 1\n")
    (site / "sglang/notes.txt").write_text("x")
    (site / "sglang/serve.py").write_text("x = 1\n")
    units.say(f"{venv}/bin/python -m sglang.serve", User="nobody")
    (site / "sglang/notes.txt").chmod(0o600)
    assert told(venv).state == "pass", told(venv)
    (site / "sglang/late.py").chmod(0o600)
    check = told(venv)
    assert (check.state, check.detail) == ("fail", f"nobody may not read 1 of {site}/sglang: late.py")
    (site / "sglang/lib").chmod(0o700)
    assert told(venv).detail == f"nobody may not read 2 of {site}/sglang: late.py, lib/"
    units.say(f"{venv}/bin/python -m sglang.serve")
    assert told(venv).state == "pass"


def test_an_environment_by_another_path_is_the_same_one(units: Units, venv: Path, tmp_path: Path) -> None:
    from tests.agent.verify_loop import part

    (tmp_path / "current").symlink_to(venv)
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep/er")
    (tmp_path / "deep/venv").symlink_to(venv)
    units.say("/bin/bash -c $RUN")

    def is_home(path: str, **fields: object) -> bool:
        return f"service {NAME}" in part("service", Path(path), units=[NAME], limit=60.0, **fields)[0]

    assert is_home(str(venv), package_venv=str(tmp_path / "current"), is_package_venv=False)
    assert is_home(str(tmp_path / "current"), package_venv=str(venv), is_package_venv=False)
    assert not is_home(str(venv), package_venv="/another", is_package_venv=True)
    assert not is_home(str(venv), package_venv=None, is_package_venv=False)
    through = f"{tmp_path}/link/../venv"
    units.say(f"{through}/bin/python -m sglang.serve")
    found, _ = part("service", venv, units=[NAME], limit=60.0)
    assert found[f"service {NAME}"].state == "pass"
    found, _ = part("files", through)  # type: ignore[arg-type]
    assert found["python"].state == "pass"
    assert verify(venv) is not None


def test_a_working_directory_that_was_made_again_is_the_next_starts(
    units: Units, venv: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    units.start(str(venv / "bin/python"), "-m", "sglang.serve", cwd=work)
    work.rmdir()
    check = told(venv)
    assert check.state == "unknown"
    assert f"its working directory {work} was deleted since it started" in check.detail
    work.mkdir()
    assert told(venv).state == "pass", told(venv)
    other = package(work)
    assert f"imports {other}/__init__.py" in told(venv).detail
