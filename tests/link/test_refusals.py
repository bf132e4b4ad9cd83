"""Hosts that answer and do not let the account do anything: each in its own way, each told apart from a host that is
away. Against a real sshd, with PAM where this machine lets the tests have accounts."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_console.config import HostConfig
from dflash_console.errors import LinkError, Refused, Unreachable
from dflash_console.link import Session, connect
from tests.link.accounts import Accounts, can_have_accounts
from tests.link.world import World

CT129 = HostConfig("ct129")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="it is about root")


async def outcome(
    world: World, *, lines: tuple[str, ...] = (), accounts: Accounts | None = None, user: str = ""
) -> LinkError:
    """Why no session comes about; ssh, too, runs no command there."""
    server = world.sshd(lines=lines, accounts=accounts)
    world.know_server(server)
    world.write_config(
        f"Host ct129\n  HostName 127.0.0.1\n  Port {server.port}\n  User {user or server.user}\n"
    )
    try:
        connection = await connect(CT129, ssh_config=str(world.config), timeout=20)
        try:
            await Session.open(connection, CT129)
        finally:
            await connection.close()
    except LinkError as error:
        return error
    raise AssertionError("the agent runs")


def restrict(world: World, options: str) -> None:
    world.authorized.write_bytes(options.encode() + b" " + world.authorized.read_bytes())


@pytest.fixture
def accounts(world: World) -> Iterator[Accounts]:
    if not can_have_accounts():
        pytest.skip("needs root, mount namespaces and an sshd with PAM")
    # sshd reads a user's keys as that user, who does not get into the folders of the tests.
    with tempfile.TemporaryDirectory() as public:
        Path(public).chmod(0o755)
        world.authorized = Path(shutil.copy(world.authorized, public))
        yield Accounts(Path(public) / "etc")


# ---- before the login is complete


@pytest.mark.parametrize("line", ["AllowUsers somebody-else", "DenyUsers *", "AllowGroups no-such-group"])
async def test_an_account_that_sshd_does_not_let_in(world: World, line: str) -> None:
    error = await outcome(world, lines=(line,))
    assert type(error) is Refused
    assert "do AllowUsers and AllowGroups in its sshd_config let that account in?" in str(error)


@needs_root
async def test_a_root_that_may_not_log_in(world: World) -> None:
    error = await outcome(world, lines=("PermitRootLogin no",))
    assert type(error) is Refused
    assert "it knows the key and refuses root all the same (PermitRootLogin" in str(error)


@needs_root
async def test_a_root_that_may_only_run_forced_commands(world: World) -> None:
    error = await outcome(world, lines=("PermitRootLogin forced-commands-only",))
    assert type(error) is Refused
    assert "accepts the key of root and closes the connection" in str(error)
    assert "PermitRootLogin" in str(error)


@pytest.mark.parametrize("option", ['expiry-time="20200101"', 'from="192.0.2.1"'])
async def test_a_key_whose_use_is_limited(world: World, option: str) -> None:
    restrict(world, option)
    error = await outcome(world)
    assert type(error) is Refused
    assert "does not let" in str(error)


async def test_a_login_that_takes_a_second_factor(world: World) -> None:
    error = await outcome(world, lines=("AuthenticationMethods publickey,publickey",))
    assert type(error) is Refused
    assert "AuthenticationMethods" in str(error)


async def test_an_expired_account(world: World, accounts: Accounts) -> None:
    accounts.add("left", shadow={"end": 1})
    error = await outcome(world, accounts=accounts, user="left")
    assert type(error) is Refused
    assert "accepts the key of left, says 'Your account has expired" in str(error)
    assert "`chage -l left`" in str(error)


async def test_a_host_that_is_closed_for_maintenance(world: World, accounts: Accounts) -> None:
    accounts.add("op")
    accounts.close_for_all_but_root("closed until noon\n")
    error = await outcome(world, accounts=accounts, user="op")
    assert type(error) is Refused
    assert "says 'closed until noon'" in str(error)


async def test_a_shell_that_does_not_exist(world: World, accounts: Accounts) -> None:
    accounts.add("op", shell="/nonexistent/shell")
    assert type(await outcome(world, accounts=accounts, user="op")) is Refused


# ---- after it


async def test_a_host_that_opens_no_session(world: World) -> None:
    error = await outcome(world, lines=("MaxSessions 0",))
    assert type(error) is Refused
    assert "MaxSessions" in str(error)


@pytest.mark.parametrize("shadow", [{"changed": 0}, {"changed": 1, "most": 2}])
async def test_a_password_that_has_to_be_changed_first(
    world: World, accounts: Accounts, shadow: dict[str, int]
) -> None:
    accounts.add("op", shadow=shadow)
    error = await outcome(world, accounts=accounts, user="op")
    assert type(error) is Refused
    assert "Your password has expired. | Password change required but no TTY available." in str(error)


async def test_a_shell_for_nobody(world: World, accounts: Accounts) -> None:
    accounts.add("op", shell="/usr/sbin/nologin")
    error = await outcome(world, accounts=accounts, user="op")
    assert type(error) is Refused
    assert "This account is currently not available" in str(error)


async def test_a_shell_that_ends_without_a_word(world: World, accounts: Accounts) -> None:
    accounts.add("op", shell="/bin/false")
    error = await outcome(world, accounts=accounts, user="op")
    assert type(error) is Refused
    assert "exit 1" in str(error)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ForceCommand true", "exit 0"),
        ("ForceCommand echo only backups here; exit 5", "only backups here"),
        ("ForceCommand internal-sftp", "sftp connections only"),
        pytest.param("ChrootDirectory /nonexistent", "/nonexistent", marks=needs_root),
    ],
)
async def test_a_forced_command_that_ends_at_once(world: World, line: str, words: str) -> None:
    error = await outcome(world, lines=(line,))
    assert type(error) is Refused
    assert words in str(error)


async def test_a_host_that_goes_down_after_a_program_ran_is_away_not_refusing(world: World) -> None:
    server = world.sshd()
    world.know_server(server)
    world.write_config(f"Host ct129\n  HostName 127.0.0.1\n  Port {server.port}\n")
    connection = await connect(CT129, ssh_config=str(world.config), timeout=20)
    await connection.start()
    server.stop()
    with pytest.raises(Unreachable, match="lost"):
        await connection.start()
    await connection.close()
