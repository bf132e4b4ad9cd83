"""The operator's own files, of which some are no files: nothing waits for them, nothing is filled by them, and the
operator reads which one it is."""

from __future__ import annotations

import asyncio
import base64
import hmac
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dflash_console.errors import HostKeyChanged, HostKeyUnknown, LinkError, Refused, Unreachable
from dflash_console.link import asking, files
from dflash_console.link.files import Files, Unfit, look
from tests.link.deadmount import dead_mount
from tests.link.sshd import keygen
from tests.link.world import World
from tests.waiting import until

ENDLESS = {
    "fifo": "it is a FIFO, not a regular file",
    "zero": "it is a device, not a regular file",
    "socket": "it is a socket, not a regular file",
    "huge": "it is larger than ",
}


def endless(folder: Path, kind: str) -> Path:
    """What ssh would wait for, or read, without end."""
    path = folder / f"a {kind}"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    return path


def served(world: World) -> str:
    """A host that is known; its section of the config, without the Host line."""
    server = world.sshd()
    world.know_server(server)
    return f"  HostName 127.0.0.1\n  Port {server.port}\n"


async def failure(world: World, host: str = "ct129") -> LinkError:
    found = await world.ours(host)
    assert found is not None, "it got in"
    return found


# ---- reading


@pytest.mark.parametrize("kind", ENDLESS)
def test_only_regular_files_of_a_sane_size_are_read(tmp_path: Path, kind: str) -> None:
    with pytest.raises(Unfit) as caught:
        Files().read(str(endless(tmp_path, kind)), 1000)
    assert ENDLESS[kind] in str(caught.value.strerror)


def test_a_file_that_grows_while_it_is_read_ends_somewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 10)
    read = os.read

    def read_and_grow(file: int, size: int) -> bytes:
        with path.open("ab") as stream:
            stream.write(b"x" * 100)
        return read(file, size)

    monkeypatch.setattr(os, "read", read_and_grow)
    with pytest.raises(Unfit):
        Files().read(str(path), 1000)


def test_what_is_no_trap_is_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"data")
    file.chmod(0o640)
    assert Files().read(str(file), 4) == (b"data", 0o640, True)
    assert Files().read("/dev/null", 4).data == b""
    with pytest.raises(IsADirectoryError):
        Files().read(str(tmp_path), 4)
    with pytest.raises(FileNotFoundError):
        Files().read(str(tmp_path / "gone"), 4)


async def test_those_who_look_for_the_same_share_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOOK_TIMEOUT", 0.1)
    threads: list[threading.Thread] = []
    is_over = threading.Event()

    def hang(at: Files) -> None:
        at.exists(str(tmp_path))
        threads.append(threading.current_thread())
        is_over.wait(60)

    for _ in range(3):
        found = await asyncio.gather(*(look(hang, key="all") for _ in range(5)), return_exceptions=True)
        assert all(isinstance(error, Unreachable) and str(tmp_path) in str(error) for error in found)
    is_over.set()
    assert len(threads) == 1
    await until(lambda: not threads[0].is_alive(), 10, "the thread ends")
    monkeypatch.setattr(files, "LOOK_TIMEOUT", 10.0)
    assert await look(lambda _: "back", key="all") == "back"


# ---- known_hosts


@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("keyword", ["UserKnownHostsFile", "GlobalKnownHostsFile"])
async def test_a_known_hosts_without_end_is_named(world: World, keyword: str, kind: str) -> None:
    path = endless(world.folder, kind)
    # The other one knows the host; what this one revokes can't be told.
    world.write_config(f'Host ct129\n{served(world)}  {keyword} "{path}"\n')
    error = await failure(world)
    assert isinstance(error, HostKeyUnknown)
    assert f"{path}, " in str(error)
    assert ENDLESS[kind] in str(error)


async def test_a_known_hosts_that_ssh_can_not_read_either_knows_nobody(world: World) -> None:
    section = served(world)
    directory = world.folder / "directory"
    directory.mkdir()
    world.write_config(
        f"Host ct129\n{section}  UserKnownHostsFile {directory}\n"
        f'Host both\n{section}  UserKnownHostsFile {directory} "{world.known_hosts}"\n'
    )
    error = await world.both_fail("ct129")
    assert isinstance(error, HostKeyUnknown)
    assert f"{directory}: Is a directory" in str(error)
    await world.both_work("both")


@pytest.mark.parametrize("kind", ENDLESS)
async def test_no_key_passes_while_the_revoked_ones_have_no_end(world: World, kind: str) -> None:
    path = endless(world.folder, kind)
    world.write_config(f'Host ct129\n{served(world)}  RevokedHostKeys "{path}"\n')
    error = await failure(world)
    assert isinstance(error, HostKeyChanged)
    assert f"{path}: {ENDLESS[kind]}" in str(error)


async def test_a_hundred_thousand_known_hosts(world: World) -> None:
    key = world.host_keys.other.with_suffix(".pub").read_text().split()[1]
    salt = base64.b64encode(b"s" * 20).decode()

    def hashed(name: str) -> str:
        digest = base64.b64encode(hmac.digest(b"s" * 20, name.encode(), "sha1")).decode()
        return f"|1|{salt}|{digest}"

    with world.known_hosts.open("w") as stream:
        for number in range(25_000):
            for name in (
                hashed(f"h{number}"),
                f"h{number}.example",
                f"h{number}*.?.example,!h?",
                f"*.h{number}",
            ):
                stream.write(f"{name} ssh-ed25519 {key}\n")
    world.write_config(f"Host ct129\n{served(world)}")
    await world.both_work("ct129")


