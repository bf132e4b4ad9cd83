"""The operator's keys, in the order in which ssh would offer them.

A private key is decoded only when a host has accepted its public half: so an encrypted key that is not in the
agent costs nothing, and is named when it was the one that the host wanted.
"""

from __future__ import annotations

import base64
import binascii
import copy
import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

import asyncssh

from dflash_console.link.clean import clean
from dflash_console.link.files import LocalFile, Unfit
from dflash_console.link.route import Route

__all__ = [
    "FileKey",
    "Identity",
    "KeyFiles",
    "file_identities",
    "is_allowed",
    "is_encrypted",
    "key_paths",
    "order",
]

CERTIFICATE = "-cert-v01@openssh.com"
NONSENSE = (ValueError, ArithmeticError, LookupError, TypeError, RecursionError)
"""What asyncssh raises for a key that is none."""

KeyFiles: TypeAlias = Mapping[str, LocalFile | OSError]
"""The files of `key_paths`, each as it was read, or why it could not be."""


@dataclass(frozen=True)
class Identity:
    """A key that may be offered."""

    public: bytes
    """The public key or certificate on the wire; what makes two identities the same."""
    label: str
    pair: asyncssh.SSHKeyPair


class FileKey(asyncssh.SSHKeyPair):
    """A key of a file, of which only the public half has been decoded so far."""

    _key_type = "local"

    def __init__(
        self,
        path: str,
        key: asyncssh.SSHKey,
        private: LocalFile | None,
        certificate: asyncssh.SSHCertificate | None = None,
    ) -> None:
        super().__init__(
            key.algorithm,
            key.algorithm,
            key.sig_algorithms,
            key.sig_algorithms,
            key.public_data,
            None,
            certificate,
            use_executor=True,
        )
        self.path = path
        self.private = private
        """The file itself; None when only its public half is there."""
        self.certificate = certificate
        self.was_wanted = False
        """The host would have let this key in."""
        self.trouble = ""
        """Why it could not sign then."""
        self.is_locked = False
        """That was for want of a passphrase."""

    def sign(self, data: bytes) -> bytes:
        """Called in a thread. Raises ValueError when the file can't be used; the next key is tried then."""
        self.was_wanted = True
        try:
            return self._unlocked().sign(data, self.sig_algorithm)
        except NONSENSE as error:
            self.is_locked = self.private is not None and is_encrypted(self.private.data)
            self.trouble = clean(str(error), 600)
            raise ValueError(self.trouble) from None

    def _unlocked(self) -> asyncssh.SSHKey:
        if self.key_algorithm.startswith(b"sk-"):
            raise ValueError(f"{self.path} lives on a security key; only an agent can use it here")
        if self.private is None:
            raise ValueError(f"the private key {self.path} is not there, and no agent holds it")
        if self.private.is_mine and self.private.mode & 0o077:
            raise ValueError(
                f"others may read {self.path} (mode {self.private.mode:04o}), and ssh does not use it then: "
                f"`chmod 600 {self.path}`"
            )
        key = _private_key(self.private.data)
        if key.public_data != self.key_public_data:
            raise ValueError(f"{self.path} does not belong to its .pub file")
        return key


@functools.lru_cache(maxsize=16)
def _private_key(data: bytes) -> asyncssh.SSHKey:
    # An RSA key takes 50 ms to decode and check, and a fleet uses the same one for every host.
    return asyncssh.import_private_key(data)


def order(
    certificates: Sequence[Identity],
    files: Sequence[Identity],
    agent: Sequence[Identity],
    *,
    identities_only: bool,
) -> list[Identity]:
    """What ssh offers, in its order: CertificateFile, agent keys that the config names, other agent keys,
    files that the agent does not hold.

    The agent signs for a certificate whose key it holds.
    """
    by_key = {identity.public: identity for identity in agent}
    preferred = [_signed_by_agent(identity, by_key) for identity in certificates]
    rest, others = list(files), []
    for identity in agent:
        named = next((file for file in rest if file.public == identity.public), None)
        if named is not None:
            rest.remove(named)
            preferred.append(replace(identity, label=f"{named.label} (agent)"))
        elif not identities_only:
            others.append(identity)
    return preferred + others + [_signed_by_agent(identity, by_key) for identity in rest]


def key_paths(route: Route) -> tuple[str, ...]:
    """The files in which the route's keys may be."""
    endings = ("", ".pub") if route.certificate_files else ("", ".pub", "-cert.pub")
    return (*(path + ending for path in route.identity_files for ending in endings), *route.certificate_files)


