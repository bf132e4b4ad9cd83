"""The screen of an environment's backups, from which one is put back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dflash_console.copies import Backup, Consent, Look, Side, TargetPlan
from dflash_console.ui.copy_screen import consent_to_all
from dflash_console.ui.drawing.backups import draw_backups
from dflash_console.ui.drawing.copy_question import draw_rollback_question
from dflash_console.ui.drawing.line import Line, Row, safe
from dflash_console.ui.drawing.page import long_pair
from dflash_console.ui.opened import Opens, Shown
from dflash_console.ui.page_screen import PageScreen
from dflash_console.ui.question import Asked, QuestionScreen
from dflash_console.ui.verifying import Target

__all__ = ["BackupsScreen"]


class BackupsScreen(PageScreen):
    """All backups; Enter asks whether the one under the cursor is to be put back."""

    def __init__(self, side: Side) -> None:
        super().__init__()
        self._side = side
        self._plan: TargetPlan | None = None
        self._at = 0.0
        self._problem = ""

    @property
    def targets(self) -> Sequence[Target]:
        """The environment."""
        return [Target(self._side.host, self._side.venv)]

    def on_mount(self) -> None:
        """Asks the host, and does not wait for it."""
        self.run_worker(self._ask(), exit_on_error=False)

    async def _ask(self) -> None:
        desk = self.owner.copying.desk
        assert desk is not None
        try:
            self._plan = await desk.plan_roll_back(self._side)
        except Exception as error:  # noqa: BLE001  the top of the worker: shown on the page
            self._problem = f"a fault of the console itself: {type(error).__name__}: {error}"
        self._at = self.owner.now().wall
        self.owner.paint()

    # ---- the page

    def page_title(self, width: int) -> Line:
        """Of what."""
        row = Row(width).add(" backups of ", "title_on").add(str(self._side), "strong")
        if self._plan is None and not self._problem:
            row.right(("◌ looking", "note"), (" ", "note"))
        return row.line()

    def page_lines(self, width: int) -> Sequence[Shown]:
        """What is in place, and the backups."""
        lines: list[Shown] = []
        if why := self._away():
            lines += [Shown(line) for line in long_pair("✗", why, width, "bad", 0, 2, "bad", 3)]
        if self._problem:
            return [*lines, *(Shown(line) for line in long_pair("✗", self._problem, width, "bad", 0, 2))]
        if self._plan is None:
            words = f"  ◌ looking at the backups on {self._side.host}"
            return [*lines, Shown(()), Shown(Row(width).add(words, "note").line())]
        desk = self.owner.copying.desk
        package = desk.package if desk is not None else ""
        wall = self.owner.now().wall
        return [*lines, *draw_backups(self._plan, width, wall, package, self._refused(self._plan))]

    def page_keys(self) -> Sequence[tuple[str, str]] | None:
        """What Enter does depends on the line."""
        is_backup = isinstance(self.rows.chosen.what, Backup) if self.rows.chosen is not None else False
        enter = ("enter", "put it back…" if is_backup else "evidence")
        return (("esc", "back"), enter, ("↑↓", "move"), ("?", "help"), ("q", "quit"))

    def _away(self) -> str:
        return self.owner.copying.away().get(self._side.host, "")

    def _refused(self, plan: TargetPlan) -> str:
        desk = self.owner.copying.desk
        return desk.refusal(plan, consent_to_all(self._side.host)) if desk is not None else ""

    # ---- putting one back

    def open(self, opens: Opens) -> None:
        """The question, or the evidence of a check."""
        plan = self._plan
        if not isinstance(opens.what, Backup) or plan is None:
            super().open(opens)
        elif self.owner.is_read_only:
            self._say("read-only: nothing is put back")
        elif why := self._refused(plan):
            self._say(f"nothing can be put back: {why}")
        else:
            ask = QuestionScreen(self._question(plan, opens.what))
            self.app.push_screen(ask, partial(self._answered, opens.what, plan.look))

    def _question(self, plan: TargetPlan, backup: Backup) -> Asked:
        copying = self.owner.copying
        package = copying.desk.package if copying.desk is not None else ""
        is_production = copying.is_production(self._side.host) or any(
            need.code == "production" for need in plan.needs
        )
        return Asked(
            f"roll back {package}",
            lambda width: draw_rollback_question(
                plan, backup, width, self.owner.now().wall, self._at, package
            ),
            "Put it back",
            [(need.code, need.text) for need in plan.needs if need.code != "production"],
            [self._side.host] if is_production else [],
            self._away,
        )

    def _answered(self, backup: Backup, look: Look | None, consent: Consent | None) -> None:
        if consent is None:
            return
        why = self.owner.copying.roll_back(self._side, backup, consent, look)
        if why:
            self._say(f"nothing was done: {why}")

    def _say(self, words: str) -> None:
        self.owner.notify(safe(words), severity="warning", timeout=4, markup=False)
