"""A fleet whose agents answer what the test has them answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import msgspec

from dflash_console.config import HostConfig
from dflash_console.errors import LinkError
from dflash_console.fleet import HostView
from dflash_console.model import LinkStatus, Snapshot
from dflash_console.verdict import NEEDED
from tests import pictures

VENV = "/root/ml-env"
PASSING: dict[str, list[str]] = {
    "files": ["python", "origin", "modules"],
    "find_spec": ["find_spec"],
    "import": ["import a"],
    "service": [],
    "pins": [],
    "abi": [],
    "cuda": [],
}


def answer(part: str, state: str = "pass", **facts: object) -> bytes:
    """A part's answer with its checks all in one state."""
    checks = [{"name": name, "state": state, "detail": "as told"} for name in PASSING.get(part, NEEDED)]
    return json.dumps({"checks": checks, "facts": facts}).encode()


class StubFleet:
    """`answers[part]` is what an agent answers, an error what it fails with; `held` parts wait for `release`."""

    def __init__(self, *names: str, picture: Snapshot | None = None) -> None:
        self.pictures = {name: picture or pictures.snapshot() for name in names or ("ct200",)}
        self.links = dict.fromkeys(self.pictures, LinkStatus("up"))
        self.roles: dict[str, HostConfig] = {}
        self.answers: dict[str, bytes | LinkError] = {part: answer(part) for part in PASSING}
        self.answers["fingerprint"] = b'{"fingerprint":"one"}'
        self.answers["files"] = answer("files", fingerprint="one")
        self.answers["ship"] = b"null"
        self.asked: list[tuple[str, str, dict[str, object]]] = []
        self.faults: dict[str, Exception] = {}
        self.silent: set[str] = set()
        """Hosts that never answer."""
        self.held: set[str] = set()
        self.release = asyncio.Event()
        self.at_once = self.most_at_once = 0

    def views(self) -> Sequence[HostView]:
        return [
            HostView(
                config=self.roles.get(name, HostConfig(name)),
                link=self.links[name],
                snapshot=picture,
                unread=frozenset(),
            )
            for name, picture in self.pictures.items()
        ]

    async def request(self, name: str, do: str, wait: float, /, **fields: object) -> msgspec.Raw:
        what = str(fields.get("part", do))
        self.asked.append((name, what, fields))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if what in self.faults:
                raise self.faults[what]
            if what in self.held or name in self.silent:
                await self.release.wait()
            else:
                await asyncio.sleep(0.001)
        finally:
            self.at_once -= 1
        given = self.answers[what]
        if isinstance(given, LinkError):
            raise given
        return msgspec.Raw(given)
