"""The agent boots behind any login shell, on any Python from 3.8 up, and says so when there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from msgspec import UNSET

from dflash_console.agent import boot as boot_module
from dflash_console.agent.main import SECTIONS
from dflash_console.link.bundle import BOOT_COMMAND, NO_PYTHON, bundle, sources
from dflash_console.link.imports import reached
from dflash_console.model import Hello, Note
from tests.agent.driver import OWN_LINES, PATIENCE, SPEC, Agent, boot, children_of, is_gone
from tests.agent.environments import pythons
from tests.shells import LOGIN_SHELLS, login_shell
from tests.waiting import until_sync

PYTHON_TRAPS = {"PYTHONPATH": "/nonexistent", "PYTHONHOME": "/nonexistent", "PYTHONSTARTUP": "/etc/passwd"}


def old_pythons() -> list[str]:
    """Interpreters older than 3.8 that are at hand."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}") for version in ("2.7", "3.5", "3.6", "3.7")]
    paths = [path for path in found if path and "shims" not in path]
    paths += [
        str(path) for path in versions.glob("*/bin/python") if path.parts[-3].startswith(("2.", "3.6", "3.7"))
    ]
    return sorted(set(paths))


def say_hello(agent: Agent) -> Hello:
    hello = agent.read()
    assert isinstance(hello, Hello)
    return hello


@pytest.mark.parametrize("name", LOGIN_SHELLS)
def test_boots_through_every_login_shell_behind_a_noisy_rc_file(name: str, tmp_path: Path) -> None:
    login = login_shell(name, tmp_path, "noisy")
    agent = boot(sys.executable, login.command, env={**os.environ, **PYTHON_TRAPS, **login.env})
    try:
        assert b"Welcome to the machine" in agent.noise
        assert say_hello(agent).python == "{}.{}.{}".format(*sys.version_info)
    finally:
        agent.close()
    assert agent.ended() == 0


def test_the_line_is_safe_inside_the_single_quotes_of_every_shell() -> None:
    match = re.fullmatch(r"exec /bin/sh -c '(.*)'", BOOT_COMMAND)
    assert match is not None
    # tcsh(1), history substitution: a `!` before a blank is an ordinary one.
    assert not set(match.group(1).replace("! ", "")) & set("!\\\n'")


@pytest.mark.parametrize("minor", [f"3.{minor}" for minor in range(8, 15)])
def test_boots_on_every_python_from_3_8_up(minor: str) -> None:
    if minor not in pythons():
        pytest.skip(f"no Python {minor} at hand")
    agent = boot(pythons()[minor])
    try:
        assert say_hello(agent).python.startswith(minor + ".")
        assert agent.noise == b""
    finally:
        agent.close()
    assert agent.ended() == 0


@pytest.mark.parametrize("minor", [f"3.{minor}" for minor in range(8, 15)])
def test_the_shipped_agent_reads_every_section_and_leaves_no_process(minor: str) -> None:
    if minor not in pythons():
        pytest.skip(f"no Python {minor} at hand")
    agent = boot(pythons()[minor])
    try:
        agent.ask("watch", **{**SPEC, "paths": ["/etc"], "units": ["ssh.service", "user:a.service"]})
        wanted = set(SECTIONS)
        seen: set[int] = set()
        while wanted:
            message = agent.read()
            assert not isinstance(message, Note), message.text
            seen |= set(children_of(agent.process.pid))
            wanted -= {name for name in wanted if getattr(message, name, UNSET) is not UNSET}
        seen |= set(children_of(agent.process.pid))
        agent.stdin.close()
        assert agent.ended() == 0
        until_sync(lambda: all(is_gone(pid) for pid in seen), PATIENCE, f"the children {seen} are gone")
    finally:
        agent.close()


