"""What went wrong with SSH, in words for operators: exceptions become the LinkError tree.

Told apart by the exception's type, its number, and how far the login had come; never by its text.
"""

from __future__ import annotations

import os

import asyncssh

from dflash_console.errors import HostKeyUnknown, LinkError, Refused, Unreachable
from dflash_console.link.clean import clean
from dflash_console.link.hostkeys import Verdict, refusal
from dflash_console.link.route import Route
from dflash_console.link.ssh.login import Login

__all__ = [
    "channel_trouble",
    "dismissed",
    "jump_host_lost",
    "login_trouble",
    "lost",
    "needs_plain_key",
    "tunnel_trouble",
]

REASON_LIMIT = 200


def login_trouble(error: Exception, login: Login, route: Route, who: str, limit: float) -> LinkError:
    """The error for a login that failed. `who` names the host in the text."""
    if isinstance(error, LinkError):
        return error
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return _host_key_trouble(error, login, route, who)
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return Refused(
            f"{who} and the console share no way to encrypt: {_reason(error)}. The algorithms of the ssh "
            "config or of the host's sshd_config are too narrow, or too old"
        )
    if isinstance(error, TimeoutError):
        return _time_out(login, who, limit)
    if login.is_authenticating and login.was_key_wanted and _is_loss(error):
        return dismissed(error, route, who, login.banner)
    if login.is_authenticating and isinstance(error, asyncssh.Error) and not _is_loss(error):
        return _denied(error, login, route, who)
    if not login.has_server_spoken:
        return Unreachable(
            f"{who} took the connection to {route.place} and closed it before its SSH banner: sshd is at its "
            "MaxStartups, penalises this address, or something else listens there"
        )
    step = "login" if login.is_authenticating else "key exchange"
    return Unreachable(f"the connection to {who} broke during the {step}: {_reason(error)}")


def needs_plain_key(error: Exception, login: Login) -> bool:
    """Whether to try again without host certificates: as ssh, which then looks for the plain key."""
    return (
        isinstance(error, asyncssh.HostKeyNotVerifiable)
        and login.saw_certificate
        and (login.verdict is None or login.verdict.state != "revoked")
        and any(not entry.marker for entry in login.known.all_entries)
    )


def tunnel_trouble(error: Exception, route: Route, who: str, limit: float) -> LinkError:
    """The error for a jump host that does not pass the connection on."""
    via = route.via.name if route.via else "the jump host"
    if isinstance(error, TimeoutError):
        return Unreachable(
            f"{who} does not answer jump host {via}: no connection to {route.place} in {limit:.0f} s "
            "(powered off, or a firewall drops the packets)"
        )
    code = error.code if isinstance(error, asyncssh.ChannelOpenError) else None
    if code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
        return Refused(
            f"jump host {via} does not pass connections on ({_reason(error)}): AllowTcpForwarding or "
            "PermitOpen in its sshd_config forbids it"
        )
    return Unreachable(f"{who} does not answer jump host {via} at {route.place}: {_reason(error)}")


def jump_host_lost(route: Route, who: str) -> Unreachable:
    """The error for a login whose jump host went away under it."""
    via = route.via.name if route.via else "the jump host"
    return Unreachable(
        f"the connection to jump host {via} was lost while {who} was logged in to through it: did its sshd or its "
        "network go down, or does it hang up on every login (an expired account, PermitRootLogin)?"
    )


def channel_trouble(error: asyncssh.ChannelOpenError, who: str) -> LinkError:
    """The error for a channel that the host does not open."""
    return Refused(
        f"{who} lets us in and starts no program ({_reason(error)}): MaxSessions or an option of the key in "
        "authorized_keys forbids it"
    )


def dismissed(error: Exception, route: Route, who: str, banner: str = "") -> Refused:
    """The error for a host that accepts the key and hangs up before a program can start."""
    says = f", says {banner!r}" if banner else ""
    return Refused(
        f"{who} accepts the key of {route.user}{says} and closes the connection ({_reason(error)}). Such an account is "
        f"expired (`chage -l {route.user}` there tells) or shut out by PAM, or it is root and may only run forced "
        "commands (PermitRootLogin in sshd_config); the host's log knows: `journalctl -t sshd`"
    )


