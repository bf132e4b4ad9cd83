"""Which processes count as running from an environment: real ones, of every kind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from dflash_console.agent.copy import processes
from dflash_console.agent.copy.importers import AGENT, Importers
from dflash_console.agent.copy.processes import ProcessSearch
from tests.agent.copy.trees import copying, package
from tests.agent.driver import boot
from tests.agent.environments import make_venv

SAY = "print('ready', flush=True); import time; time.sleep(1000)"


@contextmanager
def running(argv: Sequence[str | Path], cwd: Path | None = None, passed: Sequence[int] = ()) -> Iterator[int]:
    """A process that has said that it is ready; its pid."""
    process = subprocess.Popen([str(word) for word in argv], stdout=subprocess.PIPE, cwd=cwd, pass_fds=passed)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.kill()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def importers(venv: Path, site: Path | None = None) -> list[str]:
    """The rows of this test's own processes."""
    found = Importers(str(venv), [f"{site}/sglang"] if site is not None else [])
    try:
        return found.read(lambda: None)
    finally:
        found.close()


def test_nobody_uses_a_package_that_nobody_uses(venv: Path, site: Path) -> None:
    package(site)
    assert importers(venv, site) == []


def test_the_environments_interpreter_counts_and_its_secrets_are_hidden(venv: Path, site: Path) -> None:
    package(site)
    argv: list[str | Path] = [
        venv / "bin" / "python",
        "-c",
        SAY,
        "--api-key",
        "sk-verysecret1234",
        "--port",
        "30000",
    ]
    with running(argv) as pid:
        (row,) = importers(venv, site)
    assert row.startswith(f"process {pid} ({venv}/bin/python -c ")
    assert "--port 30000" in row
    assert "verysecret" not in row
    assert row.isprintable()


def test_a_program_of_the_environment_counts(venv: Path) -> None:
    program = venv / "bin" / "serve"
    program.write_text(f"#!{venv}/bin/python\n{SAY}\n")
    program.chmod(0o755)
    with running([program]) as pid:
        assert [row.partition(" (")[0] for row in importers(venv)] == [f"process {pid}"]


