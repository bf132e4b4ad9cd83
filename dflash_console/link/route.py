"""How a host is reached: `ssh -G` is asked, because only ssh knows what the operator's own ssh config means.

`resolve` runs it, `parse` and `build` turn its answer into a frozen Route, jump hosts included.
"""

from __future__ import annotations

import functools
import os
import pwd
import re
import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from dflash_console.config import HostConfig
from dflash_console.errors import Unreachable
from dflash_console.link.asking import MOST_OUTPUT, Asking, ask
from dflash_console.link.clean import clean_bytes
from dflash_console.link.files import MOST_OF_A_KEY, Files, Unfit, look

__all__ = ["Route", "Wish", "build", "parse", "resolve", "wish_of"]

ASK_TIMEOUT = 10.0
"""Seconds for one `ssh -G`. It takes 9 ms; `Match exec` and CanonicalizeHostname can take longer."""
MOST_HOPS = 8

FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
BRISK_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")


class Wish(msgspec.Struct, frozen=True):
    """What is asked of ssh: a destination and what the console's config or a ProxyJump adds to it."""

    address: str
    user: str | None = None
    port: int | None = None
    jump: str | None = None

    def arguments(self, ssh_config: str | None) -> list[str]:
        """The arguments that make `ssh` go there."""
        options = {
            "-F": ssh_config,
            "-l": self.user,
            "-p": None if self.port is None else str(self.port),
            "-J": self.jump,
        }
        given = [word for flag, value in options.items() if value is not None for word in (flag, value)]
        return [*given, "--", self.address]

    def command(self, ssh_config: str | None) -> str:
        """The ssh command line that goes there, to be repeated by hand."""
        return shlex.join(["ssh", *self.arguments(ssh_config)]).replace(" -- ", " ", 1)


