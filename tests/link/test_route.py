"""What `ssh -G` prints, and what we make of it."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

import pytest

from dflash_console.config import HostConfig
from dflash_console.errors import Unreachable
from dflash_console.link.route import Route, Wish, build, expand, hop_wish, parse, resolve

HOME = pwd.getpwuid(os.getuid()).pw_dir


def is_running(pid: str) -> bool:
    return Path(f"/proc/{pid}/exe").exists()


def built(text: str, address: str = "ct129") -> Route:
    return build(parse(text), Wish(address), None)


def test_keywords_may_come_more_than_once_and_the_values_keep_their_spaces() -> None:
    answer = parse("Host a\nidentityfile ~/one\nidentityfile /with a space\n\nproxycommand nc %h %p\n")
    assert answer == {"host": ["a"], "identityfile": ["~/one", "/with a space"], "proxycommand": ["nc %h %p"]}


def test_the_plain_fields() -> None:
    route = built(
        "host ct129\nuser op\nhostname 10.1.230.172\nport 2222\naddressfamily inet6\nbindaddress 10.0.0.1\n"
        "connecttimeout 60\nserveraliveinterval 30\ncompression yes\nhostkeyalias the-one\ncheckhostip yes\n"
        "preferredauthentications publickey,password\nstricthostkeychecking accept-new\nidentitiesonly yes\n"
        "pubkeyauthentication false\nproxyusefdpass yes\nciphers a,b\n"
    )
    assert (route.user, route.hostname, route.port) == ("op", "10.1.230.172", 2222)
    assert (route.address_family, route.bind_address) == (socket.AF_INET6, "10.0.0.1")
    assert (route.connect_timeout, route.server_alive) == (60.0, 30.0)
    assert route.compression
    assert route.check_host_ip
    assert route.identities_only
    assert route.proxy_passes_socket
    assert not route.pubkey_auth
    assert route.host_key_alias == "the-one"
    assert route.preferred_auth == ("publickey", "password")
    assert route.strict_host_keys == "accept-new"
    assert route.ciphers == ("a", "b")


def test_what_the_config_does_not_say() -> None:
    route = built(
        "host ct129\nuser op\nhostname ct129\nport 22\nconnecttimeout none\nserveraliveinterval 0\n"
    )
    assert (route.connect_timeout, route.server_alive) == (None, 0.0)
    assert (route.user_known_hosts, route.identity_files, route.agent) == (
        (),
        (),
        os.environ.get("SSH_AUTH_SOCK", ""),
    )
    assert route.proxy_command == ""


def test_only_files_that_exist_are_kept(tmp_path: Path) -> None:
    for name in ("known", "with a space", "id_a", "id_b.pub", "id_c-cert.pub"):
        (tmp_path / name).touch()
    route = built(
        f"userknownhostsfile {tmp_path}/gone {tmp_path}/with a space {tmp_path}/known /dev/null\n"
        f"globalknownhostsfile none\nidentityfile {tmp_path}/id_a\nidentityfile {tmp_path}/id_b\n"
        f"identityfile {tmp_path}/id_c\nidentityfile {tmp_path}/id_d\nidentityfile none\n"
        f"certificatefile {tmp_path}/gone-cert.pub\n"
    )
    assert route.user_known_hosts == (f"{tmp_path}/with a space", f"{tmp_path}/known", "/dev/null")
    assert route.global_known_hosts == ()
    assert route.identity_files == tuple(f"{tmp_path}/id_{name}" for name in "abc")
    assert route.certificate_files == ()


def test_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/usual")
    monkeypatch.setenv("MINE", "/run/mine")
    assert built("host a\n").agent == "/run/usual"
    assert built("identityagent none\n").agent == ""
    assert built("identityagent SSH_AUTH_SOCK\n").agent == "/run/usual"
    assert built("identityagent $MINE\n").agent == "/run/mine"
    assert built("identityagent ~/agent\n").agent == f"{HOME}/agent"


def test_tokens_of_a_proxy_command() -> None:
    text = "host ct129\nhostname 10.0.0.1\nport 2222\nuser op\nproxycommand relay %% %h:%p %r %n %d\n"
    assert built(text).proxy_command == f"relay % 10.0.0.1:2222 op ct129 {HOME}"
    assert built("proxycommand none\n").proxy_command == ""


def test_an_unknown_token_is_named_as_ssh_names_it() -> None:
    with pytest.raises(Unreachable, match="'%Q'"):
        expand("x %Q", {})


def test_jump_hosts_as_ssh_writes_them() -> None:
    assert hop_wish("bastion") == Wish("bastion")
    assert hop_wish("op@bastion:2222") == Wish("bastion", "op", 2222)
    assert hop_wish("first,ssh://op@second:3,op@third") == Wish(
        "third", "op", None, "first,ssh://op@second:3"
    )
    assert hop_wish("[::1]:2203") == Wish("::1", None, 2203)
    assert hop_wish("op@[10.0.0.1]") == Wish("10.0.0.1", "op")
    with pytest.raises(Unreachable):
        hop_wish("a:b:c")


def test_the_command_to_repeat_by_hand() -> None:
    wish = Wish("ct129", "op", 2222, "bastion")
    assert build({}, wish, "/etc/my config").command == (
        "ssh -F '/etc/my config' -l op -p 2222 -J bastion ct129"
    )


async def test_the_consoles_own_settings_come_before_the_config(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "Host ct129\n  User a\n  Port 1\n  HostName 127.0.0.1\n  ProxyJump one\nHost two\n  User b\n"
    )
    host = HostConfig("x", address="ct129", user="op", port=2222, jump="two:9")
    route = await resolve(host, str(config))
    assert (route.user, route.port, route.hostname) == ("op", 2222, "127.0.0.1")
    assert route.via is not None
    assert (route.via.name, route.via.port, route.via.user) == ("two", 9, "b")
    assert route.via.via is None
    plain = await resolve(HostConfig("x", address="ct129", jump="none"), str(config))
    assert plain.via is None


async def test_an_address_is_never_an_option(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with pytest.raises(Unreachable):
        await resolve(HostConfig("x", address=f"-oProxyCommand=touch {marker}"), "none")
    assert not marker.exists()


async def test_brisk_ciphers_come_first_unless_the_config_says_otherwise(tmp_path: Path) -> None:
    route = await resolve(HostConfig("ct129"), "none")
    assert route.ciphers[:2] == ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
    assert "chacha20-poly1305@openssh.com" in route.ciphers
    config = tmp_path / "config"
    config.write_text("Ciphers aes256-ctr,aes128-gcm@openssh.com\n")
    route = await resolve(HostConfig("ct129"), str(config))
    assert route.ciphers == ("aes256-ctr", "aes128-gcm@openssh.com")


async def test_a_match_exec_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dflash_console.link import route as route_module

    monkeypatch.setattr(route_module, "ASK_TIMEOUT", 0.3)
    marker = tmp_path / "pid"
    config = tmp_path / "config"
    config.write_text(f'Match exec "echo $$ > {marker}; exec sleep 600"\n  Port 1\n')
    with pytest.raises(Unreachable, match="Match exec"):
        await resolve(HostConfig("ct129"), str(config))
    assert not is_running(marker.read_text().strip())
