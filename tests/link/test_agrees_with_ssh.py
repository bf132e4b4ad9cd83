"""Where the operator's `ssh HOST` works, ours works; where it fails, ours fails. Against a real sshd."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from dflash_console.errors import HostKeyChanged, HostKeyUnknown, Refused, Unreachable
from tests.link.sshd import keygen, ssh_keygen
from tests.link.world import World


def known_host(world: World, *, lines: tuple[str, ...] = (), keys: list[Path] | None = None) -> str:
    """A host that both know; its section of the config, without the Host line."""
    server = world.sshd(lines=lines, keys=keys)
    world.know_server(server, keys[0] if keys else None)
    return f"  HostName 127.0.0.1\n  Port {server.port}\n"


async def test_a_key_file_and_a_port_of_its_own(world: World) -> None:
    world.write_config("Host ct129\n" + known_host(world))
    await world.both_work("ct129")


async def test_a_user_and_a_port_in_the_address(world: World) -> None:
    known_host(world)
    server = world.servers[0]
    world.write_config("")
    await world.both_work(f"ssh://{server.user}@127.0.0.1:{server.port}")


async def test_a_chain_of_two_jump_hosts(world: World) -> None:
    server = world.sshd(ports=3)
    world.know_server(server)
    first, second, last = server.ports
    world.write_config(
        f"Host first\n  HostName 127.0.0.1\n  Port {first}\n"
        f"Host second\n  HostName 127.0.0.1\n  Port {second}\n"
        f"Host ct200\n  HostName 127.0.0.1\n  Port {last}\n  ProxyJump first,second\n"
        "Host mistaken\n  HostName 127.0.0.1\n  Port 1\n  ProxyJump first,second\n"
    )
    await world.both_work("ct200")
    failure = await world.both_fail("mistaken")
    assert isinstance(failure, Unreachable)
    assert "jump host second" in str(failure)


async def test_jump_hosts_that_have_jump_hosts_of_their_own(world: World) -> None:
    server = world.sshd(ports=3)
    world.know_server(server)
    first, second, last = server.ports
    world.write_config(
        f"Host first\n  HostName 127.0.0.1\n  Port {first}\n"
        f"Host second\n  HostName 127.0.0.1\n  Port {second}\n  ProxyJump first\n"
        f"Host ct200\n  HostName 127.0.0.1\n  Port {last}\n  ProxyJump %r@second\n"
    )
    await world.both_work("ct200")


async def test_jump_hosts_that_never_end_are_named(world: World) -> None:
    world.write_config("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    failure = await world.ours("a")
    assert isinstance(failure, Unreachable)
    assert "a -> b -> a" in str(failure)


async def test_a_jump_host_whose_key_is_unknown_is_named(world: World) -> None:
    server = world.sshd(ports=2)
    world.know(f"[127.0.0.1]:{server.ports[1]}", world.host_keys.ed25519)
    world.write_config(
        f"Host bastion\n  HostName 127.0.0.1\n  Port {server.ports[0]}\n"
        f"Host ct200\n  HostName 127.0.0.1\n  Port {server.ports[1]}\n  ProxyJump bastion\n"
    )
    failure = await world.both_fail("ct200")
    assert isinstance(failure, HostKeyUnknown)
    assert "jump host bastion" in str(failure)
    assert f"ssh -F {world.config} bastion" in str(failure)


async def test_a_jump_host_that_passes_nothing_on_is_named(world: World) -> None:
    jump, target = world.sshd(lines=["AllowTcpForwarding no"]), world.sshd()
    world.know_server(jump)
    world.know_server(target)
    world.write_config(
        f"Host bastion\n  HostName 127.0.0.1\n  Port {jump.port}\n"
        f"Host ct200\n  HostName 127.0.0.1\n  Port {target.port}\n  ProxyJump bastion\n"
    )
    failure = await world.both_fail("ct200")
    assert isinstance(failure, Refused)
    assert "AllowTcpForwarding" in str(failure)


async def test_a_proxy_command_in_shell_syntax(world: World) -> None:
    server = world.sshd(ports=2)
    world.know_server(server)
    bastion, last = server.ports
    config = shlex.quote(str(world.config))
    world.write_config(
        f"Host bastion\n  HostName 127.0.0.1\n  Port {bastion}\n"
        f"Host ct200\n  HostName 127.0.0.1\n  Port {last}\n"
        f"  ProxyCommand ssh -F {config} -W %h:%p bastion 2>/dev/null | cat; echo %% >/dev/null\n"
    )
    await world.both_work("ct200")


async def test_a_proxy_command_that_talks_on_stderr(world: World) -> None:
    server = world.sshd(ports=2)
    world.know_server(server)
    bastion, last = server.ports
    world.write_config(
        f"Host bastion\n  HostName 127.0.0.1\n  Port {bastion}\n"
        f"Host ct200\n  HostName 127.0.0.1\n  Port {last}\n"
        f"  ProxyCommand sh -c 'echo a warning >&2; exec ssh -F {world.config} -W %h:%p bastion'\n"
    )
    await world.both_work("ct200")


async def test_a_proxy_command_that_fails_is_quoted(world: World) -> None:
    world.write_config("Host ct200\n  ProxyCommand sh -c 'echo the tunnel is down >&2; exit 7'\n")
    failure = await world.both_fail("ct200")
    assert isinstance(failure, Unreachable)
    assert "exit 7" in str(failure)
    assert "the tunnel is down" in str(failure)


async def test_a_proxy_command_that_hands_over_its_socket(world: World) -> None:
    section = known_host(world)
    script = world.folder / "pass.py"
    script.write_text(
        "import socket, sys\n"
        "there = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "socket.send_fds(socket.socket(fileno=1), [b'x'], [there.fileno()])\n"
    )
    world.write_config(
        f"Host ct200\n{section}  ProxyUseFdpass yes\n  ProxyCommand {sys.executable} {script} %h %p\n"
    )
    await world.both_work("ct200")


async def test_a_key_that_only_the_agent_holds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = world.agent(world.key)
    section = known_host(world)
    world.write_config(
        f"Host by-path\n{section}  IdentityAgent {agent}\n"
        f"Host by-variable\n{section}  IdentityAgent SSH_AUTH_SOCK\n"
        f"Host by-another\n{section}  IdentityAgent $MY_AGENT\n"
        f"Host without\n{section}  IdentityAgent none\n",
        identity=False,
    )
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    monkeypatch.setenv("MY_AGENT", str(agent))
    for host in ("by-path", "by-variable", "by-another"):
        await world.both_work(host)
    failure = await world.both_fail("without")
    assert isinstance(failure, Refused)
    assert "there is no key to try" in str(failure)


async def test_many_keys_in_the_agent(world: World) -> None:
    strangers = [keygen(world.folder / f"stranger{number}") for number in range(5)]
    agent = world.agent(*strangers, world.key)
    section = known_host(world, lines=("MaxAuthTries 3",))
    public = f"{world.key}.pub"
    world.write_config(
        f"Host too-many\n{section}  IdentityAgent {agent}\n"
        f"Host only\n{section}  IdentityAgent {agent}\n  IdentitiesOnly yes\n  IdentityFile {world.key}\n"
        f"Host only-public\n{section}  IdentityAgent {agent}\n  IdentitiesOnly yes\n  IdentityFile {public}\n"
        f"Host named-first\n{section}  IdentityAgent {agent}\n  IdentityFile {world.key}\n",
        identity=False,
    )
    failure = await world.both_fail("too-many")
    assert isinstance(failure, Refused)
    assert "tried 3 keys: stranger0 (agent), stranger1 (agent), stranger2 (agent)" in str(failure)
    assert "IdentitiesOnly yes" in str(failure)
    for host in ("only", "only-public", "named-first"):
        await world.both_work(host)


async def test_a_user_certificate(world: World) -> None:
    authority = f"TrustedUserCAKeys {world.host_keys.authority}.pub"
    key = keygen(world.folder / "id_certified")
    section = known_host(world, lines=(authority,))
    world.write_config(
        f"Host beside-the-key\n{section}  IdentityFile {key}\n  IdentitiesOnly yes\n"
        f"Host named\n{section}  IdentityFile {key}\n  CertificateFile {world.folder}/elsewhere\n",
        identity=False,
    )
    failure = await world.both_fail("beside-the-key")
    assert isinstance(failure, Refused)
    certificate = world.sign_user(key)
    await world.both_work("beside-the-key")
    certificate.rename(world.folder / "elsewhere")
    await world.both_work("named")
    await world.both_fail("beside-the-key")


async def test_a_user_certificate_whose_key_the_agent_holds(world: World) -> None:
    key = keygen(world.folder / "id_certified")
    agent = world.agent(key)
    section = known_host(world, lines=(f"TrustedUserCAKeys {world.host_keys.authority}.pub",))
    certificate = world.sign_user(key)
    key.unlink()
    certificate = certificate.rename(world.folder / "elsewhere-cert.pub")
    world.write_config(
        f"Host ct200\n{section}  IdentityAgent {agent}\n  CertificateFile {certificate}\n", identity=False
    )
    await world.both_work("ct200")


async def test_an_rsa_key_in_pem_without_its_public_file(world: World) -> None:
    key = keygen(world.folder / "id_old", "rsa", extra=["-m", "PEM"])
    public = key.with_suffix(".pub")
    world.authorized.write_bytes(public.read_bytes())
    public.unlink()
    world.write_config(f"Host ct200\n{known_host(world)}  IdentityFile {key}\n", identity=False)
    await world.both_work("ct200")


async def test_an_identity_file_that_does_not_exist(world: World) -> None:
    world.write_config(f"Host ct200\n{known_host(world)}  IdentityFile {world.folder}/id_gone\n")
    await world.both_work("ct200")


async def test_tokens_and_variables_in_an_identity_file(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYS", str(world.folder))
    world.key.rename(world.folder / "id_ct200")
    world.key.with_suffix(".pub").unlink()
    world.write_config(f"Host ct200\n{known_host(world)}  IdentityFile ${{KEYS}}/id_%n\n", identity=False)
    await world.both_work("ct200")


async def test_an_encrypted_key_that_is_not_in_the_agent(world: World) -> None:
    locked = keygen(world.folder / "id_locked", passphrase="a secret")
    world.authorized.write_bytes(locked.with_suffix(".pub").read_bytes())
    world.write_config(f"Host ct200\n{known_host(world)}  IdentityFile {locked}\n")
    failure = await world.both_fail("ct200")
    assert isinstance(failure, Refused)
    assert f"`ssh-add {locked}`" in str(failure)


async def test_a_host_certificate(world: World) -> None:
    certificate = world.sign_host(world.host_keys.ed25519, "ct129,ct200")
    expired = world.sign_host(world.host_keys.ed25519, "ct129", options=["-V", "20200101:20200102"])
    good, old = (
        world.sshd(
            keys=[path.with_name(path.name.removesuffix("-cert.pub"))], lines=[f"HostCertificate {path}"]
        )
        for path in (certificate, expired)
    )
    world.know("ct*", world.host_keys.authority, marker="@cert-authority")
    world.write_config(
        f"Host ct129\n  HostName 127.0.0.1\n  HostKeyAlias ct129\n  Port {good.port}\n"
        f"Host other\n  HostName 127.0.0.1\n  HostKeyAlias ct300\n  Port {good.port}\n"
        f"Host expired\n  HostName 127.0.0.1\n  HostKeyAlias ct129\n  Port {old.port}\n"
    )
    await world.both_work("ct129")
    for host in ("other", "expired"):
        failure = await world.both_fail(host)
        assert isinstance(failure, HostKeyUnknown)
        assert "not valid for" in str(failure)
    # ssh then looks for the plain key.
    world.know("ct300", world.host_keys.ed25519)
    await world.both_work("other")


async def test_a_host_certificate_of_an_unknown_authority(world: World) -> None:
    certificate = world.sign_host(world.host_keys.ed25519, "ct129")
    key = certificate.with_name(certificate.name.removesuffix("-cert.pub"))
    server = world.sshd(keys=[key], lines=[f"HostCertificate {certificate}"])
    world.know("ct129", world.host_keys.other, marker="@cert-authority")
    world.write_config(f"Host ct129\n  HostName 127.0.0.1\n  HostKeyAlias ct129\n  Port {server.port}\n")
    failure = await world.both_fail("ct129")
    assert isinstance(failure, HostKeyUnknown)
    assert "signed by an authority that is not known" in str(failure)
    world.know("ct129", world.host_keys.ed25519)
    await world.both_work("ct129")


async def test_a_host_key_alias(world: World) -> None:
    server = world.sshd()
    world.know("the-alias", world.host_keys.ed25519)
    section = f"  HostName 127.0.0.1\n  Port {server.port}\n"
    world.write_config(f"Host ct129\n{section}  HostKeyAlias the-alias\nHost bare\n{section}")
    await world.both_work("ct129")
    assert isinstance(await world.both_fail("bare"), HostKeyUnknown)


async def test_hashed_known_hosts(world: World) -> None:
    world.write_config("Host ct129\n" + known_host(world))
    ssh_keygen("-q", "-H", "-f", str(world.known_hosts))
    assert b"127.0.0.1" not in world.known_hosts.read_bytes()
    await world.both_work("ct129")


async def test_several_known_hosts_files_of_which_some_are_missing(world: World) -> None:
    section = known_host(world)
    spaced = world.known_hosts.rename(world.folder / "known hosts")
    gone = world.folder / "gone"
    world.write_config(
        f'Host ct129\n{section}  UserKnownHostsFile {gone} "{spaced}" {world.folder}/gone2\n'
        f'Host by-global\n{section}  UserKnownHostsFile /dev/null\n  GlobalKnownHostsFile {gone} "{spaced}"\n'
        f"Host nobody\n{section}  UserKnownHostsFile none\n"
        f"Host devnull\n{section}  UserKnownHostsFile /dev/null\n"
    )
    await world.both_work("ct129")
    await world.both_work("by-global")
    for host in ("nobody", "devnull"):
        assert isinstance(await world.both_fail(host), HostKeyUnknown)


async def test_a_known_key_without_the_port(world: World) -> None:
    server = world.sshd()
    world.know("127.0.0.1", world.host_keys.ed25519)
    world.write_config(f"Host ct129\n  HostName 127.0.0.1\n  Port {server.port}\n")
    await world.both_work("ct129")


async def test_another_key_without_the_port_is_no_change(world: World) -> None:
    server = world.sshd()
    world.know("127.0.0.1", world.host_keys.other)
    world.write_config(f"Host ct129\n  HostName 127.0.0.1\n  Port {server.port}\n")
    assert isinstance(await world.both_fail("ct129"), HostKeyUnknown)


async def test_patterns_and_exceptions_in_known_hosts(world: World) -> None:
    server = world.sshd()
    world.know("*.gpu.example,!bad.gpu.example", world.host_keys.ed25519)
    section = f"  HostName 127.0.0.1\n  Port {server.port}\n"
    world.write_config(
        f"Host good\n{section}  HostKeyAlias good.GPU.example\n"
        f"Host bad\n{section}  HostKeyAlias bad.gpu.example\n"
    )
    await world.both_work("good")
    assert isinstance(await world.both_fail("bad"), HostKeyUnknown)


async def test_nonsense_in_known_hosts_is_passed_over(world: World) -> None:
    world.known_hosts.write_text(
        "# a comment\n\nalone\n@unknown-marker x ssh-ed25519 AAAA\n* ssh-ed25519 !!!\n"
    )
    world.write_config("Host ct129\n" + known_host(world))
    await world.both_work("ct129")


async def test_only_one_of_the_hosts_two_keys_is_known(world: World) -> None:
    keys = [world.host_keys.ed25519, world.host_keys.rsa]
    server = world.sshd(keys=keys)
    world.know_server(server, world.host_keys.rsa)
    world.write_config(f"Host ct129\n  HostName 127.0.0.1\n  Port {server.port}\n")
    await world.both_work("ct129")


async def test_a_changed_key(world: World) -> None:
    server = world.sshd()
    world.know_server(server, world.host_keys.other)
    world.write_config(
        f"Host ct129\n  HostName 127.0.0.1\n  Port {server.port}\n  StrictHostKeyChecking no\n"
    )
    failure = await world.ours("ct129")
    assert isinstance(failure, HostKeyChanged)
    text = str(failure)
    assert "ANOTHER HOST KEY" in text
    assert f"{world.known_hosts} line 1" in text
    assert f"ssh-keygen -R '[127.0.0.1]:{server.port}' -f {world.known_hosts}" in text
    assert text.count("SHA256:") == 2


async def test_a_key_of_another_type_is_a_change_too(world: World) -> None:
    server = world.sshd()
    world.know_server(server, world.host_keys.rsa)
    world.write_config(f"Host ct129\n  HostName 127.0.0.1\n  Port {server.port}\n")
    assert isinstance(await world.both_fail("ct129"), HostKeyChanged)


async def test_an_unknown_key_is_not_accepted_even_if_the_config_would(world: World) -> None:
    server = world.sshd()
    world.write_config(
        f"Host ct129\n  HostName 127.0.0.1\n  Port {server.port}\n  StrictHostKeyChecking no\n"
    )
    failure = await world.ours("ct129")
    assert isinstance(failure, HostKeyUnknown)
    assert "is not followed here" in str(failure)
    assert f"`ssh -F {world.config} ct129`" in str(failure)
    assert "SHA256:" in str(failure)
    assert world.known_hosts.read_bytes() == b""


async def test_a_revoked_key(world: World) -> None:
    section = known_host(world)
    world.know("*", world.host_keys.ed25519, marker="@revoked")
    world.write_config(f"Host ct129\n{section}")
    failure = await world.both_fail("ct129")
    assert isinstance(failure, HostKeyChanged)
    assert "REVOKED" in str(failure)
    assert f"{world.known_hosts} line 2" in str(failure)


async def test_a_revoked_key_inside_a_certificate(world: World) -> None:
    certificate = world.sign_host(world.host_keys.ed25519, "ct129")
    key = certificate.with_name(certificate.name.removesuffix("-cert.pub"))
    server = world.sshd(keys=[key], lines=[f"HostCertificate {certificate}"])
    world.know("ct129", world.host_keys.authority, marker="@cert-authority")
    world.know("ct129", world.host_keys.ed25519, marker="@revoked")
    world.write_config(f"Host ct129\n  HostName 127.0.0.1\n  HostKeyAlias ct129\n  Port {server.port}\n")
    failure = await world.both_fail("ct129")
    assert isinstance(failure, HostKeyChanged)
    assert "REVOKED" in str(failure)


@pytest.mark.parametrize("form", ["text", "krl", "absent"])
async def test_revoked_host_keys_in_a_file(world: World, form: str) -> None:
    section = known_host(world)
    revoked = world.folder / "revoked"
    public = world.host_keys.ed25519.with_name("host_ed25519.pub")
    other = world.host_keys.other.with_name("host_other.pub")
    if form == "text":
        revoked.write_bytes(public.read_bytes())
    elif form == "krl":
        ssh_keygen("-q", "-k", "-f", str(revoked), str(public))
    world.write_config(f"Host ct129\n{section}  RevokedHostKeys {revoked}\n")
    assert isinstance(await world.both_fail("ct129"), HostKeyChanged)
    if form == "text":
        revoked.write_bytes(other.read_bytes())
    else:
        ssh_keygen("-q", "-k", "-f", str(revoked), str(other))
    await world.both_work("ct129")


async def test_connect_timeout_with_a_unit(world: World) -> None:
    section = known_host(world)
    world.write_config(f"Host ct129\n{section}  ConnectTimeout 1m\n  ServerAliveInterval 30s\n")
    await world.both_work("ct129")


async def test_include_and_match(world: World) -> None:
    section = known_host(world)
    included = world.folder / "included"
    included.write_text(f'Match host *29 exec "test %n = ct129"\n{section}\nHost never\n  Port 1\n')
    world.write_config(f"Include {included}\nHost ct129\n  Compression yes\n")
    await world.both_work("ct129")


async def test_the_global_section_after_an_include(world: World) -> None:
    section = known_host(world)
    included = world.folder / "included"
    included.write_text("Host somebody-else\n  Port 1\n")
    world.write_config(f"Include {included}\n{section}")
    await world.both_work("ct129")


async def test_ipv6(world: World) -> None:
    try:
        server = world.sshd(address="::1")
    except (OSError, AssertionError):
        pytest.skip("no IPv6 on the loopback here")
    world.know_server(server, host="::1")
    section = f"  HostName ::1\n  Port {server.port}\n"
    world.write_config(f"Host ct129\n{section}Host four\n{section}  AddressFamily inet\n")
    await world.both_work("ct129")
    assert isinstance(await world.both_fail("four"), Unreachable)


async def test_a_bind_address(world: World) -> None:
    section = known_host(world)
    world.write_config(
        f"Host ct129\n{section}  BindAddress 127.0.0.9\nHost bad\n{section}  BindAddress 198.18.9.9\n"
    )
    await world.both_work("ct129")
    assert any("from 127.0.0.9" in line for line in world.servers[0].log)
    assert isinstance(await world.both_fail("bad"), Unreachable)


async def test_chosen_algorithms(world: World) -> None:
    section = known_host(
        world, lines=("Ciphers aes256-ctr", "MACs hmac-sha2-512", "KexAlgorithms ecdh-sha2-nistp256")
    )
    world.write_config(
        f"Host good\n{section}  Ciphers aes256-ctr\n  MACs hmac-sha2-512\n"
        f"  KexAlgorithms ecdh-sha2-nistp256\n"
        f"Host any\n{section}\n"
        f"Host bad\n{section}  Ciphers aes128-gcm@openssh.com\n"
        f"Host ours-lacks-it\n{section}  KexAlgorithms sntrup761x25519-sha512@openssh.com\n"
    )
    await world.both_work("good")
    await world.both_work("any")
    failure = await world.both_fail("bad")
    assert isinstance(failure, Refused)
    assert "aes256-ctr" in str(failure)
    failure = await world.both_fail("ours-lacks-it")
    assert isinstance(failure, Refused)
    assert "sntrup761x25519-sha512@openssh.com" in str(failure)


async def test_ways_to_log_in_that_ask_somebody(world: World) -> None:
    section = known_host(world)
    world.write_config(
        f"Host password\n{section}  PreferredAuthentications password,keyboard-interactive\n"
        f"Host no-keys\n{section}  PubkeyAuthentication no\n"
        f"Host both\n{section}  PreferredAuthentications password,publickey\n"
    )
    for host in ("password", "no-keys"):
        assert isinstance(await world.both_fail(host), Refused)
    await world.both_work("both")


async def test_kerberos_that_is_not_there_is_no_obstacle(world: World) -> None:
    section = known_host(world)
    gssapi = "  GSSAPIAuthentication yes\n"
    world.write_config(f"Host ct129\n{section}{gssapi}Host bad\n{section}{gssapi}  IdentitiesOnly yes\n")
    await world.both_work("ct129")
    world.authorized.write_text("")
    assert isinstance(await world.both_fail("bad"), Refused)


async def test_key_types_that_the_config_does_not_accept(world: World) -> None:
    section = known_host(world)
    world.write_config(
        f"Host ct129\n{section}  PubkeyAcceptedAlgorithms rsa-sha2-512\n"
        f"Host any\n{section}  PubkeyAcceptedAlgorithms ssh-ed25519\n"
    )
    assert isinstance(await world.both_fail("ct129"), Refused)
    await world.both_work("any")


async def test_another_key_for_the_address_of_a_known_name(world: World) -> None:
    server = world.sshd()
    world.know(f"[localhost]:{server.port}", world.host_keys.ed25519)
    world.know(f"[127.0.0.1]:{server.port}", world.host_keys.other)
    section = f"  HostName localhost\n  AddressFamily inet\n  Port {server.port}\n"
    world.write_config(f"Host ct129\n{section}Host checked\n{section}  CheckHostIP yes\n")
    await world.both_work("ct129")
    # ssh never checks the address of a host on the loopback.
    await world.both_work("checked")


async def test_a_mistake_in_the_config_is_quoted(world: World) -> None:
    world.config.write_text("Host ct129\n  Prot 22\n")
    failure = await world.both_fail("ct129")
    assert isinstance(failure, Unreachable)
    assert "line 2" in str(failure)
    assert "prot" in str(failure)