class Route(msgspec.Struct, frozen=True):
    """How ssh would reach a host, by its config. Files are absolute and, unless said otherwise, exist."""

    name: str
    """As the operator calls it: the address of the config, or of the ProxyJump."""
    command: str
    """The ssh command line that goes there, to be repeated by hand."""
    hostname: str
    port: int
    user: str
    address_family: int = socket.AF_UNSPEC
    bind_address: str = ""
    connect_timeout: float | None = None
    """Seconds for the connection and the host's first line; None when the config does not say."""
    server_alive: float = 0.0
    """Seconds between keepalives; 0 when the config does not ask for any."""
    compression: bool = False

    via: Route | None = None
    """The jump host."""
    proxy_command: str = ""
    """For the shell, tokens expanded; empty when there is none."""
    proxy_passes_socket: bool = False
    """ProxyUseFdpass: the command hands over a connected socket and ends."""

    identity_files: tuple[str, ...] = ()
    """The private key, its `.pub` or its `-cert.pub` exists."""
    certificate_files: tuple[str, ...] = ()
    identities_only: bool = False
    agent: str = ""
    """The ssh-agent's socket; empty for none."""
    pubkey_auth: bool = True
    gssapi_auth: bool = False
    preferred_auth: tuple[str, ...] = ()
    """Empty when the config does not say."""

    host_key_alias: str = ""
    user_known_hosts: tuple[str, ...] = ()
    global_known_hosts: tuple[str, ...] = ()
    revoked_host_keys: str = ""
    """May not exist: ssh refuses every key then, and so must we."""
    check_host_ip: bool = False
    known_hosts_command: str = ""
    """Not run here."""
    strict_host_keys: str = "ask"
    """What the config says; not followed, unknown keys are never accepted here."""

    host_key_algorithms: tuple[str, ...] = ()
    pubkey_algorithms: tuple[str, ...] = ()
    kex_algorithms: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()
    macs: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Where the connection goes, for people: `10.1.2.200 port 22`."""
        return f"{self.hostname} port {self.port}"


async def resolve(host: HostConfig, ssh_config: str | None) -> Route:
    """The route to a host of the config, its jump hosts resolved the same way.

    `ssh_config` is as for `ssh -F`. Raises Unreachable when ssh is not there or does not accept its config.
    """
    return await _resolve(wish_of(host), ssh_config, ())


def wish_of(host: HostConfig) -> Wish:
    """What is asked of ssh for a host of the config."""
    return Wish(host.address, host.user, host.port, host.jump)


async def _resolve(wish: Wish, ssh_config: str | None, before: tuple[Wish, ...]) -> Route:
    if wish in before or len(before) > MOST_HOPS:
        chain = " -> ".join(hop.address for hop in (*before, wish))
        raise Unreachable(f"the jump hosts in the ssh config never end: {chain}")
    answer = await _ask(wish, ssh_config)
    route, hop = await look(
        lambda files: _built(answer, wish, ssh_config, files), key=("route", wish, ssh_config, answer)
    )
    if hop is None:
        return route
    return msgspec.structs.replace(route, via=await _resolve(hop, ssh_config, (*before, wish)))


def _built(answer: str, wish: Wish, ssh_config: str | None, files: Files) -> tuple[Route, Wish | None]:
    """The route without its jump host, and what to ask for that one."""
    parsed = parse(answer)
    route = build(parsed, wish, ssh_config, files)
    jump = _none_as_empty(_last(parsed, "proxyjump"))
    return route, hop_wish(expand(jump, _tokens(route, parsed))) if jump else None


async def _ask(wish: Wish, ssh_config: str | None) -> str:
    command = ["ssh", "-G", "-T", *wish.arguments(ssh_config)]
    shown = shlex.join(["ssh", "-G", *command[3:]])
    await look(lambda files: _check_config(ssh_config, files), key=("config", ssh_config))
    try:
        outcome = await ask(command, ASK_TIMEOUT)
    except FileNotFoundError:
        raise Unreachable("the program `ssh` is not on this machine: install OpenSSH's client") from None
    except (OSError, ValueError) as error:
        raise Unreachable(f"`ssh` can't be started to read its config: {error}") from None
    said = clean_bytes(outcome.complaint[-600:], 600)
    last = f"; it printed last: {said[-300:]!r}" if said else ""
    if outcome.end == "time":
        raise Unreachable(
            f"`{shown}` did not end in {ASK_TIMEOUT:.0f} s and was stopped; does a `Match exec` of the ssh "
            f"config hang{last}"
        )
    if outcome.end == "flood":
        raise Unreachable(
            f"`{shown}` printed more than {MOST_OUTPUT >> 10} KiB and was stopped; does a `Match exec` of the "
            f"ssh config print without end{last}"
        )
    if outcome.status != 0:
        raise Unreachable(
            f"ssh does not accept its config for {wish.address}: "
            f"{said or f'exit {outcome.status}, nothing said'}"
        )
    return outcome.output.decode("utf-8", "surrogateescape")


def _check_config(ssh_config: str | None, files: Files) -> None:
    """Raises Unreachable for a config that ssh would read without end. What it includes is not looked at."""
    for path in (_home("~/.ssh/config"), "/etc/ssh/ssh_config") if ssh_config is None else (ssh_config,):
        try:
            files.check(path, MOST_OF_A_KEY)
        except Unfit as error:
            raise Unreachable(f"the ssh config {path} can't be read: {error.strerror}") from None


def parse(output: str) -> dict[str, list[str]]:
    """What `ssh -G` printed: each keyword in lower case with its values, in order."""
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        keyword, _, value = line.strip().partition(" ")
        if keyword:
            found.setdefault(keyword.lower(), []).append(value.strip())
    return found


def build(
    answer: Mapping[str, list[str]], wish: Wish, ssh_config: str | None, files: Files | None = None
) -> Route:
    """The Route that the answer of `ssh -G` describes, without its jump host. Looks at files, blocks."""
    exists = (files or Files()).exists
    route = Route(
        name=wish.address,
        command=wish.command(ssh_config),
        hostname=_last(answer, "hostname") or wish.address,
        port=int(_last(answer, "port") or 22),
        user=_last(answer, "user"),
        address_family=FAMILIES.get(_last(answer, "addressfamily"), socket.AF_UNSPEC),
        bind_address=_last(answer, "bindaddress"),
        connect_timeout=_seconds(_last(answer, "connecttimeout")),
        server_alive=_seconds(_last(answer, "serveraliveinterval")) or 0.0,
        compression=_is_on(answer, "compression"),
        proxy_passes_socket=_is_on(answer, "proxyusefdpass"),
        identities_only=_is_on(answer, "identitiesonly"),
        agent=_agent(_last(answer, "identityagent")),
        pubkey_auth=_last(answer, "pubkeyauthentication") not in ("no", "false"),
        gssapi_auth=_is_on(answer, "gssapiauthentication"),
        preferred_auth=_names(answer, "preferredauthentications"),
        host_key_alias=_last(answer, "hostkeyalias"),
        user_known_hosts=_existing(_last(answer, "userknownhostsfile"), exists),
        global_known_hosts=_existing(_last(answer, "globalknownhostsfile"), exists),
        revoked_host_keys=_none_as_empty(_last(answer, "revokedhostkeys")),
        check_host_ip=_is_on(answer, "checkhostip"),
        known_hosts_command=_none_as_empty(_last(answer, "knownhostscommand")),
        strict_host_keys=_last(answer, "stricthostkeychecking") or "ask",
        host_key_algorithms=_names(answer, "hostkeyalgorithms"),
        pubkey_algorithms=_names(answer, "pubkeyacceptedalgorithms")
        or _names(answer, "pubkeyacceptedkeytypes"),
        kex_algorithms=_names(answer, "kexalgorithms"),
        ciphers=_ciphers(_names(answer, "ciphers")),
        macs=_names(answer, "macs"),
    )
    tokens = _tokens(route, answer)
    proxy = _none_as_empty(_last(answer, "proxycommand"))
    return msgspec.structs.replace(
        route,
        proxy_command=expand(proxy, tokens),
        identity_files=tuple(
            path
            for path in _files(answer.get("identityfile", ()), tokens)
            if any(exists(path + ending) for ending in ("", ".pub", "-cert.pub"))
        ),
        certificate_files=tuple(filter(exists, _files(answer.get("certificatefile", ()), tokens))),
    )


def hop_wish(jump: str) -> Wish:
    """What ssh itself asks for the last host of a ProxyJump list: those before it become its own jump hosts.

    The form is that of `ssh -G`: `first,second,[user@]host[:port]`, a numeric host in brackets.
    """
    before, _, last = jump.rpartition(",")
    user, _, place = last.removeprefix("ssh://").rpartition("@")
    match = re.fullmatch(
        r"\[(?P<numeric>[^\]]+)\](?::(?P<port>\d+))?|(?P<host>[^:]+)(?::(?P<port2>\d+))?", place
    )
    if match is None:
        raise Unreachable(f"the ssh config has a ProxyJump that can't be read: {jump}")
    port = match["port"] or match["port2"]
    return Wish(match["numeric"] or match["host"], user or None, int(port) if port else None, before or None)


def expand(text: str, tokens: Mapping[str, str]) -> str:
    """The text with ssh_config's %-tokens replaced. Raises Unreachable for an unknown one, as ssh does."""

    def value(match: re.Match[str]) -> str:
        try:
            return tokens[match[1]]
        except KeyError:
            raise Unreachable(
                f"the ssh config uses the token {match[0]!r}, not known here, in {text!r}"
            ) from None

    return re.sub(r"%(.?)", value, text)