# ---- keys


@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("ending", ["", ".pub", "-cert.pub"])
async def test_a_key_file_without_end_is_named_and_the_others_are_tried(
    world: World, kind: str, ending: str
) -> None:
    section = served(world)
    trap = world.folder / "id_trap"
    if ending == "-cert.pub":
        keygen(trap)
    endless(world.folder, kind).rename(world.folder / f"id_trap{ending}")
    world.write_config(
        f"Host ct129\n{section}  IdentityFile {trap}\n  IdentityFile {world.key}\n"
        f"Host only\n{section}  IdentityFile {trap}\n",
        identity=False,
    )
    assert await world.ours("ct129") is None
    error = await failure(world, "only")
    assert isinstance(error, Refused)
    assert f"{trap}{ending} is not read, because {ENDLESS[kind]}" in str(error)


async def test_a_certificate_without_end_is_named(world: World) -> None:
    trap = endless(world.folder, "fifo").rename(world.folder / "trap")
    world.authorized.write_text("")
    world.write_config(f"Host ct129\n{served(world)}  CertificateFile {trap}\n")
    assert f"{trap} is not read, because it is a FIFO" in str(await failure(world))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o610])
async def test_a_private_key_that_others_may_read_is_used_by_neither(world: World, mode: int) -> None:
    section = served(world)
    world.write_config(f"Host ct129\n{section}")
    world.key.chmod(mode)
    error = await world.both_fail("ct129")
    assert isinstance(error, Refused)
    assert f"`chmod 600 {world.key}`" in str(error)
    world.key.chmod(0o400)
    await world.both_work("ct129")


async def test_a_public_key_beside_which_no_private_one_is_left(world: World) -> None:
    section = served(world)
    world.key.unlink()
    world.write_config(f"Host ct129\n{section}")
    error = await world.both_fail("ct129")
    assert isinstance(error, Refused)
    assert f"the private key {world.key} is not there" in str(error)


@pytest.mark.parametrize("which", ["id_spoilt", "id_spoilt.pub", "id_spoilt-cert.pub"])
async def test_a_key_of_nonsense_costs_the_others_nothing(world: World, which: str) -> None:
    section = served(world)
    spoilt = keygen(world.folder / "id_spoilt", "rsa", extra=["-m", "PKCS8"])
    negative = b"\0\0\0\x07ssh-rsa\0\0\0\1\xff\0\0\0\1\xff"
    text = {
        "id_spoilt": b"-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n",
        "id_spoilt.pub": b"ssh-rsa " + base64.b64encode(negative) + b"\n",
        "id_spoilt-cert.pub": b"ssh-rsa-cert-v01@openssh.com " + base64.b64encode(negative) + b"\n",
    }
    (world.folder / which).write_bytes(text[which])
    world.write_config(f"Host ct129\n{section}  IdentityFile {spoilt}\n  IdentityFile {world.key}\n")
    await world.both_work("ct129")


# ---- the config


@pytest.mark.parametrize("kind", ENDLESS)
async def test_an_ssh_config_without_end_is_named(world: World, kind: str) -> None:
    world.config = endless(world.folder, kind)
    error = await failure(world)
    assert isinstance(error, Unreachable)
    assert f"the ssh config {world.config} can't be read: {ENDLESS[kind]}" in str(error)


ASK_ALONE = """
import resource, sys
from dflash_console.link.asking import Asking
outcome = Asking(sys.argv[1:]).run(60.0)
assert outcome.end == "exit", outcome
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a limit on memory holds for less")
def test_what_an_ssh_config_includes_fills_no_memory(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f'Host ct129\n  HostName 127.0.0.1\nInclude "{endless(tmp_path, "huge")}"\n')
    command = [sys.executable, "-c", ASK_ALONE, "ssh", "-G", "-F", str(config), "ct129"]
    peak = int(subprocess.run(command, check=True, capture_output=True).stdout) << 10
    assert peak < asking.MOST_MEMORY + (64 << 20)


# ---- a mount whose server is away


@pytest.mark.parametrize(
    "keyword", ["UserKnownHostsFile", "RevokedHostKeys", "IdentityFile", "CertificateFile"]
)
async def test_a_file_on_a_dead_mount_is_named_and_holds_one_thread(
    world: World, monkeypatch: pytest.MonkeyPatch, keyword: str
) -> None:
    monkeypatch.setattr(files, "LOOK_TIMEOUT", 0.3)
    section = served(world)
    before = threading.active_count()
    with dead_mount(world.folder / "dead") as dead:
        world.write_config(f"Host ct129\n{section}  {keyword} {dead}/file\n")
        for _ in range(4):
            error = await failure(world)
            assert isinstance(error, Unreachable)
            assert f"{dead}/file could not be read in" in str(error)
        assert threading.active_count() <= before + 1
    await until(lambda: threading.active_count() <= before, 10, "the thread that waited ends")
    assert "could not be read" not in str(await world.ours("ct129"))


async def test_an_ssh_config_on_a_dead_mount_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LOOK_TIMEOUT", 0.3)
    with dead_mount(world.folder / "dead") as dead:
        world.config = dead / "config"
        error = await failure(world)
    assert isinstance(error, Unreachable)
    assert f"{dead}/config could not be read in" in str(error)
