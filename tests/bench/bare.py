"""The peer of the console with many hosts: asyncssh and json alone, nothing kept and nothing shown.

`python -m tests.bench.bare FOLDER COUNT SECONDS REPLAY ADDRESS...` prints the share of a core in percent.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from pathlib import Path
from typing import Any

import asyncssh

from dflash_console.link.bundle import BOOT_COMMAND, bundle

TOKEN = "bare0bare0bare"
AT_ONCE = 8


class Receiver:
    """Connects to played hosts and decodes what they send."""

    def __init__(self, folder: Path, replay: str, count: int) -> None:
        self._folder = folder
        self._replay = replay
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._left = count
        self.all_up = asyncio.Event()

    async def receive(self, address: str) -> None:
        """Receives from one host until cancelled."""
        async with self._gate:
            connection = await asyncssh.connect(
                address,
                username="root",
                config=None,
                client_keys=[str(self._folder / "id_ed25519")],
                known_hosts=str(self._folder / "known_hosts"),
                agent_path=None,
            )
        process: asyncssh.SSHClientProcess[bytes] = await connection.create_process(
            BOOT_COMMAND, encoding=None
        )
        source = bundle(TOKEN)
        process.stdin.write(f"{self._replay}\n{len(source)}\n".encode() + source)
        await process.stdout.readuntil(f"\n{TOKEN}\n".encode())
        watch = json.dumps({"do": "watch", "id": 1}).encode()
        process.stdin.write(struct.pack(">IB", len(watch), 0) + watch)
        while True:
            length, _ = struct.unpack(">IB", await process.stdout.readexactly(5))
            message: dict[str, Any] = json.loads(await process.stdout.readexactly(length))
            if message["type"] == "answer":
                self._left -= 1
            if self._left == 0:
                self.all_up.set()


async def main() -> None:
    folder, count, seconds, replay, *addresses = sys.argv[1:]
    receiver = Receiver(Path(folder), replay, int(count))
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(receiver.receive(addresses[number % len(addresses)]))
            for number in range(int(count))
        ]
        await receiver.all_up.wait()
        await asyncio.sleep(5)
        before = time.process_time()
        await asyncio.sleep(float(seconds))
        print(100 * (time.process_time() - before) / float(seconds))
        for task in running:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main())
