"""The copy process's loop: a request, its work, its answer; one after the other.

A request that fails is answered with the reason and the process stays. It ends with its console, or when that is
silent, and then leaves behind what `target` promises: a whole package, and nothing that was only begun.
"""

from __future__ import annotations

import os
import signal
import sys

from ..slot import describe
from .pipe import Gone, Pipe
from .place import Fault
from .target_requests import TargetRequests

__all__ = ["serve"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .looking import Seen

PROTOCOL = 1
"""As model.PROTOCOL."""


class Server:
    """What the process knows between two requests."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.seen: Seen | None = None
        """The last look."""
        self.target = TargetRequests(pipe)

    def handle(self, message: dict[str, Any]) -> object:
        """Do one request; its value, ready for JSON. Whatever it raises is its answer."""
        name = str(message["do"])
        request = REQUESTS.get(name)
        if request is None:
            raise Fault(f"The copy process knows no request {name!r}.")
        return request(self, message)

    def close(self) -> None:
        """Leave the host tidy; called once, at the end."""
        self.target.close()


def serve(reading: int, writing: int, heartbeat: float) -> int:
    """Serve the console over two file descriptors until it is gone, or silent for `heartbeat` seconds; the exit
    code."""
    pipe = Pipe(reading, writing, heartbeat)
    pipe.listen_for_signals()
    server = Server(pipe)
    try:
        version = "{}.{}.{}".format(*sys.version_info)
        pipe.say({"type": "hello", "protocol": PROTOCOL, "python": version, "pid": os.getpid()})
        while True:
            message = pipe.request()
            try:
                ok = server.handle(message)
            except Exception as error:  # noqa: BLE001 - whatever fails in a request is its answer
                pipe.answer(error=_words(error))
            else:
                pipe.answer(ok)
    except Gone:
        return 0
    finally:
        server.close()
        signal.set_wakeup_fd(-1)


def _words(error: Exception) -> str:
    """Why a request failed, for the operator; with the place of it when nobody thought of that."""
    if isinstance(error, Fault):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        from ..venvs.look import shown

        where = f": {shown(os.fsdecode(error.filename))}" if error.filename is not None else ""
        return f"{error.strerror}{where}"
    return describe(error)


def _look(server: Server, message: dict[str, Any]) -> object:
    from .looking import look

    server.seen = look(str(message["venv"]), str(message["package"]), server.pipe, server.seen)
    if message.get("entries"):
        server.pipe.part(server.seen.listing.entries)
    return server.seen.look


def _read(server: Server, message: dict[str, Any]) -> object:
    from .sending import read

    return read(_seen(server, message), str(message["path"]), int(message["limit"]), server.pipe)


def _send(server: Server, message: dict[str, Any]) -> object:
    from .sending import send

    if server.seen is None:
        raise Fault("nothing was looked at that could be sent")
    return send(server.seen.listing, message["files"], bool(message.get("compress")), server.pipe)


def _seen(server: Server, message: dict[str, Any]) -> Seen:
    from .looking import look

    venv, package = str(message["venv"]), str(message["package"])
    if server.seen is None or (server.seen.venv, server.seen.package) != (venv, package):
        server.seen = look(venv, package, server.pipe, server.seen)
    return server.seen


REQUESTS: dict[str, Callable[[Server, dict[str, Any]], object]] = {
    "look": _look,
    "read": _read,
    "send": _send,
    "claim": lambda server, message: server.target.claim(message, server.seen),
    "expect": lambda server, message: server.target.expect(message),
    "want": lambda server, message: server.target.want(),
    "fill": lambda server, message: server.target.fill(message),
    "check": lambda server, message: server.target.check(message),
    "swap": lambda server, message: server.target.swap(),
    "find_spec": lambda server, message: server.target.find_spec(message),
    "settle": lambda server, message: server.target.settle(message),
    "restore": lambda server, message: server.target.restore(message),
    "release": lambda server, message: server.target.release(),
}
"""By `do`. `ping` and `pace` are answered by the pipe, at any time."""
