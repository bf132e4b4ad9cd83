"""One SSH login over bytes that are already connected: key exchange, host key, authentication."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress

import asyncssh
from asyncssh.encryption import get_encryption_algs
from asyncssh.kex import get_kex_algs
from asyncssh.mac import get_mac_algs
from asyncssh.public_key import get_certificate_algs, get_public_key_algs

from dflash_console.errors import Refused
from dflash_console.link.clean import clean
from dflash_console.link.hostkeys import Verdict, accepted_algorithms, judge, judge_authority
from dflash_console.link.knownhosts import KnownHosts
from dflash_console.link.route import Route
from dflash_console.link.ssh.agent import Agent
from dflash_console.link.ssh.identities import (
    NONSENSE,
    FileKey,
    Identity,
    KeyFiles,
    file_identities,
    is_allowed,
    order,
)
from dflash_console.link.ssh.sockets import Tunnel
from dflash_console.link.threads import in_thread

__all__ = ["Login"]

KEEPALIVE_INTERVAL = 5.0
KEEPALIVE_COUNT = 3
PROMPTLESS = ("publickey", "gssapi-with-mic")
"""The ways to log in that need nobody at the keyboard."""

# The screen belongs to the console; what matters is raised as an error.
logging.getLogger("asyncssh").setLevel(logging.CRITICAL)


class Login(asyncssh.SSHClient):
    """A login in progress, and what an error's text needs to know of it."""

    def __init__(self, route: Route, known: KnownHosts, keys: KeyFiles, *, certificates: bool) -> None:
        self.known = known
        self.verdict: Verdict | None = None
        """On the key that the host showed last; None before it showed one."""
        self.saw_certificate = False
        self.is_authenticating = False
        self.banner = ""
        """What the host said before the login, cleaned."""
        self.offered: list[Identity] = []
        """The keys that were tried, in order."""
        self.notes: list[str] = []
        """Why some keys could not be tried."""
        self.agent: Agent | None = None
        """The ssh-agent, once it was asked."""
        self.connection: asyncssh.SSHClientConnection | None = None
        self._keys = keys
        self._route = route
        self.certificates = certificates
        self._waiting: list[Identity] | None = None

    async def run(
        self, sock: socket.socket | None, tunnel: Tunnel | None, limit: float
    ) -> asyncssh.SSHClientConnection:
        """Logs in over the socket, or over a channel of the jump host's connection, within `limit` seconds.

        Raises what asyncssh, the system and the handling of a peer's nonsense raise, TimeoutError, and Refused for
        a config that asks too much. Nothing is left open then.
        """
        try:
            async with asyncio.timeout(limit):
                return await asyncssh.connect(
                    self._route.hostname if tunnel else self._route.hostname.lower(),
                    self._route.port,
                    sock=sock,
                    tunnel=tunnel,
                    client_factory=lambda: self,
                    **self._options(),
                )
        except BaseException:
            if self.connection is not None:
                self.connection.abort()
            elif sock is not None:
                sock.close()
            raise
        finally:
            if self.agent is not None:
                self.agent.leave()

    @property
    def has_server_spoken(self) -> bool:
        """Whether the host sent its SSH banner."""
        return self.connection is not None and bool(self.connection.get_extra_info("server_version"))

    @property
    def was_key_wanted(self) -> bool:
        """Whether the host would have let in the key that was tried last."""
        if not self.offered:
            return False
        pair = self.offered[-1].pair
        if isinstance(pair, FileKey):
            return pair.was_wanted
        return self.agent is not None and self.agent.was_wanted

    @property
    def locked_keys(self) -> list[str]:
        """The files of the keys that the host would have taken and that need a passphrase."""
        return list(dict.fromkeys(pair.path for pair in self._file_keys() if pair.is_locked))

    @property
    def key_troubles(self) -> list[str]:
        """Why other keys that the host would have taken could not be used."""
        found = [pair.trouble for pair in self._file_keys() if pair.trouble and not pair.is_locked]
        if self.agent is not None and self.agent.has_refused:
            found.append(
                "the ssh-agent did not sign with a key that the host takes: was it locked or not confirmed?"
            )
        return found

    def _file_keys(self) -> list[FileKey]:
        return [identity.pair for identity in self.offered if isinstance(identity.pair, FileKey)]

    # ---- asked by asyncssh

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.connection = conn

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.verdict = judge(self.known, key.public_data)
        return self.verdict.state == "known"

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.saw_certificate = True
        self.verdict = judge_authority(self.known, key.public_data)
        return self.verdict.state == "known"

    def begin_auth(self, username: str) -> None:
        self.is_authenticating = True

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self.banner = clean(" ".join(msg.split()), 300)

    async def public_key_auth_requested(self) -> asyncssh.SSHKeyPair | None:
        # Where tasks start eagerly (Textual on Python 3.12), an answer given at once would reach asyncssh
        # before it has noted which method it is in.
        await asyncio.sleep(0)
        if self._waiting is None:
            self._waiting = await self._identities()
        if not self._waiting:
            return None
        identity = self._waiting.pop(0)
        self.offered.append(identity)
        return identity.pair

    # ----

    async def _identities(self) -> list[Identity]:
        route = self._route
        keys, self._keys = self._keys, {}
        certificates, files, notes = await in_thread(lambda: file_identities(route, keys))
        self.notes += notes
        agent: list[Identity] = []
        if route.agent:
            self.agent = Agent(route.agent)
            agent, note = await self.agent.identities()
            self.notes += filter(None, [note])
        ordered = order(certificates, files, agent, identities_only=route.identities_only)
        return [identity for identity in ordered if is_allowed(identity.pair, route.pubkey_algorithms)]

    def _options(self) -> dict[str, object]:
        route = self._route
        keepalive = min(route.server_alive or KEEPALIVE_INTERVAL, KEEPALIVE_INTERVAL)
        # asyncssh alone sees the key inside a certificate. Else `judge` sees all, and says more.
        revoked = [
            entry.key
            for entry in self.known.all_entries
            if entry.marker == "@revoked" and self.known.has_authority
        ]
        return {
            "config": None,
            "username": route.user,
            # Trust is judged in `validate_host_*`; only what must never pass is known to asyncssh itself.
            "known_hosts": ([], [], _decodable(revoked)),
            "host_key_alias": route.host_key_alias or None,
            "server_host_key_algs": self._host_key_algorithms(),
            "x509_trusted_certs": None,
            "x509_trusted_cert_paths": [],
            # No keys here: they come from `public_key_auth_requested`, in ssh's order.
            "client_keys": None,
            "agent_path": None,
            "agent_forwarding": False,
            "pkcs11_provider": None,
            "preferred_auth": _methods(route),
            "public_key_auth": route.pubkey_auth,
            "host_based_auth": False,
            "kbdint_auth": False,
            "password_auth": False,
            "gss_kex": False,
            "gss_auth": route.gssapi_auth,
            "gss_delegate_creds": False,
            "kex_algs": _supported("KexAlgorithms", route.kex_algorithms, get_kex_algs()),
            "encryption_algs": _supported("Ciphers", route.ciphers, get_encryption_algs()),
            "mac_algs": _supported("MACs", route.macs, get_mac_algs()),
            "signature_algs": _signatures(route.pubkey_algorithms),
            "compression_algs": ["zlib@openssh.com", "none"] if route.compression else ["none"],
            "canonicalize_hostname": False,
            "proxy_command": None,
            "command": None,
            "env": None,
            "send_env": None,
            "request_pty": False,
            "x11_forwarding": False,
            "encoding": None,
            "utf8_decode_errors": "replace",
            "tcp_keepalive": True,
            "keepalive_interval": keepalive,
            "keepalive_count_max": KEEPALIVE_COUNT,
            # One clock for the whole login: the one in `run`.
            "connect_timeout": None,
            "login_timeout": 0,
        }

    def _host_key_algorithms(self) -> list[str]:
        possible = [*get_public_key_algs(), *get_certificate_algs()]
        wanted = _supported("HostKeyAlgorithms", self._route.host_key_algorithms, possible)
        return accepted_algorithms(wanted, self.known, certificates=self.certificates) or list(wanted)


