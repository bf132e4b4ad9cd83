"""One reading of units: `systemctl show` for all names at once, in a child, also when it refuses one."""

from __future__ import annotations

import os

from ..child import OneShot, Outcome
from ..section import missing, shortened
from .files import installed_units
from .text import PROPERTIES, is_glob, parse_show

__all__ = ["UnitReader"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..child import Channel

DEADLINE = 5.0
FOUND_LIMIT = 128
"""Units that are asked for only because a file of theirs matches a glob."""
BOOTED = "/run/systemd/system"
"""Is there when systemd is the machine's PID 1, by sd_booted(3)."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class UnitReader:
    """Reads units of one manager; `runtime` is the user's runtime folder, empty for the system's manager.

    `start`, then `ready` and `tick` until one says True: `blocks`, `refused` and `problem` are the answer.
    """

    def __init__(self, runtime: str, folders: list[str]) -> None:
        self.blocks: list[dict[str, str]] = []
        """What systemd said, as `parse_show` gives it."""
        self.refused: dict[str, str] = {}
        """Names that systemctl does not take, with its words; they are not asked again until `forget`."""
        self.problem: dict[str, str] | None = None
        """A Missing when systemd itself does not answer."""
        self._installed: list[str] = []
        """The units with a file that match a glob, by the last look."""
        self._runtime = runtime
        self._folders = folders
        self._environment = _environment(runtime)
        self._command = ["systemctl", *(["--user"] if runtime else []), "show", "--no-pager", "-p"]
        self._shot = OneShot(DEADLINE)
        self._step = ""
        self._names: list[str] = []
        self._refusal = ""

    @property
    def is_busy(self) -> bool:
        """Whether a reading is under way, or its child can't be ended."""
        return self._shot.is_busy

    @property
    def left_out(self) -> int:
        """How many units with a file were not asked for, because of FOUND_LIMIT."""
        if len(self._installed) <= FOUND_LIMIT:
            return 0
        answered = self._answered(self.blocks)
        return sum(name not in answered and name not in self.refused for name in self._installed)

    def forget(self) -> None:
        """Ask again for the names that were refused."""
        self.refused = {}

    def start(self, names: list[str], now: float, *, find_installed: bool) -> bool:
        """Begin to read `names`, system names and globs; with `find_installed` the globs also stand for units
        that have a file and are not loaded. True when there is nothing to wait for."""
        self._names = names
        globs = [name for name in names if is_glob(name)]
        if not any(
            os.access(folder + "/systemctl", os.X_OK) for folder in self._environment["PATH"].split(":")
        ):
            self._give_up("not_found", "systemctl is not installed")
            return True
        if find_installed and globs:
            folders = self._folders

            def scan(channel: Channel) -> None:
                channel.send(installed_units(folders, globs))

            self._step = "scan"
            self._shot.start(scan, now)
            return False
        return self._ask(now)

    def fds(self) -> list[int]:
        """What to wait on for reading."""
        return self._shot.fds()

    def ready(self, now: float) -> bool:
        """Take what the child says; whether the reading is complete."""
        return self._take(self._shot.ready(now), now)

    def tick(self, now: float) -> bool:
        """Mind the deadline; whether the reading is complete."""
        return self._take(self._shot.tick(now), now)

    def close(self) -> None:
        """End the child, if any."""
        self._shot.close()

    def _ask(self, now: float) -> bool:
        names = [name for name in self._names if name not in self.refused]
        if not names:
            self.blocks, self.problem = [], None
            return True
        self._step = "show"
        self._shot.start([*self._command, ",".join(PROPERTIES), "--", *names], now, self._environment)
        return False

    def _take(self, outcome: Outcome | None, now: float) -> bool:
        if outcome is None:
            return False
        if self._step == "scan":
            self._installed = outcome.values[0] if outcome.values else []
            names = frozenset(self._names)
            others = [name for name in self._installed if name not in names]
            self._names = [*self._names, *others[:FOUND_LIMIT]]
            return self._ask(now)
        if outcome.timed_out:
            self._give_up("hung", f"systemctl: {outcome.error}")
            return True
        if self._step == "probe":
            return self._take_probe(outcome, now)
        blocks = parse_show(outcome.output.decode("utf-8", "replace"))
        refused = self._first_unanswered(blocks) if outcome.error else ""
        if refused and blocks:
            return self._refuse(refused, outcome.error, now)
        if outcome.error and not blocks:
            # A refused name ends systemctl with the same exit status as a systemd that does not answer.
            self._step, self._refusal = "probe", outcome.error
            self._shot.start([*self._command, "Version"], now, self._environment)
            return False
        self.blocks, self.problem = blocks, None
        return True

    def _take_probe(self, outcome: Outcome, now: float) -> bool:
        refused = self._first_unanswered([])
        if refused and not outcome.error:
            return self._refuse(refused, self._refusal, now)
        self._give_up(*self._explain(outcome.error or self._refusal))
        return True

    def _refuse(self, name: str, words: str, now: float) -> bool:
        """Go on without a name: systemctl answers in order, and not beyond the first one that it refuses."""
        self.refused[name] = shortened(" ".join(words.split()), 400)
        return self._ask(now)

    def _first_unanswered(self, blocks: list[dict[str, str]]) -> str:
        answered = self._answered(blocks)
        asked = (name for name in self._names if name not in self.refused and not is_glob(name))
        return next((name for name in asked if name not in answered), "")

    @staticmethod
    def _answered(blocks: list[dict[str, str]]) -> set[str]:
        return {name for block in blocks for name in [block["Id"], *block.get("Names", "").split()]}

    def _give_up(self, reason: str, detail: str) -> None:
        self.blocks, self.problem = [], missing(reason, detail)

    def _explain(self, words: str) -> tuple[str, str]:
        words = shortened(" ".join(words.split()), 400)
        if not os.path.isdir(BOOTED):
            return "not_found", words
        if not self._runtime:
            return "error", words
        if not os.path.isdir(self._runtime):
            return "not_found", f"{words} ({self._runtime} is not there: no login session and no lingering)"
        if not os.path.exists(self._runtime + "/systemd/private") and not os.path.exists(
            self._runtime + "/bus"
        ):
            return "not_found", f"{words} (no user manager runs in {self._runtime})"
        return "error", words


def _environment(runtime: str) -> dict[str, str]:
    """Of a systemctl whose words don't depend on the login: C locale, no pager, no colours, a usable PATH."""
    path = os.environ.get("PATH", "")
    environment = {
        **os.environ,
        "LC_ALL": "C",
        "SYSTEMD_COLORS": "0",
        "PATH": f"{path}:{SYSTEM_PATH}".strip(":"),
    }
    if runtime:
        environment["XDG_RUNTIME_DIR"] = runtime
        environment["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={runtime}/bus"
    return environment