def test_an_environment_by_another_name_is_the_same(venv: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(venv)
    with running([tmp_path / "current" / "bin" / "python", "-c", SAY]) as pid:
        assert [row.partition(" (")[0] for row in importers(venv)] == [f"process {pid}"]


def test_another_environment_and_another_package_do_not_count(venv: Path, site: Path, tmp_path: Path) -> None:
    package(site)
    (site / "sglang_kernel").mkdir()
    with running([sys.executable, "-c", SAY], cwd=site / "sglang_kernel"):
        assert importers(venv, site) == []


def test_who_works_in_its_folder_counts(venv: Path, site: Path) -> None:
    folder = package(site)
    for cwd in (folder, folder / "srt"):
        with running([sys.executable, "-I", "-c", SAY], cwd=cwd) as pid:
            assert [row.partition(" (")[0] for row in importers(venv, site)] == [f"process {pid}"]


def test_who_has_a_file_of_it_open_or_mapped_counts(venv: Path, site: Path) -> None:
    folder = package(site)
    (folder / "code.so").write_bytes(b"x" * 8192)
    fd = os.open(folder / "srt" / "server.py", os.O_RDONLY)
    try:
        with running([sys.executable, "-I", "-c", SAY], passed=[fd]) as pid:
            os.close(fd)
            fd = -1
            assert [row.partition(" (")[0] for row in importers(venv, site)] == [f"process {pid}"]
    finally:
        if fd >= 0:
            os.close(fd)
    code = f"import mmap; f = open({str(folder / 'code.so')!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=1); f.close()"
    with running([sys.executable, "-I", "-c", f"{code}; import os; os.closerange(3, 100); {SAY}"]) as pid:
        assert [row.partition(" (")[0] for row in importers(venv, site)] == [f"process {pid}"]


def test_a_file_that_was_replaced_under_a_process_still_counts(venv: Path, site: Path) -> None:
    folder = package(site)
    (folder / "code.so").write_bytes(b"x" * 8192)
    code = f"import mmap; f = open({str(folder / 'code.so')!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=1); f.close()"
    with running([sys.executable, "-I", "-c", f"{code}; {SAY}"]) as pid:
        (folder / "code.so").unlink()
        assert [row.partition(" (")[0] for row in importers(venv, site)] == [f"process {pid}"]


def test_a_package_that_is_reached_by_links_counts_by_its_real_place(
    venv: Path, site: Path, tmp_path: Path
) -> None:
    site.rename(tmp_path / "moved")
    site.symlink_to(tmp_path / "moved")
    folder = package(site)
    with running([sys.executable, "-I", "-c", SAY], cwd=folder.resolve()) as pid:
        assert [row.partition(" (")[0] for row in importers(venv, site)] == [f"process {pid}"]


def test_agents_that_run_in_the_environment_are_not_its_users(venv: Path, site: Path) -> None:
    package(site)
    watching = boot(str(venv / "bin" / "python"))
    try:
        with copying(str(venv / "bin" / "python")) as client:
            assert client.look(venv).importers == ()
            with running([venv / "bin" / "python", "-c", SAY]) as pid:
                (row,) = client.look(venv).importers
                assert row.startswith(f"process {pid} (")
    finally:
        watching.close()


def test_what_an_agent_has_started_there_is_not_its_user(venv: Path, site: Path) -> None:
    """The interpreter that it asks for an import, and what that one starts."""
    package(site)
    start = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    wait = "print('ready', flush=True); import sys; sys.stdin.read()"
    python = str(venv / "bin" / "python")

    def found(program: str) -> int:
        argv = [sys.executable, "-c", program, python, "-c", start, python, "-c", wait]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            rows = importers(venv, site)
            process.stdin.close()
        return len(rows)

    assert found(start) == 2
    assert found(f"{start}  # {AGENT}") == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_in_a_container_an_environment_is_known_by_what_it_is_not_by_its_path(
    venv: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    make_venv(other)
    (tmp_path / "place").mkdir()

    def inside(what: Path, where: Path) -> list[str | Path]:
        script = 'mount --bind "$1" "$2" && exec "$2/bin/python" -c "$3"'
        return ["unshare", "--mount", "sh", "-c", script, "sh", what, where, SAY]

    with running(inside(venv, tmp_path / "place")) as pid:
        assert [row.partition(" (")[0] for row in importers(venv)] == [f"process {pid}"]
    with running(inside(other, venv)):
        assert importers(venv) == []


def test_there_is_a_bound_to_what_is_told(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dflash_console.agent.copy.importers.MOST", 2)
    python = venv / "bin" / "python"
    with running([python, "-c", SAY]), running([python, "-c", SAY]), running([python, "-c", SAY]):
        rows = importers(venv)
    assert len(rows) == 2
    assert rows[-1] == "and 2 more"


def test_a_process_that_hangs_is_named_and_the_others_are_still_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 0.5)
    with running([sys.executable, "-c", SAY]) as first, running([sys.executable, "-c", SAY]) as second:

        def question(pid: int) -> int:
            if pid == min(first, second):
                signal.pause()
            return pid

        search = ProcessSearch(question)
        found = [pid for pid, _ in search.read()]
        search.close()
    assert search.hung == [min(first, second)]
    assert max(first, second) in found
    assert os.getpid() not in found


def test_a_question_that_ends_its_child_costs_only_that_process() -> None:
    with running([sys.executable, "-c", SAY]) as first, running([sys.executable, "-c", SAY]) as second:

        def question(pid: int) -> int:
            if pid == min(first, second):
                os._exit(3)
            return pid

        search = ProcessSearch(question)
        found = [pid for pid, _ in search.read()]
    assert max(first, second) in found
    assert search.hung == [min(first, second)]


def test_whoever_was_not_looked_at_is_told_of_all_the_same(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that hang take all the time that there is for the others."""
    monkeypatch.setattr(processes, "PATIENCE", 0.2)
    monkeypatch.setattr(processes, "LONGEST", 1.0)
    monkeypatch.setattr("dflash_console.agent.copy.importers._row", lambda *words: signal.pause())
    found = Importers(str(venv), [])
    try:
        rows = found.read(lambda: None)
    finally:
        found.close()
    hung = [row for row in rows if "hangs in the kernel" in row]
    (last,) = [row for row in rows if row not in hung]
    assert len(hung) > 1
    assert re.fullmatch(r"\d+ processes were not come to for those that hang: any may be one", last)


def test_all_that_hang_are_named_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 0.1)
    monkeypatch.setattr(processes, "LONGEST", 2.0)

    def question(pid: int) -> int:
        signal.pause()
        return pid

    search = ProcessSearch(question)
    assert search.read() == []
    search.close()
    first = ", ".join(map(str, search.hung[:5]))
    more = f" and {len(search.hung) - 5} more"
    assert search.unseen == (
        f"processes {first}{more} can't be looked at, {search.unasked} were not come to within 2 s"
    )
