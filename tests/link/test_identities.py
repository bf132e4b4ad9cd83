"""Which key is offered when."""

from __future__ import annotations

from pathlib import Path

import asyncssh

from dflash_console.link.files import MOST_OF_A_KEY, Files
from dflash_console.link.route import Route
from dflash_console.link.ssh.identities import (
    FileKey,
    Identity,
    file_identities,
    is_allowed,
    is_encrypted,
    key_paths,
    order,
)
from tests.link.sshd import keygen


def labels(identities: list[Identity]) -> list[str]:
    return [identity.label for identity in identities]


def route(*files: Path, certificates: tuple[str, ...] = ()) -> Route:
    return Route(
        "n", "ssh n", "h", 22, "u", identity_files=tuple(map(str, files)), certificate_files=certificates
    )


def identities_of(route: Route) -> tuple[list[Identity], list[Identity], list[str]]:
    return file_identities(route, Files().read_all(key_paths(route), MOST_OF_A_KEY))


def held(*files: Path) -> list[Identity]:
    """As an agent would hold the keys."""
    keys = [asyncssh.read_public_key(f"{file}.pub") for file in files]
    return [
        Identity(
            key.public_data,
            f"{file.name} (agent)",
            asyncssh.SSHAgentKeyPair(asyncssh.SSHAgentClient(""), key.algorithm, key.public_data, b""),
        )
        for file, key in zip(files, keys, strict=True)
    ]


def test_keys_of_the_config_that_the_agent_holds_come_first(tmp_path: Path) -> None:
    one, two, three, four = (keygen(tmp_path / name) for name in ("one", "two", "three", "four"))
    certificates, files, notes = identities_of(route(one, two))
    agent = held(three, two, four)
    assert labels(order(certificates, files, agent, identities_only=False)) == [
        *(f"{two} (agent)", "three (agent)", "four (agent)", str(one))
    ]
    assert labels(order(certificates, files, agent, identities_only=True)) == [f"{two} (agent)", str(one)]
    assert notes == []


def test_a_file_whose_public_half_can_not_be_read_is_named(tmp_path: Path) -> None:
    locked = keygen(tmp_path / "locked", "rsa", passphrase="a secret", extra=["-m", "PEM"])
    locked.with_suffix(".pub").unlink()
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("nothing of that kind")
    assert identities_of(route(locked, nonsense)) == (
        [],
        [],
        [
            f"{locked} can't be read without a passphrase, and there is no {locked}.pub",
            f"{nonsense} holds no key that the console can read",
        ],
    )


def test_a_key_signs_only_when_it_is_wanted(tmp_path: Path) -> None:
    _, files, _ = identities_of(route(keygen(tmp_path / "one")))
    pair = files[0].pair
    assert isinstance(pair, FileKey)
    seen = [pair.was_wanted]
    signature = pair.sign(b"data")
    assert [*seen, pair.was_wanted] == [False, True]
    assert asyncssh.read_public_key(f"{pair.path}.pub").verify(b"data", signature)


def test_encrypted_keys_are_told_by_their_header(tmp_path: Path) -> None:
    def data(path: Path) -> bytes:
        return path.read_bytes()

    secret = "a secret"
    assert is_encrypted(data(keygen(tmp_path / "a", passphrase=secret)))
    assert is_encrypted(data(keygen(tmp_path / "b", "rsa", passphrase=secret, extra=["-m", "PEM"])))
    assert is_encrypted(data(keygen(tmp_path / "c", "rsa", passphrase=secret, extra=["-m", "PKCS8"])))
    assert not is_encrypted(data(keygen(tmp_path / "d")))
    assert not is_encrypted(data(keygen(tmp_path / "e", "rsa", extra=["-m", "PEM"])))
    assert not is_encrypted(b"")


def test_an_rsa_key_may_be_offered_under_the_names_it_signs_with(tmp_path: Path) -> None:
    _, (rsa, ed25519), _ = identities_of(route(keygen(tmp_path / "r", "rsa"), keygen(tmp_path / "e")))
    assert is_allowed(rsa.pair, ["rsa-sha2-512"])
    assert not is_allowed(rsa.pair, ["ssh-ed25519"])
    assert is_allowed(ed25519.pair, ["ssh-ed25519"])
    assert is_allowed(ed25519.pair, [])