def lost(error: Exception, who: str) -> Unreachable:
    """The error for an open connection that broke."""
    return Unreachable(f"the connection to {who} was lost: {_reason(error)}")


def _host_key_trouble(
    error: asyncssh.HostKeyNotVerifiable, login: Login, route: Route, who: str
) -> LinkError:
    verdict = login.verdict
    if verdict is None:
        # asyncssh asks about every key but those it was told to be revoked.
        entry = next((entry for entry in login.known.all_entries if entry.marker == "@revoked"), None)
        verdict = Verdict("revoked", entry.key if entry else b"", entry)
    if verdict.state == "known":
        return HostKeyUnknown(
            f"the host certificate of {who} is signed by an authority that you trust, and is not valid for "
            f"{login.known.name}: {_reason(error)}. The host's administrator has to sign its key anew"
        )
    return refusal(verdict, login.known, route, who)


def _denied(error: Exception, login: Login, route: Route, who: str) -> LinkError:
    parts = [f"{who} does not let {route.user} in"]
    tried = [identity.label for identity in login.offered]
    if tried:
        parts.append(f"tried {len(tried)} key{'s' if len(tried) > 1 else ''}: {', '.join(tried[:8])}")
        parts += _advice(error, login, route)
    elif isinstance(error, asyncssh.PermissionDenied):
        parts.append(_without_keys(route))
    if locked := login.locked_keys:
        parts.append(
            f"it would take {', '.join(locked)}, which needs a passphrase: put it in the agent with "
            f"`ssh-add {locked[0]}`"
        )
    if not isinstance(error, asyncssh.PermissionDenied):
        # The server itself broke off: MaxAuthTries counts every key that is offered.
        parts.append(f"the host broke off ({_reason(error)})")
        if len(tried) > 1:
            parts.append("too many keys in the agent? IdentitiesOnly yes with one IdentityFile helps")
    parts += login.key_troubles
    parts += login.notes
    if login.banner:
        parts.append(f"the host says {login.banner!r}")
    parts.append(f"`{route.command.replace('ssh ', 'ssh -v ', 1)}` tells more")
    return Refused("; ".join(parts))


def _advice(error: Exception, login: Login, route: Route) -> list[str]:
    """What to look at when the host refused the keys that it was offered."""
    if login.locked_keys or login.key_troubles or not isinstance(error, asyncssh.PermissionDenied):
        return []
    if login.was_key_wanted:
        return [
            f"it knows the key and refuses {route.user} all the same (PermitRootLogin or AuthenticationMethods in its "
            "sshd_config, or a limit on the key in authorized_keys)"
        ]
    return [
        f"is one of them in the authorized_keys of {route.user} there, and do AllowUsers and AllowGroups in its "
        "sshd_config let that account in?"
    ]


def _without_keys(route: Route) -> str:
    if not route.pubkey_auth:
        return "PubkeyAuthentication is off in the ssh config"
    if not route.agent and not route.identity_files:
        return "there is no key to try: no ssh-agent (SSH_AUTH_SOCK) and no IdentityFile"
    return "no key was tried: the host does not take keys (PubkeyAuthentication), or the agent is empty"


def _time_out(login: Login, who: str, limit: float) -> LinkError:
    if not login.has_server_spoken:
        return Unreachable(
            f"{who} took the connection and sent no SSH banner in {limit:.0f} s: the host is frozen or "
            "overloaded, or something else listens there"
        )
    if login.agent is not None and login.agent.is_asked:
        # Lasting: each try may ask somebody anew.
        return Refused(
            f"the ssh-agent at {login.agent.path} gave no signature for {who} in {limit:.0f} s: it waits for "
            "somebody (a confirmation, a PIN, a touch), or hangs"
        )
    step = "login" if login.is_authenticating else "key exchange"
    return Unreachable(
        f"{who} answered and did not finish the {step} in {limit:.0f} s: the host or the network is very slow"
    )


def _is_loss(error: Exception) -> bool:
    return isinstance(error, OSError | asyncssh.ConnectionLost)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        # asyncio's own text is "Connect call failed" with a tuple.
        text = os.strerror(error.errno or 0)
    else:
        text = error.reason if isinstance(error, asyncssh.Error) else str(error)
    return clean(text or type(error).__name__, REASON_LIMIT)
