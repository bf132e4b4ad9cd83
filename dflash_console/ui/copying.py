"""Copies, rollbacks and comparisons as their keys ask for them: from what, to what, or why not; and what runs now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from dflash_console.copies import Backup, Consent, Look, Side, TargetRun
from dflash_console.ui.drawing.copy_question import draw_leaving
from dflash_console.ui.drawing.line import Line, Row, safe, wrap
from dflash_console.ui.drawing.words import LINK_WORDS, span
from dflash_console.ui.going import Going
from dflash_console.ui.verifying import Target

if TYPE_CHECKING:
    from textual.notifications import SeverityLevel
    from textual.timer import Timer

    from dflash_console.ui.app import ConsoleApp
    from dflash_console.ui.desk import Desk

__all__ = ["Copying"]

_TICK = 0.25
_SHOWN_FOR = 60.0
"""Seconds for which a host's panel tells of a copy that went well."""
_NO_SOURCE = 'no host is the source of copies: write role = "source" below its [hosts.NAME] in the config'
_READ_ONLY = (
    "read-only: this console changes nothing on a host (--read-only, or read_only = true in the config)"
)


class Copying:
    """What the app knows of copies: asks for plans, shows them, and paints often while something is under way."""

    def __init__(self, app: ConsoleApp, desk: Desk | None) -> None:
        self._app = app
        self.desk = desk
        self._words: dict[Side, tuple[str, str]] = {}
        self._seen: set[tuple[Side, float]] = set()
        self._told: set[tuple[Side, float]] = set()
        self._timer: Timer | None = None
        self.source: Side | None = None
        self.targets: tuple[Side, ...] = ()
        """Of the plan that is shown or made, or of what was started last."""
        self.left_out: tuple[str, ...] = ()
        """Hosts that were asked for and can't be planned for, with the reason."""
        self.fault = ""
        """Why nothing is copied any more; empty while all is well."""

    # ---- what runs

    def goings(self) -> tuple[Going, ...]:
        """Every run that is under way or was not looked at since it ended."""
        if self.desk is None:
            return ()
        return tuple(
            self._going(run) for run in self.desk.copies.runs if (run.side, run.began) not in self._seen
        )

    def latest(self) -> tuple[Going, ...]:
        """What was started last, and whatever else is under way."""
        if self.desk is None:
            return ()
        runs = self.desk.copies.runs
        return tuple(self._going(run) for run in runs if not run.is_over or run.side in self.targets)

    def _going(self, run: TargetRun) -> Going:
        doing, what = self._words.get(run.side, ("copying", "copy"))
        if not run.is_over and self.desk is not None and not self.desk.copies.is_running:
            # Nothing carries it on any more: it must not look as if it went on for ever.
            run = structs.replace(run, state="failed", detail=run.detail or "it ended without saying how")
        return Going(run, doing, what)

    def of(self, host: str) -> tuple[Going, ...]:
        """What a host's panel tells: what is under way there, and what has just ended."""
        wall = self._app.now().wall
        return tuple(
            going
            for going in self.goings()
            if going.run.side.host == host
            and (going.run.state != "done" or wall - going.run.began - going.run.seconds < _SHOWN_FOR)
        )

    def seen(self) -> None:
        """What has ended was looked at."""
        self._seen |= {(going.run.side, going.run.began) for going in self.goings() if going.run.is_over}

    def tell(self) -> None:
        """Shows what the operator is to know unasked, such as an interrupted copy that was settled."""
        if self.desk is None:
            return
        if words := self.desk.copies.take_notice():
            self._app.notify(safe(words), title="copy", timeout=8, markup=False)
        for going in self.goings():
            key = (going.run.side, going.run.began)
            if going.run.is_over and key not in self._told:
                self._told.add(key)
                self._tell_end(going)

    def _tell_end(self, going: Going) -> None:
        """That something has ended, unless one looks at it anyway."""
        from dflash_console.ui.copy_screen import CopyScreen

        if any(isinstance(screen, CopyScreen) for screen in self._app.screen_stack):
            return
        run = going.run
        words = f"{run.side.host}: {going.what}: {run.state}; c shows it"
        severity: SeverityLevel = "information" if run.state == "done" else "warning"
        self._app.notify(safe(words), severity=severity, timeout=8, markup=False)

    def stop(self, error: Exception) -> None:
        """Tells for good that nothing is copied any more."""
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        self.fault = f"copy stopped: {type(error).__name__}: {error}; start the console anew"
        self._app.paint()

    def hurry(self) -> None:
        """Paints often as long as something is under way."""
        if self._timer is None:
            self._timer = self._app.set_interval(_TICK, self._tick)

    def _tick(self) -> None:
        self.tell()
        self._app.tick(is_early=True)
        self._app.paint()
        copies = self.desk.copies if self.desk is not None else None
        is_busy = copies is not None and (copies.is_planning or copies.is_running)
        if self._timer is not None and not is_busy:
            self._timer.stop()
            self._timer = None

    def asks_before_quitting(self) -> bool:
        """Whether something runs that would be cancelled, about which it asks."""
        if self.desk is None or not self.desk.copies.is_running:
            return False
        from dflash_console.ui.choice import Answer, PickScreen

        answers = [Answer("stay", "Stay"), Answer("quit", "Cancel it and quit")]
        ask = PickScreen(
            "a copy is under way", lambda width: draw_leaving(self.goings(), width, is_quitting=True), answers
        )
        self._app.push_screen(ask, lambda answer: self._app.exit() if answer == "quit" else None)
        return True

    # ---- where things are

    def away(self) -> dict[str, str]:
        """Hosts that do not answer now, with what is wrong."""
        scene = self._app.scene
        found = {}
        for host in scene.hosts:
            link = host.view.link
            if link.state != "up":
                heard = host.view.heard
                since = f", last heard {span(scene.moment.mono - heard)} ago" if heard is not None else ""
                found[host.name] = f"{host.name} is {LINK_WORDS[link.state]} now{since}"
        return found

    def is_production(self, host: str) -> bool:
        """Whether a change there asks for its name."""
        there = self._app.scene.host(host)
        return there is not None and there.view.config.production

    def side(self, target: Target) -> Side | str:
        """The end of a copy that a key was pressed on, or why it can't be told."""
        host = self._app.scene.host(target.host)
        if host is None or self.desk is None:
            return f"{target.host} is not in the fleet"
        return self.desk.side_of(host.view, target.venv)

    def _barred(self, *, is_change: bool) -> str:
        if self.desk is None:
            return "nothing can be copied here"
        if self.fault:
            return self.fault
        return _READ_ONLY if is_change and self._app.is_read_only else ""

    def _say(self, words: str) -> None:
        self._app.notify(safe(words), severity="warning", timeout=5, markup=False)

    def _with_source(self, then: Callable[[Side], None], title: str) -> None:
        """Goes on with the source of copies, asked for where there are several."""
        names = [host.name for host in self._app.scene.hosts if host.view.config.role == "source"]
        if not names:
            self._say(_NO_SOURCE)
        elif len(names) == 1:
            self._take_source(then, names[0])
        else:
            from dflash_console.ui.choice import Answer, PickScreen

            answers = [Answer(name, name) for name in names]
            ask = PickScreen(title, partial(_source_words, len(names)), answers)
            self._app.push_screen(ask, lambda name: self._take_source(then, name) if name else None)

    def _take_source(self, then: Callable[[Side], None], name: str) -> None:
        side = self.side(Target(name))
        if isinstance(side, str):
            self._say(f"the source can't be told: {side}")
        else:
            then(side)

    # ---- c

    def copy(self, targets: Sequence[Target]) -> None:
        """Shows what is under way or has ended unseen; else has a plan made for these targets, and shows it."""
        if why := self._barred(is_change=True):
            self._say(why)
        elif self.goings():
            self._show()
        elif not targets:
            self._say("no host to copy to")
        else:
            self._with_source(partial(self._plan_for, targets), "copy from which source?")

    def _plan_for(self, targets: Sequence[Target], source: Side) -> None:
        sides: list[Side] = []
        left_out: list[str] = []
        for target in targets:
            side = self.side(target)
            if isinstance(side, str):
                left_out.append(side)
            elif side == source:
                left_out.append(f"{side.host} is the source itself")
            elif side not in sides:
                sides.append(side)
        if not sides:
            more = f"; and {len(left_out) - 2} more" if len(left_out) > 2 else ""
            words = "; ".join(left_out[:2]) + more
            join = "" if words.endswith("?") else ":"
            self._say(f"{words}{join} select or mark the hosts to copy to")
            return
        self.left_out = tuple(left_out)
        self.plan(source, sides)

    def plan(self, source: Side, targets: Sequence[Side]) -> None:
        """Has a plan made and shows it."""
        assert self.desk is not None
        if why := self.desk.copies.plan(source, targets):
            self._say(why)
            return
        self.source, self.targets = source, tuple(targets)
        self._show(is_plan=True)

    def _show(self, *, is_plan: bool = False) -> None:
        from dflash_console.ui.copy_screen import CopyScreen

        self.hurry()
        if isinstance(self._app.screen, CopyScreen):
            self._app.screen.show(is_plan=is_plan)
        else:
            self._app.push_screen(CopyScreen(is_plan=is_plan))

    def start(self, consent: Consent) -> str:
        """Has the plan carried out; gives back why it can't be."""
        assert self.desk is not None
        source = self.source
        if source is None:
            return "there is no plan"
        why = self.desk.copies.start(consent)
        if not why:
            for side in self.targets:
                self._words[side] = (f"copying from {source.host}", f"copy from {source.host}")
            self.hurry()
        return why

    # ---- b

    def backups(self, target: Target | None) -> None:
        """Shows the backups of an environment."""
        if why := self._barred(is_change=False):
            self._say(why)
        elif self.desk is not None and self.desk.copies.is_running:
            self._show()
        elif target is None:
            self._say("no host to roll back")
        else:
            from dflash_console.ui.backups_screen import BackupsScreen

            side = self.side(target)
            if isinstance(side, str):
                self._say(side)
            else:
                self._app.push_screen(BackupsScreen(side))

    def roll_back(self, side: Side, backup: Backup, consent: Consent, look: Look | None) -> str:
        """Has a backup put back, if all is as in `look`, and shows how far that is; gives back why it can't be."""
        assert self.desk is not None
        why = self.desk.copies.roll_back(side, backup.id, consent, look)
        if not why:
            self.source, self.targets = None, (side,)
            self._app.close_front()
            to = backup.version or "no package"
            self._words[side] = (f"rolling back to {to}", f"rollback to {to}")
            self._show()
        return why

    # ---- d

    def compare(self, targets: Sequence[Target]) -> None:
        """Shows how two marked hosts' packages differ, or the source's from the one that the cursor is on."""
        if why := self._barred(is_change=False):
            self._say(why)
        elif len(targets) > 2:
            self._say(
                f"{len(targets)} hosts are marked; two can be compared, or the selected one with the source"
            )
        elif len(targets) == 2:
            sides = [self.side(target) for target in targets]
            wrong = [side for side in sides if isinstance(side, str)]
            if wrong:
                self._say("; ".join(wrong))
            else:
                left, right = (side for side in sides if isinstance(side, Side))
                self.show_comparison(left, right)
        elif targets:
            self._with_source(partial(self._compare_with, targets[0]), "compare with which source?")
        else:
            self._say("no host to compare")

    def _compare_with(self, target: Target, source: Side) -> None:
        side = self.side(target)
        if isinstance(side, str):
            self._say(side)
        elif side == source:
            self._say(f"{side.host} is the source itself: select another host, or mark two")
        else:
            self.show_comparison(source, side)

    def show_comparison(self, left: Side, right: Side, words: str = "") -> None:
        """Opens the comparison, with only the files whose path has these words."""
        from dflash_console.ui.compare_screen import CompareScreen

        self._app.push_screen(CompareScreen(left, right, words))


def _source_words(count: int, width: int) -> list[Line]:
    words = f"{count} hosts of the config have the role of a source."
    return [Row(width).add(part, "text").line() for part in wrap(words, width)]
