"""Whether a host's key is the one that the operator knows, judged as OpenSSH does with strict checking.

Unknown, changed and revoked keys are three verdicts with three texts; none can be waved through here.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
import tempfile
from collections.abc import Iterable
from typing import Literal

import msgspec

from dflash_console.errors import HostKeyChanged, HostKeyUnknown
from dflash_console.link.asking import Asking
from dflash_console.link.knownhosts import CERTIFICATE, Entry, KnownHosts, key_type
from dflash_console.link.route import Route

__all__ = [
    "Verdict",
    "accepted_algorithms",
    "fingerprint",
    "judge",
    "judge_authority",
    "refusal",
]

KRL_TIMEOUT = 2.0
"""Seconds for ssh-keygen to look into a key revocation list; it takes 3 ms."""


class Verdict(msgspec.Struct, frozen=True):
    """What the known_hosts files say of a key that a host has shown."""

    state: Literal["known", "unknown", "changed", "revoked"]
    key: bytes
    entry: Entry | None = None
    """The line that decided; None for an unknown key."""
    is_authority: bool = False
    """The key is the one that signed the host's certificate."""


def judge(known: KnownHosts, key: bytes) -> Verdict:
    """The verdict on a plain host key. Another known key of the host, of whatever type, makes it changed."""
    revoking = _revoking(known, key)
    if revoking is not None:
        return Verdict("revoked", key, revoking)
    verdict = _compare(known.entries, key)
    if verdict.state == "unknown" and _compare(known.portless, key).state == "known":
        verdict = _compare(known.portless, key)
    by_address = _compare(known.by_address, key)
    if verdict.state == "known" and by_address.state == "changed":
        return by_address
    return verdict


def judge_authority(known: KnownHosts, key: bytes) -> Verdict:
    """The verdict on the key that signed a host certificate."""
    revoking = _revoking(known, key)
    if revoking is not None:
        return Verdict("revoked", key, revoking, is_authority=True)
    for entry in (*known.entries, *known.portless):
        if entry.marker == "@cert-authority" and entry.key == key:
            return Verdict("known", key, entry, is_authority=True)
    return Verdict("unknown", key, is_authority=True)


def accepted_algorithms(wanted: Iterable[str], known: KnownHosts, *, certificates: bool) -> list[str]:
    """The host key algorithms to offer, in order: those of keys that are known come first, as ssh does.

    Without this a host with an ed25519 and an RSA key, of which only the RSA key is known, looks changed.
    Certificates are asked for only if a known authority may have signed them, and `certificates` allows it.
    """
    names = [
        name for name in wanted if not name.endswith(CERTIFICATE) or (certificates and known.has_authority)
    ]
    types = {key_type(entry.key) for entry in known.entries if not entry.marker}
    plain = [name for name in names if not name.endswith(CERTIFICATE)]
    if plain and not known.has_authority and _type_of(plain[0]) in types:
        return names
    first = [name for name in names if name.endswith(CERTIFICATE) or _type_of(name) in types]
    return first + [name for name in names if name not in first]


def fingerprint(key: bytes) -> str:
    """As `ssh-keygen -l` prints it: `SHA256:...`."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode("ascii").rstrip("=")


def refusal(verdict: Verdict, known: KnownHosts, route: Route, who: str) -> HostKeyUnknown | HostKeyChanged:
    """The error for a key that is not accepted: what was shown, what is known and where, and what to do.

    `who` names the host in the text: `ct129`, or `jump host bastion`.
    """
    shown = f"{key_type(verdict.key)} {fingerprint(verdict.key)}"
    if verdict.state == "revoked":
        where = verdict.entry.place if verdict.entry else route.revoked_host_keys
        return HostKeyChanged(
            f"{who} shows a host key that is REVOKED: {shown} ({where}). Do not connect: whoever holds "
            "that key can pose as the host. Ask who revoked it; the host needs new keys. "
            f"{known.obstacle}".rstrip()
        )
    if verdict.state == "changed" and verdict.entry is not None:
        entry = verdict.entry
        forget = shlex.join(["ssh-keygen", "-R", known.name, "-f", entry.file])
        return HostKeyChanged(
            f"{who} shows ANOTHER HOST KEY than the known one. Do not connect: someone may sit in between. "
            f"Shown: {shown}. Known: {key_type(entry.key)} {fingerprint(entry.key)} in {entry.place}. "
            f"Ask who reinstalled the host, and have them read out its fingerprint. Only if it is the one "
            f"shown here: `{forget}`, then `{route.command}` once."
        )
    if verdict.is_authority:
        return HostKeyUnknown(
            f"the host certificate of {who} is signed by an authority that is not known for {known.name}: "
            f"{shown}. Ask whoever runs the authority for its `@cert-authority` line and compare; or run "
            f"`{route.command}` once, which shows the plain host key.{_not_followed(route)}"
        )
    files = ", ".join(dict.fromkeys((*known.files, *known.unread))) or "there is none"
    return HostKeyUnknown(
        f"the host key of {who} is not known: {shown} is not listed for {known.name} in any known_hosts file "
        f"({files}). Compare the fingerprint with one that came another way (at the host's own console: "
        f"`ssh-keygen -lf /etc/ssh/ssh_host_{_short(verdict.key)}_key.pub`), then run `{route.command}` once "
        f"and accept it.{_not_followed(route)}"
    )


def _not_followed(route: Route) -> str:
    """What of the ssh config would let ssh in, and is not followed here."""
    found = []
    if route.strict_host_keys not in ("ask", "yes", "true"):
        found.append(f"`StrictHostKeyChecking {route.strict_host_keys}`")
    if route.known_hosts_command:
        found.append("KnownHostsCommand")
    return f" The ssh config's {' and '.join(found)} is not followed here." if found else ""


# ---- comparing


def _compare(entries: Iterable[Entry], key: bytes) -> Verdict:
    other: Entry | None = None
    for entry in entries:
        if entry.marker:
            continue
        if entry.key == key:
            return Verdict("known", key, entry)
        # A key of the same type says most about what became of it.
        if other is None or (key_type(entry.key) == key_type(key) != key_type(other.key)):
            other = entry
    return Verdict("unknown", key) if other is None else Verdict("changed", key, other)


def _revoking(known: KnownHosts, key: bytes) -> Entry | None:
    for entry in known.all_entries:
        if entry.marker == "@revoked" and entry.key == key:
            return entry
    if known.obstacle or (known.revocation_list and _is_in_list(known.revocation_list, key)):
        return Entry("@revoked", key, known.revocation_list, 0)
    return None


def _is_in_list(file: str, key: bytes) -> bool:
    """Whether a binary revocation list holds the key; also when that can't be told."""
    line = f"{key_type(key)} {base64.b64encode(key).decode('ascii')}\n"
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".pub") as public:
            public.write(line)
            public.flush()
            outcome = Asking(["ssh-keygen", "-Q", "-f", file, public.name]).run(KRL_TIMEOUT)
    except OSError:
        return True
    return outcome.end != "exit" or outcome.status != 0


def _type_of(algorithm: str) -> str:
    """The key type behind a host key algorithm: `rsa-sha2-512` signs with an `ssh-rsa` key."""
    name = algorithm.removesuffix(CERTIFICATE)
    if name != algorithm and name.startswith("sk-"):
        name += "@openssh.com"
    name = name.removeprefix("webauthn-")
    return "ssh-rsa" if name.startswith("rsa-sha2-") else name


def _short(key: bytes) -> str:
    kind = key_type(key)
    return "ecdsa" if "ecdsa" in kind else "ed25519" if "ed25519" in kind else "rsa"
