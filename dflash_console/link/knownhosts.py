"""What the operator's known_hosts files say of a host.

`read_lists` reads them, `known_in` looks a host up in what was read.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from dflash_console.errors import HostKeyUnknown
from dflash_console.link.files import MOST_OF_A_LIST, Files, Unfit
from dflash_console.link.route import Route

__all__ = ["CERTIFICATE", "Entry", "KnownHosts", "Lists", "key_type", "known_in", "lines_for", "read_lists"]

CERTIFICATE = "-cert-v01@openssh.com"
KRL_MAGIC = b"SSHKRL\n\0"


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
    """Those that were read."""
    unread: tuple[str, ...] = ()
    """Those that could not be, each with the reason: `/etc/hosts.known: Permission denied`."""
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


class Lists(NamedTuple):
    """The files as they were read, for all hosts that use them."""

    texts: tuple[tuple[str, str], ...] = ()
    """Each known_hosts file's name and text."""
    unread: tuple[str, ...] = ()
    """As in KnownHosts."""
    revoked: bytes = b""
    """RevokedHostKeys."""
    obstacle: str = ""
    """As in KnownHosts."""


def read_lists(route: Route, files: Files) -> Lists:
    """The route's known_hosts files; blocks.

    One that can't be read knows nobody, as with ssh. Raises HostKeyUnknown for one that ssh would read or wait for
    without end: what it says is not known then, and it may revoke a key.
    """
    texts, unread = [], []
    for path in (*route.user_known_hosts, *route.global_known_hosts):
        try:
            data = files.read(path, MOST_OF_A_LIST).data
        except Unfit as error:
            raise HostKeyUnknown(
                f"the host's key can't be checked: the known_hosts file {path}, of which the ssh config speaks, "
                f"is not read, because {error.strerror}"
            ) from None
        except OSError as error:
            unread.append(f"{path}: {error.strerror}")
        else:
            texts.append((path, data.decode("utf-8", "surrogateescape")))
    revoked, obstacle = b"", ""
    if route.revoked_host_keys:
        try:
            revoked = files.read(route.revoked_host_keys, MOST_OF_A_LIST).data
        except OSError as error:
            obstacle = f"RevokedHostKeys can't be read: {route.revoked_host_keys}: {error.strerror}."
    return Lists(tuple(texts), tuple(unread), revoked, obstacle)


def known_in(lists: Lists, route: Route, address: str = "") -> KnownHosts:
    """What the lists say of the route's host. `address` is that of the connection, empty behind a proxy."""
    hostname = route.hostname.lower()
    name = route.host_key_alias.lower() or (hostname if route.port == 22 else f"[{hostname}]:{route.port}")
    bare = hostname if not route.host_key_alias and route.port != 22 else ""
    ip = ""
    if route.check_host_ip and address and address != hostname and not _is_loopback(address):
        ip = address if route.port == 22 else f"[{address}]:{route.port}"

    def found(wanted: str) -> tuple[Entry, ...]:
        if not wanted:
            return ()
        return tuple(entry for file, text in lists.texts for entry in lines_for(wanted, text, file))

    is_binary = lists.revoked.startswith(KRL_MAGIC)
    return KnownHosts(
        name,
        found(name),
        found(bare),
        found(ip),
        tuple(file for file, _ in lists.texts),
        lists.unread,
        () if is_binary else tuple(_revoked_in(lists.revoked, route.revoked_host_keys)),
        route.revoked_host_keys if is_binary or lists.obstacle else "",
        lists.obstacle,
    )


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


def key_type(key: bytes) -> str:
    """The type that a key on the wire names itself, such as `ssh-ed25519`."""
    return key[4 : 4 + int.from_bytes(key[:4], "big")].decode("ascii", "replace")


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
    """Whether a pattern with `*` and `?` matches.

    Step by step: a regular expression takes for ever on a line of many stars, and long to compile for each line.
    """
    if "*" not in pattern and "?" not in pattern:
        return pattern == name
    at = place = back = 0
    star = -1
    while place < len(name):
        char = pattern[at] if at < len(pattern) else ""
        if char == "*":
            star, back = at, place
            at += 1
        elif char and char in ("?", name[place]):
            at += 1
            place += 1
        elif star >= 0:
            back += 1
            at, place = star + 1, back
        else:
            return False
    return not pattern[at:].strip("*")


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


def _revoked_in(data: bytes, file: str) -> Iterator[Entry]:
    for number, line in enumerate(data.decode("utf-8", "surrogateescape").splitlines(), 1):
        words = line.split(None, 2)
        key = _key(words[0], words[1]) if len(words) >= 2 else None
        if key is not None:
            yield Entry("@revoked", key, file, number)


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
