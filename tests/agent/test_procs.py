"""What is told of a process is true of that very process."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from dflash_console.agent import procs
from dflash_console.agent.procs import find_venv, read_process, start_ticks, unit_of, user_name
from tests.agent.driver import PATIENCE
from tests.agent.environments import make_venv
from tests.waiting import until_sync

WAIT = "import sys; print(flush=True); sys.stdin.read()"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Each test starts with nothing known."""
    procs._cache.clear()
    yield
    procs._cache.clear()


@contextlib.contextmanager
def running(
    argv: Sequence[str | bytes],
    *,
    cwd: Path | None = None,
    executable: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """The pid of a process that has said its first line and waits for the end of its input."""
    process = subprocess.Popen(
        argv, cwd=cwd, executable=executable, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline()
        yield process.pid
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(PATIENCE)


def read(pid: int) -> dict[str, Any]:
    facts = read_process(pid)
    assert facts is not None
    return facts


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venvs") / "ml-env"
    make_venv(folder)
    script = folder / "bin" / "serve"
    script.write_text(f"#!{folder}/bin/python\n{WAIT}\n")
    script.chmod(0o755)
    return folder


def test_user_start_executable_and_arguments_agree_with_psutil() -> None:
    with running([sys.executable, "-c", WAIT, "--port", "1"]) as pid:
        facts, theirs = read(pid), psutil.Process(pid)
        assert facts["user"] == theirs.username()
        assert abs(facts["started"] - theirs.create_time()) < 1.5
        assert abs(facts["started"] - time.time()) < PATIENCE
        assert facts["exe"] == theirs.exe()
        assert facts["argv"] == theirs.cmdline()
        assert facts["command"] == f"{sys.executable} -c '{WAIT}' --port 1"


def test_the_command_is_told_without_its_secrets() -> None:
    with running([sys.executable, "-c", WAIT, "--api-key", "Zk9hunter2"]) as pid:
        assert read(pid)["command"].endswith("--api-key ***")


def test_arguments_that_are_not_utf8_become_text_that_json_can_hold() -> None:
    with running([os.fsencode(sys.executable), b"-c", WAIT.encode(), b"caf\xe9"]) as pid:
        facts = read(pid)
        assert facts["argv"][-1] == "caf\\xe9"
        facts["command"].encode("utf-8")


def test_a_process_that_ended_is_nobody() -> None:
    with running([sys.executable, "-c", WAIT]) as pid:
        assert read(pid)
    assert read_process(pid) is None
    assert read_process(2**22 + 1) is None
    assert start_ticks(pid) is None


def test_a_zombie_and_a_kernel_thread_are_named_in_brackets() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    status = Path(f"/proc/{process.pid}/stat")
    until_sync(lambda: ") Z " in status.read_text(), PATIENCE, "a zombie")
    assert read(process.pid)["command"].startswith("[python")
    process.wait()
    if Path("/proc/2/comm").exists() and not Path("/proc/2/cmdline").read_bytes():
        assert read(2)["command"] == "[kthreadd]"


def test_facts_are_reused_for_the_same_process_and_read_anew_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running([sys.executable, "-c", WAIT]) as pid:
        first = read(pid)
        assert read(pid) is first
        monkeypatch.setattr(procs, "FRESH", 0.0)
        procs._cache.clear()
        again = read(pid)
        assert read(pid) is not again


def test_a_process_that_becomes_another_program_is_seen_as_that(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procs, "FRESH", 0.0)
    program = f"echo; read line; exec {venv}/bin/python -c 'input()' --api-key x"
    process = subprocess.Popen(["/bin/sh", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    before = read(process.pid)
    assert before["venv"] is None
    process.stdin.write(b"\n")
    process.stdin.flush()
    until_sync(lambda: read(process.pid)["venv"] == str(venv), PATIENCE, "the environment of the new program")
    after = read(process.pid)
    assert after["command"] == f"{venv}/bin/python -c input() --api-key ***"
    assert after["started"] == before["started"]
    process.communicate(b"\n", timeout=PATIENCE)


def test_a_reused_pid_is_another_process() -> None:
    last_pid = Path("/proc/sys/kernel/ns_last_pid")
    if os.geteuid() != 0 or not last_pid.exists():
        pytest.skip("choosing a pid needs root")
    with running([sys.executable, "-c", WAIT, "first"]) as pid:
        first = read(pid)
    for _ in range(200):
        last_pid.write_text(str(pid - 1))
        with running([sys.executable, "-c", WAIT, "second"]) as again:
            if again == pid:
                second = read(pid)
                assert second["argv"][-1] == "second"
                assert second["started"] >= first["started"]
                return
    pytest.skip("others took the pid every time")


def test_the_venv_by_the_interpreters_own_path(venv: Path) -> None:
    with running([str(venv / "bin" / "python"), "-c", WAIT]) as pid:
        assert read(pid)["exe"] == os.path.realpath(sys.executable)
        assert read(pid)["venv"] == str(venv)


def test_the_venv_by_a_path_relative_to_where_it_was_started(venv: Path) -> None:
    with running(["./ml-env/bin/python", "-c", WAIT], cwd=venv.parent) as pid:
        assert read(pid)["venv"] == str(venv)


def test_the_venv_by_a_name_on_the_process_path(venv: Path, tmp_path: Path) -> None:
    env = {"PATH": f"{tmp_path}:{venv}/bin:/usr/bin"}
    with running(["python", "-c", WAIT], executable=venv / "bin" / "python", env=env) as pid:
        assert read(pid)["venv"] == str(venv)


def test_the_venv_of_a_script_with_a_first_line(venv: Path) -> None:
    with running([str(venv / "bin" / "serve"), "--port", "1"]) as pid:
        assert read(pid)["venv"] == str(venv)


def test_the_venv_of_a_copied_interpreter(tmp_path: Path) -> None:
    folder = tmp_path / "copied"
    make_venv(folder, sys.executable, "--copies")
    with running(["anything", "-c", WAIT], executable=folder / "bin" / "python") as pid:
        assert read(pid)["venv"] == str(folder)


MAPPING = (
    "import mmap, sys\n"
    "files = [open(path, 'rb') for path in sys.argv[1:]]\n"
    "maps = [mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for file in files]\n" + WAIT
)


def test_the_venv_of_a_process_that_wrote_over_its_command_line(venv: Path, tmp_path: Path) -> None:
    (site,) = venv.glob("lib/python3*/site-packages")
    shared = tmp_path / "deps" / "lib" / "python3.11" / "site-packages"
    shared.mkdir(parents=True)
    for folder in (shared, site):
        (folder / "torch.so").write_bytes(b"x" * 4096)
    argv = ["sglang::scheduler_TP0", "-c", MAPPING, str(shared / "torch.so"), str(site / "torch.so")]
    real = Path(os.path.realpath(sys.executable))
    with running(argv, executable=real) as pid:
        assert read(pid)["venv"] == str(venv)
        assert read(pid)["command"].startswith("sglang::scheduler_TP0")
    with running(argv[:4], executable=real) as pid:
        assert read(pid)["venv"] is None


def test_an_interpreter_outside_any_venv_has_none() -> None:
    shell = shutil.which("sh")
    assert shell is not None
    with running(["sh", "-c", "echo; read line"]) as pid:
        assert read(pid)["venv"] is None
    with running([os.path.realpath(sys.executable), "-c", WAIT]) as pid:
        assert read(pid)["venv"] is None


def test_a_name_on_path_means_its_first_place(venv: Path, tmp_path: Path) -> None:
    plain = tmp_path / "bin"
    plain.mkdir()
    (plain / "python").symlink_to(os.path.realpath(sys.executable))
    assert find_venv(["python"], None, "/", f"{plain}:{venv}/bin") is None
    assert find_venv(["python"], None, "/", f"relative:{venv}/bin:{plain}") == str(venv)
    assert find_venv([], None, None, "") is None


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0::/system.slice/sglang.service\n", "sglang.service"),
        ("0::/system.slice/system-sglang.slice/sglang@8.service\n", "sglang@8.service"),
        ("0::/system.slice/sglang.service/workers/0\n", "sglang.service"),
        ("0::/user.slice/user-0.slice/session-3.scope\n", None),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/sglang.service\n",
            "user:sglang.service",
        ),
        ("0::/user.slice/user-0.slice/user@0.service/init.scope\n", "user@0.service"),
        ("12:memory:/x.service\n1:name=systemd:/system.slice/sglang.service\n0::/\n", "sglang.service"),
        ("1:name=systemd:/system.slice/sglang.service\n0::/system.slice/wrong.service\n", "sglang.service"),
        ("1:name=systemd:/payload\n0::/payload/system.slice/sglang.service\n", "sglang.service"),
        ("0::/lxc/129/ns/system.slice/sglang.service\n", "sglang.service"),
        ("0::/machine.slice/systemd-nspawn@ct.service/payload/system.slice/a.service\n", "a.service"),
        ("0::/system.slice/docker-0123abcd.scope\n", None),
        ("0::/system.slice/_cpu.service\n", "cpu.service"),
        ("0::/system.slice/a\\x2db.service\n", "a\\x2db.service"),
        ("0::/.service\n", None),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_the_unit_is_the_innermost_service_of_the_cgroup(text: str, unit: str | None) -> None:
    assert unit_of(text) == unit


def test_the_unit_of_a_real_cgroup() -> None:
    root = Path("/sys/fs/cgroup")
    base = next(
        (
            folder
            for folder in (root / "systemd", root / "unified", root)
            if (folder / "cgroup.procs").exists()
        ),
        None,
    )
    folder = base / "dflash-test.slice" if base else root
    try:
        (folder / "probe.service" / "inner").mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"making a cgroup needs root: {error}")
    try:
        with running([sys.executable, "-c", WAIT]) as pid:
            (folder / "probe.service" / "inner" / "cgroup.procs").write_text(str(pid))
            assert read(pid)["unit"] == "probe.service"
    finally:
        until_sync(lambda: _removed(folder), PATIENCE, "the cgroup is empty and gone")


def _removed(folder: Path) -> bool:
    for each in (folder / "probe.service" / "inner", folder / "probe.service", folder):
        with contextlib.suppress(OSError):
            each.rmdir()
    return not folder.exists()


def test_a_user_without_a_name_is_a_number() -> None:
    assert user_name(0) == "root"
    assert user_name(3_999_999_999) == "3999999999"


def test_a_process_that_vanishes_while_it_is_read_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(["sleep", "1000"])
    whole = procs._bytes

    def kill_first(path: str, limit: int) -> bytes:
        if path.endswith("/cmdline"):
            process.send_signal(signal.SIGKILL)
            process.wait()
        return whole(path, limit)

    monkeypatch.setattr(procs, "_bytes", kill_first)
    assert read_process(process.pid) is None


def test_every_process_of_this_machine_can_be_read() -> None:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    assert any(read_process(pid) for pid in pids)
