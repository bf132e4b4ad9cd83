"""Whether a host's key is the one that the operator knows, judged as OpenSSH does with strict checking.

Unknown, changed and revoked keys are three verdicts with three texts; none can be waved through here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from dflash_console.errors import HostKeyChanged, HostKeyUnknown
from dflash_console.link.route import Route

__all__ = [
    "Entry",
    "KnownHosts",
    "Verdict",
    "accepted_algorithms",
    "fingerprint",
    "judge",
    "judge_authority",
    "key_type",
    "lines_for",
    "read_known_hosts",
    "refusal",
]

CERTIFICATE = "-cert-v01@openssh.com"
KRL_MAGIC = b"SSHKRL\n\0"
KRL_TIMEOUT = 2.0
"""Seconds for ssh-keygen to look into a key revocation list; it takes 3 ms."""


class Entry(msgspec.Struct, frozen=True):
    """A line of a known_hosts file that speaks of the host."""

    marker: Literal["", "@cert-authority", "@revoked"]
    key: bytes
    """As on the wire (RFC 4253, 6.6)."""
    file: str
    line: int

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        return f"{self.file} line {self.line}" if self.line else self.file


class KnownHosts(msgspec.Struct, frozen=True):
    """All that the operator's known_hosts files say about one host."""

    name: str
    """What was looked for: the alias, the host, or `[host]:port`."""
    entries: tuple[Entry, ...] = ()
    portless: tuple[Entry, ...] = ()
    """Lines for the bare host while its port is another than 22; only a match among them counts."""
    by_address: tuple[Entry, ...] = ()
    """Lines for the address, if CheckHostIP is on."""
    files: tuple[str, ...] = ()
    """Those that were looked at."""
    revoked: tuple[Entry, ...] = ()
    """Of RevokedHostKeys."""
    revocation_list: str = ""
    """RevokedHostKeys as a binary list, which only ssh-keygen can read; empty for none."""
    obstacle: str = ""
    """Why RevokedHostKeys can't be read; no key is accepted then, as ssh does."""

    @property
    def all_entries(self) -> tuple[Entry, ...]:
        """Every line, whatever it was found by."""
        return (*self.entries, *self.portless, *self.by_address, *self.revoked)

    @property
    def has_authority(self) -> bool:
        """Whether host certificates are of use.

        Not beside a binary revocation list: nothing here can look up a certificate's serial number in it.
        """
        entries = () if self.revocation_list else (*self.entries, *self.portless)
        return any(entry.marker == "@cert-authority" for entry in entries)


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


def read_known_hosts(route: Route, address: str = "") -> KnownHosts:
    """What the route's files say; blocks. `address` is that of the connection, empty behind a proxy."""
    hostname = route.hostname.lower()
    name = route.host_key_alias.lower() or (hostname if route.port == 22 else f"[{hostname}]:{route.port}")
    bare = hostname if not route.host_key_alias and route.port != 22 else ""
    ip = ""
    if route.check_host_ip and address and address != hostname and not _is_loopback(address):
        ip = address if route.port == 22 else f"[{address}]:{route.port}"
    files = (*route.user_known_hosts, *route.global_known_hosts)
    found: dict[str, list[Entry]] = {"": [], name: [], bare: [], ip: []}
    for file in files:
        try:
            with open(file, encoding="utf-8", errors="surrogateescape") as stream:
                text = stream.read()
        except OSError:
            # As ssh: a file that can't be read knows nobody, and nobody is trusted for it.
            continue
        for wanted in {name, bare, ip} - {""}:
            found[wanted].extend(lines_for(wanted, text, file))
    known = KnownHosts(
        name,
        tuple(found[name]),
        tuple(found[bare]) if bare else (),
        tuple(found[ip]) if ip else (),
        files,
    )
    return _with_revocations(known, route.revoked_host_keys)


def lines_for(name: str, text: str, file: str) -> Iterator[Entry]:
    """The lines of a known_hosts text that speak of `name`; those that make no sense are passed over."""
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split(None, 3)
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#") or not _speaks_of(words[0], name):
            continue
        key = _key(words[1], words[2].split(None, 1)[0])
        if key is None:
            continue
        if marker == "":
            yield Entry("", key, file, number)
        elif marker == "@cert-authority":
            yield Entry("@cert-authority", key, file, number)
        elif marker == "@revoked":
            yield Entry("@revoked", key, file, number)


def fingerprint(key: bytes) -> str:
    """As `ssh-keygen -l` prints it: `SHA256:...`."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode("ascii").rstrip("=")


def key_type(key: bytes) -> str:
    """The type that a key on the wire names itself, such as `ssh-ed25519`."""
    return key[4 : 4 + int.from_bytes(key[:4], "big")].decode("ascii", "replace")


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
    files = ", ".join(dict.fromkeys(known.files)) or "there is none"
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
            done = subprocess.run(
                ["ssh-keygen", "-Q", "-f", file, public.name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=KRL_TIMEOUT,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return done.returncode != 0


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


# ---- reading


def _speaks_of(hosts: str, name: str) -> bool:
    if hosts.startswith("|"):
        return _is_hash_of(hosts, name)
    is_named = False
    for item in hosts.lower().split(","):
        pattern = item.removeprefix("!")
        if _fits(pattern, name):
            if pattern != item:
                return False
            is_named = True
    return is_named


def _fits(pattern: str, name: str) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return pattern == name
    wild = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern)
    return re.fullmatch(wild, name, re.DOTALL) is not None


def _is_hash_of(hosts: str, name: str) -> bool:
    fields = hosts.split("|")
    if len(fields) != 4 or fields[1] != "1":
        return False
    try:
        salt, digest = base64.b64decode(fields[2]), base64.b64decode(fields[3])
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.digest(salt, name.encode("utf-8", "surrogateescape"), "sha1"), digest)


def _key(kind: str, text: str) -> bytes | None:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if kind and key_type(key) == kind else None


def _with_revocations(known: KnownHosts, file: str) -> KnownHosts:
    if not file:
        return known
    try:
        with open(file, "rb") as stream:
            data = stream.read()
    except OSError as error:
        obstacle = f"RevokedHostKeys can't be read: {file}: {error.strerror}."
        return msgspec.structs.replace(known, revocation_list=file, obstacle=obstacle)
    if data.startswith(KRL_MAGIC):
        return msgspec.structs.replace(known, revocation_list=file)
    entries: list[Entry] = []
    for number, line in enumerate(data.decode("utf-8", "surrogateescape").splitlines(), 1):
        words = line.split(None, 2)
        key = _key(words[0], words[1]) if len(words) >= 2 else None
        if key is not None:
            entries.append(Entry("@revoked", key, file, number))
    return msgspec.structs.replace(known, revoked=tuple(entries))


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
