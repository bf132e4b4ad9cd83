"""The operator's keys, in the order in which ssh would offer them.

A private key is read only when a host has accepted its public half: so an encrypted key that is not in the
agent costs nothing, and is named when it was the one that the host wanted.
"""

from __future__ import annotations

import base64
import binascii
import copy
import functools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import asyncssh

from dflash_console.link.clean import clean
from dflash_console.link.route import Route

__all__ = [
    "FileKey",
    "Identity",
    "agent_identities",
    "file_identities",
    "is_allowed",
    "is_encrypted",
    "order",
]

CERTIFICATE = "-cert-v01@openssh.com"


@dataclass(frozen=True)
class Identity:
    """A key that may be offered."""

    public: bytes
    """The public key or certificate on the wire; what makes two identities the same."""
    label: str
    pair: asyncssh.SSHKeyPair


class FileKey(asyncssh.SSHKeyPair):
    """A key of a file, of which only the public half has been read so far."""

    _key_type = "local"

    def __init__(
        self, path: str, key: asyncssh.SSHKey, certificate: asyncssh.SSHCertificate | None = None
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
        self.certificate = certificate
        self.was_wanted = False
        """The host would have let this key in."""

    def sign(self, data: bytes) -> bytes:
        """Called in a thread. Raises ValueError when the file can't be used; the next key is tried then."""
        self.was_wanted = True
        if self.key_algorithm.startswith(b"sk-"):
            raise ValueError(f"{self.path} lives on a security key; only an agent can use it here")
        try:
            state = os.stat(self.path)
            key = _private_key(self.path, state.st_mtime_ns, state.st_size, state.st_ino)
        except OSError as error:
            raise ValueError(str(error)) from None
        if key.public_data != self.key_public_data:
            raise ValueError(f"{self.path} does not belong to its .pub file")
        return key.sign(data, self.sig_algorithm)


@functools.lru_cache(maxsize=16)
def _private_key(path: str, *_: int) -> asyncssh.SSHKey:
    # An RSA key takes 50 ms to read and check, and a fleet uses the same one for every host.
    return asyncssh.read_private_key(path)


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


def file_identities(route: Route) -> tuple[list[Identity], list[Identity], list[str]]:
    """CertificateFile's identities, IdentityFile's, and the files that can't be offered. Blocks."""
    files: list[Identity] = []
    unusable: list[str] = []
    keys: dict[bytes, tuple[str, asyncssh.SSHKey]] = {}
    for path in route.identity_files:
        key = _public_key(path)
        if key is None:
            unusable.append(path)
            continue
        keys[key.public_data] = (path, key)
        files.append(Identity(key.public_data, path, FileKey(path, key)))
        if not route.certificate_files:
            files.extend(_certified(f"{path}-cert.pub", keys))
    certificates = [identity for path in route.certificate_files for identity in _certified(path, keys)]
    return certificates, files, unusable


async def agent_identities(agent: asyncssh.SSHAgentClient) -> list[Identity]:
    """What the agent holds, in its order. Raises ValueError when it does not answer as an agent does."""
    return [
        Identity(pair.public_data, f"{clean(pair.get_comment(errors='replace') or 'key', 80)} (agent)", pair)
        for pair in await agent.get_keys()
    ]


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


def is_encrypted(path: str) -> bool:
    """Whether a private key file needs a passphrase, by its header. Blocks; False when it can't be read."""
    try:
        with open(path, "rb") as stream:
            text = stream.read(1 << 16)
    except OSError:
        return False
    if b"ENCRYPTED" in text[:200]:
        return True
    if b"BEGIN OPENSSH PRIVATE KEY" not in text:
        return False
    # PROTOCOL.key: "openssh-key-v1\0", then the cipher's name as a string.
    body = b"".join(text.split(b"-----")[2].split())[:64]
    try:
        return base64.b64decode(body)[15:23] != b"\0\0\0\x04none"
    except (binascii.Error, ValueError):
        return False


def _public_key(path: str) -> asyncssh.SSHKey | None:
    """The public half, looked for as ssh does: the file itself if it is one, the .pub, the private key."""
    try:
        with open(path, "rb") as stream:
            is_private = b"PRIVATE KEY" in stream.read(200)
    except OSError:
        is_private = False
    for file in (f"{path}.pub", path) if is_private else (path, f"{path}.pub"):
        try:
            return asyncssh.read_public_key(file)
        except (OSError, asyncssh.KeyImportError):
            continue
    return None


def _certified(path: str, keys: dict[bytes, tuple[str, asyncssh.SSHKey]]) -> list[Identity]:
    """The certificate in the file, if there is one, with the private key that goes with it."""
    try:
        certificate = asyncssh.read_certificate(path)
    except (OSError, asyncssh.KeyImportError):
        return []
    file, key = keys.get(certificate.key.public_data, (path, certificate.key))
    return [Identity(certificate.public_data, path, FileKey(file, key, certificate))]


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
