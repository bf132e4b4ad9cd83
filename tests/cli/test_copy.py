"""`compare`, `copy` and `rollback` as processes, with real agents on this machine and environments of their own."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until_sync

MANY = 400
"""Files of the package beside its modules."""
CONFIG = """
[package]
name = "tiny"
modules = ["tiny.worker"]
[hosts.from]
local = true
role = "source"
units = []
package_venv = "{source}"
[hosts.to]
local = true
role = "target"
units = []
package_venv = "{target}"
"""
PROGRAM = [sys.executable, "-m", "dflash_console", "--config"]


class Ground:
    """Two environments with another version of the package in each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "config.toml"
        self.source, self.target = folder / "source", folder / "target"
        self.config.write_text(CONFIG.format(source=self.source, target=self.target))
        lay(self.source, "2.0", {f"data/{number}.txt": f"of two {number}\n" for number in range(MANY)})
        lay(self.target, "1.0", {"old.py": "x = 1\n", "data/0.txt": "of one\n"})

    def command(self, *words: str) -> list[str]:
        return [*PROGRAM, str(self.config), *words]

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.folder)}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            env=self.environ,
        )

    def json(self, code: int, *words: str) -> dict[str, Any]:
        """What a command answers that has to exit with that code."""
        done = self.run(*words, "--json")
        assert done.returncode == code, done.stderr + done.stdout
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    @contextmanager
    def started(self, *words: str, until: str) -> Iterator[subprocess.Popen[str]]:
        """A command that has said these words on stderr."""
        with subprocess.Popen(
            self.command(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environ,
        ) as process:
            assert process.stderr is not None
            heard = ""
            for line in process.stderr:
                heard += line
                if until in line:
                    break
            assert until in heard, heard
            yield process


def site(venv: Path) -> Path:
    (found,) = venv.glob("lib/python3*/site-packages")
    return found


def lay(venv: Path, version: str, files: dict[str, str]) -> None:
    """An environment with the package and its dist-info, as pip would leave them."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    info = f"tiny-{version}.dist-info"
    every = {
        "tiny/__init__.py": f"__version__ = '{version}'\n",
        "tiny/worker.py": f"x = '{version}'\n",
        **{f"tiny/{name}": text for name, text in files.items()},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n",
    }
    record = ""
    for name, text in every.items():
        path = site(venv) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record += f"{name},sha256={digest},{len(text)}\n"
    (site(venv) / info / "RECORD").write_text(f"{record}{info}/RECORD,,\n")


def tree(venv: Path) -> dict[str, str]:
    """All of site-packages but bytecode."""
    return {
        str(path.relative_to(site(venv))): path.read_text()
        for path in sorted(site(venv).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def is_free(venv: Path) -> bool:
    """Whether nobody holds the lock of an environment."""
    lock = venv / ".dflash-console" / "lock"
    if not lock.exists():
        return True
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def test_compare_plan_copy_and_rollback(ground: Ground) -> None:
    old, new = tree(ground.target), tree(ground.source)
    told = ground.json(1, "compare", "from", "to")
    assert (told["source"]["version"], told["target"]["version"]) == ("2.0", "1.0")
    assert "tiny/data/1.txt" in told["added"]
    assert "tiny/data/0.txt" in told["changed"]
    assert "tiny/old.py" in told["removed"]

    (planned,) = ground.json(0, "copy", "from", "to", "--dry-run")["results"]
    (refused,) = ground.json(4, "copy", "from", "to")["results"]
    assert tree(ground.target) == old
    assert not (ground.target / ".dflash-console").exists()
    assert (planned["state"], planned["added"]) == ("planned", len(told["added"]))
    assert (refused["state"], refused["detail"]) == ("refused", "not confirmed: it needs --yes")

    (done,) = ground.json(0, "copy", "from", "to", "--yes")["results"]
    assert tree(ground.target) == new
    assert (done["state"], done["verify"]["ready"]) == ("done", True)
    assert [done[word] for word in ("added", "changed", "removed")] == [
        len(told[word]) for word in ("added", "changed", "removed")
    ]
    assert done["bytes_sent"] > 0
    assert done["seconds"] > 0
    told = ground.json(0, "compare", "from", "to")
    assert told["source"]["tree"] == told["target"]["tree"]

    (kept,) = ground.json(0, "rollback", "to", "--list")["backups"]
    assert (kept["id"], kept["version"], kept["reason"]) == (done["backup"], "1.0", "copy")
    (back,) = ground.json(0, "rollback", "to", "--yes")["results"]
    assert back["state"] == "done"
    assert tree(ground.target) == old
    (none,) = ground.json(1, "rollback", "to", "--yes")["results"]
    assert "a copy replaced none of the backups there" in none["detail"]


def test_of_several_environments_the_one_that_holds_the_package_is_taken(ground: Ground) -> None:
    empty = ground.folder / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", empty], check=True)
    text = ground.config.read_text()
    named = f'venvs = ["{empty}", "{ground.target}"]'
    ground.config.write_text(text.replace(f'package_venv = "{ground.target}"', named))
    assert ground.json(1, "compare", "from", "to")["target"]["venv"] == str(ground.target)


def test_a_copy_of_what_is_there_already_pushes_no_backup_out(ground: Ground) -> None:
    ground.json(0, "copy", "from", "to", "--yes")
    kept = ground.json(0, "rollback", "to", "--list")["backups"]
    (again,) = ground.json(0, "copy", "from", "to", "--yes")["results"]
    assert (again["state"], again["swap"], again["backup"]) == ("done", None, None)
    assert ground.json(0, "rollback", "to", "--list")["backups"] == kept


def test_a_source_that_is_not_whole_needs_a_yes_of_its_own(ground: Ground) -> None:
    (site(ground.source) / "tiny" / "worker.py").unlink()
    (refused,) = ground.json(4, "copy", "from", "to", "--yes")["results"]
    assert "--allow unverified" in refused["detail"]
    (done,) = ground.json(0, "copy", "from", "to", "--yes", "--allow", "unverified")["results"]
    assert (done["state"], done["verify"]["ready"]) == ("done", False)
    assert tree(ground.target) == tree(ground.source)


def test_a_lock_that_another_holds_is_told_with_its_name_and_nothing_is_done(ground: Ground) -> None:
    folder = ground.target / ".dflash-console"
    folder.mkdir(mode=0o700)
    old = tree(ground.target)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        holder = {
            "by": "kim@laptop",
            "since": time.time() - 60,
            "what": "copy from elsewhere",
            "pid": os.getpid(),
        }
        lock.write(json.dumps(holder))
        lock.flush()
        (refused,) = ground.json(4, "copy", "from", "to", "--yes")["results"]
    assert refused["state"] == "refused"
    assert "kim@laptop" in refused["detail"]
    assert tree(ground.target) == old


def test_a_target_that_is_not_reached_leaves_the_other_alone(ground: Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    gone = f'[hosts.gone]\naddress = "127.0.0.1"\nport = {port}\nrole = "target"\n'
    ground.config.write_text(ground.config.read_text() + gone)
    rows = ground.json(3, "copy", "from", "gone", "to", "--yes")["results"]
    assert [(row["host"], row["state"]) for row in rows] == [("gone", "unreachable"), ("to", "done")]
    assert rows[0]["detail"]
    assert tree(ground.target) == tree(ground.source)
    assert ground.json(3, "compare", "from", "gone")["problem"]
    assert ground.json(3, "rollback", "gone", "--list")["problem"]


@pytest.mark.parametrize("step", ["lock", "receiving", "every file again", "exchanging", "in its place"])
def test_a_console_that_is_killed_leaves_a_whole_package_and_the_next_copy_goes_on(
    ground: Ground, step: str
) -> None:
    old, new = tree(ground.target), tree(ground.source)
    with ground.started("copy", "from", "to", "--yes", until=step) as process:
        process.kill()
    # Not before: file by file, the tree would be read while it is exchanged.
    until_sync(lambda: is_free(ground.target), 60.0, "its agent has noticed")
    assert tree(ground.target) in (old, new)
    ground.json(0, "copy", "from", "to", "--yes")
    assert tree(ground.target) == new
    ground.json(0, "compare", "from", "to")


@pytest.mark.parametrize("step", ["looking at", "lock", "receiving", "every file again", "in its place"])
def test_ctrl_c_ends_cleanly_and_says_where_the_target_stands(ground: Ground, step: str) -> None:
    old, new = tree(ground.target), tree(ground.source)
    with ground.started("copy", "from", "to", "--yes", "--json", until=step) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
    assert "Traceback" not in err
    (row,) = json.loads(out)["results"]
    now = tree(ground.target)
    assert now == (new if row["state"] == "done" else old)
    assert row["state"] in ("done", "cancelled", "undone")
    assert row["detail"]
    left = ground.target / ".dflash-console"
    assert not list(left.glob("stage-*"))
    assert ground.json(0, "copy", "from", "to", "--yes")["results"][0]["state"] == "done"


def kill_with_children(pid: int) -> None:
    """As when the host dies: nothing that the console started gets to clean up."""
    children = [
        int(word)
        for path in Path(f"/proc/{pid}/task").glob("*/children")
        for word in path.read_text().split()
    ]
    os.kill(pid, signal.SIGKILL)
    for child in children:
        kill_with_children(child)


@pytest.mark.parametrize("step", ["receiving", "every file again", "in its place"])
@pytest.mark.parametrize("then", ["copy", "rollback"])
def test_what_was_broken_off_with_its_agent_is_settled_by_the_next_command_and_said(
    ground: Ground, step: str, then: str
) -> None:
    old, new = tree(ground.target), tree(ground.source)
    with ground.started("copy", "from", "to", "--yes", until=step) as process:
        kill_with_children(process.pid)
    now = tree(ground.target)
    assert now in (old, new)
    words = ["copy", "from", "to"] if then == "copy" else ["rollback", "to"]
    done = ground.run(*words, "--yes", "--json")
    (row,) = json.loads(done.stdout)["results"]
    assert any("copy from from" in note for note in row["notes"]), (row, done.stderr)
    assert tree(ground.target) == (new if then == "copy" else old)
    assert not list((ground.target / ".dflash-console").glob("stage-*"))
    assert done.returncode == (0 if row["state"] == "done" else 1)