def file_identities(route: Route, files: KeyFiles) -> tuple[list[Identity], list[Identity], list[str]]:
    """CertificateFile's identities, IdentityFile's, and why some files can't be offered.

    Takes 50 ms for an RSA key without its public file.
    """
    found: list[Identity] = []
    notes: list[str] = []
    keys: dict[bytes, tuple[str, asyncssh.SSHKey, LocalFile | None]] = {}
    for path in route.identity_files:
        private = _read(path, files, notes)
        key = _public_half(path, private, files, notes)
        if key is None:
            if private is not None:
                notes.append(_why_not_offered(path, private))
            continue
        keys[key.public_data] = (path, key, private)
        found.append(Identity(key.public_data, path, FileKey(path, key, private)))
        if not route.certificate_files:
            found.extend(_certified(f"{path}-cert.pub", keys, files, notes))
    certificates = [
        identity for path in route.certificate_files for identity in _certified(path, keys, files, notes)
    ]
    return certificates, found, notes


def is_allowed(pair: asyncssh.SSHKeyPair, algorithms: Iterable[str]) -> bool:
    """Whether PubkeyAcceptedAlgorithms lets the key be offered; an RSA key signs under several names."""
    names = set(algorithms)
    kind = pair.algorithm.decode("ascii", "replace")
    if not names or kind in names:
        return True
    ending = CERTIFICATE if kind.endswith(CERTIFICATE) else ""
    return kind == f"ssh-rsa{ending}" and not names.isdisjoint(
        {f"rsa-sha2-256{ending}", f"rsa-sha2-512{ending}"}
    )


def is_encrypted(data: bytes) -> bool:
    """Whether a private key file needs a passphrase, by its header."""
    if b"ENCRYPTED" in data[:200]:
        return True
    if b"BEGIN OPENSSH PRIVATE KEY" not in data:
        return False
    # PROTOCOL.key: "openssh-key-v1\0", then the cipher's name as a string.
    body = b"".join(data.split(b"-----")[2].split())[:64]
    try:
        return base64.b64decode(body)[15:23] != b"\0\0\0\x04none"
    except (binascii.Error, ValueError):
        return False


def _read(path: str, files: KeyFiles, notes: list[str]) -> LocalFile | None:
    """The file; None when it can't be read, which is noted unless it is simply not there."""
    file = files[path]
    if isinstance(file, LocalFile):
        return file
    if isinstance(file, Unfit):
        notes.append(f"{path} is not read, because {file.strerror}")
    elif not isinstance(file, FileNotFoundError):
        notes.append(f"{path} can't be read: {file.strerror}")
    return None


def _public_half(
    path: str, private: LocalFile | None, files: KeyFiles, notes: list[str]
) -> asyncssh.SSHKey | None:
    """The public key, looked for as ssh does: the file itself if it is one, the .pub, the private key."""
    is_private = private is not None and b"PRIVATE KEY" in private.data[:200]
    public = _read(f"{path}.pub", files, notes)
    for file in (public, private) if is_private else (private, public):
        if file is not None:
            with suppress(*NONSENSE):
                return asyncssh.import_public_key(file.data)
    return None


def _why_not_offered(path: str, private: LocalFile) -> str:
    if is_encrypted(private.data):
        return f"{path} can't be read without a passphrase, and there is no {path}.pub"
    return f"{path} holds no key that the console can read"


def _certified(
    path: str,
    keys: dict[bytes, tuple[str, asyncssh.SSHKey, LocalFile | None]],
    files: KeyFiles,
    notes: list[str],
) -> list[Identity]:
    """The certificate in the file, if there is one, with the private key that goes with it."""
    file = _read(path, files, notes)
    if file is None:
        return []
    try:
        certificate = asyncssh.import_certificate(file.data)
    except NONSENSE:
        return []
    place, key, private = keys.get(certificate.key.public_data, (path, certificate.key, None))
    return [Identity(certificate.public_data, path, FileKey(place, key, private, certificate))]


def _signed_by_agent(identity: Identity, agent: dict[bytes, Identity]) -> Identity:
    pair = identity.pair
    if not isinstance(pair, FileKey) or pair.certificate is None:
        return identity
    held = agent.get(pair.key_public_data)
    if held is None or not isinstance(held.pair, asyncssh.SSHAgentKeyPair):
        return identity
    # A pair of its own: a certificate changes what the pair offers.
    signer = copy.copy(held.pair)
    signer.set_certificate(pair.certificate)
    return replace(identity, label=f"{identity.label} (agent)", pair=signer)