def test_a_usual_python_that_will_not_do_is_passed_over_for_one_that_will(tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to("/bin/false")
    (tmp_path / "python3.14").symlink_to("/bin/true")
    (tmp_path / "python3.13").symlink_to("/bin/echo")
    (tmp_path / "python3.12").symlink_to(sys.executable)
    agent = boot("", env={"PATH": f"{tmp_path}"})
    try:
        assert say_hello(agent).python == "{}.{}.{}".format(*sys.version_info)
    finally:
        agent.close()


@pytest.mark.parametrize(
    ("configured", "why"),
    [
        *((python, r"Python [23]\.[\d.]+") for python in old_pythons()),
        ("/nowhere/python", "no such program"),
        ("no such thing", "no such program"),
        ("/etc", "no such program|.*"),
        ("/etc/passwd", "no such program|.*[Pp]ermission denied"),
        ("/bin/false", "not Python"),
        ("/bin/true", ".*"),
        ("/bin/echo", ".*"),
    ],
)
@pytest.mark.parametrize("name", LOGIN_SHELLS)
def test_a_configured_python_that_will_not_do_is_told_and_no_other_taken(
    name: str, configured: str, why: str, tmp_path: Path
) -> None:
    shell = shutil.which(name)
    if shell is None:
        pytest.skip(f"{name} is not installed")
    (tmp_path / "python3").symlink_to(sys.executable)
    done = line_of_a_host(configured, shell, {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.returncode == 127
    assert re.fullmatch(rf"{NO_PYTHON} {configured} \(({why})\),?\n", done.stdout)


def without_pythons(configured: str) -> subprocess.CompletedProcess[str]:
    """Run the line on a host that has no interpreter but the configured one."""
    return line_of_a_host(configured, "/bin/sh", {"PATH": "/nowhere"})


def line_of_a_host(configured: str, shell: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the line on a host whose only Pythons are those of PATH and the configured one."""
    line = BOOT_COMMAND
    for path in re.findall(r" (/usr/\S+)", line):
        line = line.replace(f" {path}", " /nowhere/python3")
    done = subprocess.run(
        [shell, "-c", line],
        input=configured + "\n",
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    done.stdout = OWN_LINES.sub("", done.stdout)
    return done


def test_a_host_without_any_python_says_so_in_one_line() -> None:
    done = without_pythons("")
    assert (done.returncode, done.stdout) == (127, f"{NO_PYTHON} nothing found\n")


@pytest.mark.parametrize("python", old_pythons())
def test_a_host_with_only_an_old_python_says_which(python: str) -> None:
    done = without_pythons(python)
    assert done.returncode == 127
    assert re.fullmatch(rf"{NO_PYTHON} {python} \(Python [23]\.[\d.]+\),\n", done.stdout)


def test_an_old_python_whose_name_a_shell_could_read_is_only_named(tmp_path: Path) -> None:
    odd = tmp_path / "a b$(touch x)*;!`id`"
    odd.write_text("#!/bin/sh\necho 'Python 3.7.0 * `id` $HOME'\nexit 1\n")
    odd.chmod(0o755)
    done = without_pythons(str(odd))
    assert done.stdout == f"{NO_PYTHON} {odd} (Python 3.7.0 * `id` $HOME),\n"


def test_a_version_that_comes_through_a_shim_runs_without_the_shim(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    shim = tmp_path / "python3"
    shim.write_text(f'#!/bin/sh\necho call >> {calls}\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    agent = boot("", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    try:
        say_hello(agent)
        assert calls.read_text() == "call\n"
    finally:
        agent.close()


def test_a_wrapper_without_which_python_does_not_run_stays_in_use(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text(f'#!/bin/sh\n[ "$NEEDED" ] || exit 9\nexec {sys.executable} "$@"\n')
    # Its sys.executable is what the wrapper says, and that does not run by itself.
    wrapper = tmp_path / "python3"
    wrapper.write_text(
        "#!/bin/sh\nNEEDED=1; export NEEDED\n"
        f'case "$*" in *sys.executable*) printf %s {real};; *) exec {real} "$@";; esac\n'
    )
    for script in (real, wrapper):
        script.chmod(0o755)
    agent = boot("", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    try:
        say_hello(agent)
    finally:
        agent.close()


def test_the_bundle_is_small_and_only_its_token_differs() -> None:
    one, other = bundle("a" * 32), bundle("b" * 32)
    assert one.replace(b"a" * 32, b"b" * 32) == other
    assert len(one) < 290_000


def test_each_errand_brings_only_what_it_imports() -> None:
    watching, copying = bundle("a" * 32), bundle("a" * 32, errand="copy")
    assert b'"dflash_agent.copy.' not in watching
    assert b'"pynvml"' in watching
    assert b'"dflash_agent.copy.' in copying
    assert b'"pynvml"' not in copying
    for left_out in ("gpu", "units", "deep", "verify.service", "machine"):
        assert f'"dflash_agent.{left_out}'.encode() not in copying
    assert len(copying) < 0.65 * len(watching)


def test_nothing_that_a_copy_runs_imports_later_what_is_not_brought() -> None:
    """A function's import is followed only in the room of the copy; two packages hand out jobs that it never asks
    for."""
    for_types = re.compile(rb"^if TYPE_CHECKING:\n(?:(?: .*)?\n)+", re.MULTILINE)
    found = sources(Path(boot_module.__file__).parent, "dflash_agent")
    modules = {name: for_types.sub(b"", text) for name, text in found}
    brought = set(
        re.findall(r'^"(dflash_agent[\w.]*)"', bundle("a" * 32, errand="copy").decode("latin-1"), re.M)
    )
    assert "dflash_agent.copy.serve" in brought
    for name in brought - {"dflash_agent.main", "dflash_agent.verify."}:
        assert reached(modules, (name,), {name}.__contains__) <= brought, name


@pytest.mark.parametrize("token", ["", "short", 'a"b' * 5, "a\n" * 8, "ä" * 16])
def test_a_token_that_could_end_its_string_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="token"):
        bundle(token)


def packed(modules: dict[str, str]) -> dict[str, str]:
    return {name: zlib.compress(text.encode()).decode("latin-1") for name, text in modules.items()}


def shipped(program: str, modules: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program after the boot source, with `modules` in memory."""
    text = Path(boot_module.__file__).read_text()
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{text}\nmodules = {packed(modules)!r}\n{program}\n"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


IMPORTABLE = "sys.meta_path.insert(0, Finder(modules))\n"


def test_what_ends_the_agent_is_shown_with_module_and_source_line() -> None:
    main = "def main(heartbeat):\n    return 1 / 0  # of all things\n"
    modules = {"dflash_agent.": "", "dflash_agent.main": main}
    done = shipped("start('tok', {'heartbeat': 3}, modules)", modules)
    assert (done.returncode, done.stdout) == (1, "\ntok\n")
    assert 'File "dflash_agent/main.py", line 2, in main' in done.stderr
    assert "return 1 / 0  # of all things" in done.stderr


def test_a_module_that_nobody_imports_is_not_compiled() -> None:
    done = shipped(IMPORTABLE + "import fine; print(fine.x)", {"fine": "x = 1", "broken": "]["})
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_large_module_is_compiled_apart_and_its_errors_are_still_shown() -> None:
    filler = "# filler\n" * (boot_module.LARGE // 8)
    done = shipped(IMPORTABLE + "import large; print(large.x)", {"large": filler + "x = 1\n"})
    assert (done.stdout, done.stderr) == ("1\n", "")
    done = shipped(IMPORTABLE + "import large", {"large": filler + "x = ][\n"})
    assert 'File "large.py", line ' in done.stderr
    assert "SyntaxError" in done.stderr


def test_the_shipped_pynvml_is_importable_on_the_host() -> None:
    source = bundle("a" * 32).decode("latin-1")
    start, modules = source.rindex('\nstart("'), source.rindex(", {\n") + 2
    program = f"{source[:start]}\nmodules = {source[modules:].rstrip()[:-1]}\n{IMPORTABLE}import pynvml\n"
    program += "print(pynvml.NVML_SUCCESS, pynvml.__file__)\n"
    for python in pythons().values():
        done = subprocess.run(
            [python, "-I", "-S", "-B", "-c", "import sys;exec(sys.stdin.buffer.read())"],
            input=program.encode("latin-1"),
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.stdout == b"0 pynvml.py\n", done.stderr


def test_the_sections_pay_for_no_dear_import() -> None:
    root = Path(boot_module.__file__).parents[2]
    script = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "from dflash_console.agent.main import SECTIONS\n"
        "made = [make() for make in SECTIONS.values()]\n"
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    dear = {
        "typing",
        "dataclasses",
        "asyncio",
        "logging",
        "ssl",
        "subprocess",
        "platform",
        "pynvml",
        "ctypes",
    }
    assert set(done.stdout.split()) & dear == set()
