"""The built wheel, alone in an empty environment: what a user gets who installs it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent


def run(*words: object, timeout: float = 240) -> str:
    """Runs a command outside the checkout, without this environment's paths; gives back its stdout."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    done = subprocess.run(
        [str(word) for word in words],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        cwd="/",
        env=environment,
    )
    assert done.returncode == 0, (
        f"{words}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment with the wheel and its locked dependencies in it."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        check=True,
        capture_output=True,
        cwd=PROJECT,
        timeout=120,
    )
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=True)
    binaries = folder / "env" / "bin"
    pip = (binaries / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--require-hashes", "--requirement", PROJECT / "requirements.lock")
    run(*pip, "--no-deps", wheel)
    return binaries


pytestmark = pytest.mark.timeout(400)


def test_the_command_tells_its_version_and_its_words(installed: Path) -> None:
    from dflash_console import __version__

    assert __version__ in run(installed / "dflash-console", "--version")
    assert "status" in run(installed / "dflash-console", "--help")


def test_the_themes_are_inside(installed: Path) -> None:
    script = (
        "import dflash_console, pathlib;"
        "print(*(file.name for file in pathlib.Path(dflash_console.__file__).parent.glob('themes/*.toml')))"
    )
    themes = run(installed / "python", "-I", "-c", script).split()
    assert sorted(themes) == sorted(file.name for file in (PROJECT / "themes").glob("*.toml"))
    assert themes


def test_the_agent_is_inside_as_source(installed: Path) -> None:
    script = (
        "import dflash_console, pathlib;"
        "print(*(str(file.relative_to(pathlib.Path(dflash_console.__file__).parent))"
        " for file in pathlib.Path(dflash_console.__file__).parent.glob('agent/**/*.py')))"
    )
    inside = set(run(installed / "python", "-I", "-c", script).split())
    package = PROJECT / "dflash_console"
    assert inside == {str(file.relative_to(package)) for file in package.glob("agent/**/*.py")}


def test_status_of_this_machine_works_and_imports_no_textual(installed: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[hosts.here]\nlocal = true\n")
    script = (
        "import sys; from dflash_console.cli import main\n"
        f"code = main(['--config', {str(config)!r}, 'status', '--json'])\n"
        "assert code in (0, 1), code\n"
        "assert not {'textual', 'rich', 'asyncssh'} & set(sys.modules)\n"
    )
    assert '"hosts"' in run(installed / "python", "-I", "-c", script)