def _methods(route: Route) -> list[str]:
    """How to log in, keys first unless the config has an order of its own; nothing that would ask someone."""
    allowed = [name for name in PROMPTLESS if name != "gssapi-with-mic" or route.gssapi_auth]
    if not route.preferred_auth:
        return allowed
    methods = [name for name in route.preferred_auth if name in allowed]
    if not methods:
        wanted = ",".join(route.preferred_auth)
        raise Refused(
            f"the ssh config allows only PreferredAuthentications {wanted} for {route.name}; the console "
            "needs one that asks nobody: publickey"
        )
    return methods


def _supported(keyword: str, wanted: Sequence[str], possible: Iterable[bytes]) -> list[str]:
    """Those of the config's algorithms that asyncssh has, in the config's order."""
    names = [name.decode("ascii") for name in possible]
    found = [name for name in wanted if name in names]
    if not found:
        raise Refused(
            f"the console's SSH library knows none of the {keyword} that the ssh config allows: "
            f"{','.join(wanted) or '(none)'}"
        )
    return found


def _signatures(pubkey_algorithms: Sequence[str]) -> list[str]:
    possible = [name.decode("ascii") for name in get_public_key_algs()]
    allowed = {name.replace("-cert-v01@openssh.com", "") for name in pubkey_algorithms}
    allowed |= {f"{name}@openssh.com" for name in allowed if name.startswith("sk-")}
    return [name for name in possible if name in allowed] or possible


def _decodable(keys: Iterable[bytes]) -> list[asyncssh.SSHKey]:
    found = []
    for key in keys:
        with suppress(*NONSENSE):
            found.append(asyncssh.public_key.decode_ssh_public_key(key))
    return found
