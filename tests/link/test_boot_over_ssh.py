"""A boot over a real sshd whose network is cut: sshd itself waits for hours, and nothing else stays."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from dflash_console.config import HostConfig
from dflash_console.errors import BootHangs
from dflash_console.link import connect
from dflash_console.link.boot import boot
from dflash_console.link.bundle import boot_command
from dflash_console.link.ssh import connection as connection_module
from tests.link.world import World
from tests.shells import marked
from tests.waiting import until

CT129 = HostConfig("ct129")


class Network:
    """A way to a port that can be cut: then no byte passes, and neither end is told."""

    def __init__(self) -> None:
        self.left: int | None = None
        """Bytes that still pass to the host; None for all. At 0 nothing comes back either."""
        self.is_held = True
        """Whether no end has closed its connection."""

    async def carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_upwards: bool
    ) -> None:
        """Passes bytes on until an end."""
        while data := await reader.read(1 << 14):
            if is_upwards and self.left is not None:
                data = data[: self.left]
                self.left -= len(data)
            elif self.left == 0:
                data = b""
            writer.write(data)
        self.is_held = False
        writer.close()


@asynccontextmanager
async def network_to(port: int) -> AsyncIterator[tuple[Network, int]]:
    """A network in front of a port, and the port at its near end."""
    network = Network()
    held: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        held.extend((writer, far_writer))
        with suppress(OSError):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(network.carry(reader, far_writer, is_upwards=True))
                tasks.create_task(network.carry(far_reader, writer, is_upwards=False))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield network, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in held:
            writer.transport.abort()


@pytest.mark.parametrize("passed", [0, 200, 5_000, 60_000], ids="{} bytes".format)
async def test_a_network_that_is_cut_in_a_boot(
    passed: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "BOOT_COMMAND", boot_command(3))
    mark = uuid.uuid4().hex
    server = world.sshd(lines=[f"SetEnv MARK={mark}"])
    async with network_to(server.port) as (network, port):
        world.know(f"[127.0.0.1]:{port}", world.host_keys.ed25519)
        world.write_config(f"Host ct129\n  HostName 127.0.0.1\n  Port {port}\n")
        connection = await connect(CT129, ssh_config=str(world.config), timeout=20)
        try:
            process = await connection.start()
            await until(lambda: marked(mark), 20, "the line runs")
            network.left = passed
            with pytest.raises(BootHangs):
                await boot(process, CT129, 1.0)
            await until(lambda: not marked(mark), 20, "no process of the boot is left")
            assert network.is_held
        finally:
            await connection.close()