def _tokens(route: Route, answer: Mapping[str, list[str]]) -> dict[str, str]:
    me = pwd.getpwuid(os.getuid())
    local = socket.gethostname()
    original = _last(answer, "host") or route.name
    return {
        "%": "%",
        "h": route.hostname,
        "n": original,
        "k": route.host_key_alias or original,
        "p": str(route.port),
        "r": route.user,
        "u": me.pw_name,
        "i": str(me.pw_uid),
        "d": me.pw_dir,
        "l": local,
        "L": local.partition(".")[0],
    }


def _files(values: Sequence[str], tokens: Mapping[str, str]) -> list[str]:
    """IdentityFile and CertificateFile as paths; `ssh -G` prints them as they were written."""
    return [_variables(expand(_home(value), tokens)) for value in values if value and value.lower() != "none"]


def _home(path: str) -> str:
    # As ssh does, and unlike os.path.expanduser, $HOME is not asked. An account without an entry is for ssh to name.
    if path == "~" or path.startswith("~/"):
        with suppress(KeyError):
            return pwd.getpwuid(os.getuid()).pw_dir + path[1:]
    return os.path.expanduser(path)


def _variables(path: str) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], match[0]), path)


def _existing(value: str, exists: Callable[[str], bool]) -> tuple[str, ...]:
    """The files of a list that exist. `ssh -G` does not quote, so names with spaces are found by trying."""
    words = [] if value.lower() == "none" else value.split(" ")
    found: list[str] = []
    at = 0
    while at < len(words):
        for end in range(len(words), at, -1):
            path = _home(" ".join(words[at:end]))
            if exists(path):
                found.append(path)
                break
        else:
            end = at + 1
        at = end
    return tuple(found)


def _agent(value: str) -> str:
    if value.lower() == "none":
        return ""
    if not value or value == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK", "")
    if value.startswith("$"):
        return os.environ.get(value[1:].strip("{}"), "")
    return _home(value)


def _ciphers(names: tuple[str, ...]) -> tuple[str, ...]:
    """AES-GCM before ChaCha20 (1.7 times faster here), as long as the config leaves the order to ssh."""
    if names != _ciphers_of_ssh():
        return names
    brisk = tuple(name for name in BRISK_CIPHERS if name in names)
    return brisk + tuple(name for name in names if name not in brisk)


@functools.cache
def _ciphers_of_ssh() -> tuple[str, ...]:
    """Those of ssh without any config."""
    try:
        outcome = Asking(["ssh", "-G", "-T", "-F", "none", "--", "localhost"]).run(ASK_TIMEOUT)
    except OSError:
        return ()
    return _names(parse(outcome.output.decode("utf-8", "replace")), "ciphers")


def _last(answer: Mapping[str, list[str]], keyword: str) -> str:
    values = answer.get(keyword)
    return values[-1] if values else ""


def _none_as_empty(value: str) -> str:
    return "" if value.lower() == "none" else value


def _names(answer: Mapping[str, list[str]], keyword: str) -> tuple[str, ...]:
    return tuple(filter(None, _last(answer, keyword).split(",")))


def _is_on(answer: Mapping[str, list[str]], keyword: str) -> bool:
    return _last(answer, keyword) in ("yes", "true")


def _seconds(value: str) -> float | None:
    return float(value) if value.isdigit() and int(value) > 0 else None
