"""The screen of a copy: its plan while that is made and read, then how far it is on each host, then how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, get_args

from dflash_console.copies import Consent, CopyPlan, NeedCode, Side, TargetPlan
from dflash_console.ui.actions import Place, bindings
from dflash_console.ui.choice import Answer, PickScreen
from dflash_console.ui.drawing.copy_plan import draw_making, draw_plan
from dflash_console.ui.drawing.copy_question import draw_copy_question, draw_leaving
from dflash_console.ui.drawing.copying import draw_runs
from dflash_console.ui.drawing.line import Line, Row, safe
from dflash_console.ui.opened import Opens, Shown
from dflash_console.ui.page_screen import PageScreen
from dflash_console.ui.question import Asked, QuestionScreen
from dflash_console.ui.verifying import Target

if TYPE_CHECKING:
    from textual.binding import BindingType

    from dflash_console.ui.desk import Desk

__all__ = ["CopyScreen", "consent_to_all"]

_ALL: frozenset[NeedCode] = frozenset(get_args(NeedCode))


def consent_to_all(*hosts: str) -> Consent:
    """Every yes that there is: what is refused in spite of it can't be done."""
    return Consent(yes=True, allowed=_ALL, typed=frozenset(hosts))


class CopyScreen(PageScreen):
    """A plan, or runs."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("copy")]

    def __init__(self, *, is_plan: bool) -> None:
        super().__init__()
        self._is_plan = is_plan

    @property
    def places(self) -> tuple[Place, ...]:
        """A page's keys and its own."""
        return ("page", "copy")

    @property
    def desk(self) -> Desk:
        """The operations; there is no such screen without."""
        desk = self.owner.copying.desk
        assert desk is not None
        return desk

    @property
    def targets(self) -> Sequence[Target]:
        """The environment that the cursor is on, else the first that is copied to."""
        sides = self.owner.copying.targets
        opens = self.rows.chosen
        there = [side for side in sides if opens is not None and str(side) == opens.of] or list(sides[:1])
        return [Target(side.host, side.venv) for side in there]

    def show(self, *, is_plan: bool) -> None:
        """Shows the plan, or the runs, from the start."""
        self._is_plan = is_plan
        self.rows.start()
        self.owner.paint()

    # ---- what is on the page

    def page_title(self, width: int) -> Line:
        """What is done or would be done, and where it stands."""
        copying = self.owner.copying
        row = Row(width).add(" ")
        if not self._is_plan:
            goings = copying.latest()
            words = goings[0].words if goings else "copy"
            over = sum(going.run.is_over for going in goings)
            row.add(words, "title_on")
            row.add(f"  {over} of {len(goings)} ended" if len(goings) > 1 else "", "dim")
            return row.line()
        row.add(f"copy {self.desk.package}", "title_on").add("  from ", "dim")
        row.add(copying.source.host if copying.source is not None else "?", "strong").add("  to ", "dim")
        hosts = [side.host for side in copying.targets]
        row.add(", ".join(hosts) if len(hosts) <= 3 else f"{len(hosts)} hosts", "strong")
        word = "◌ planning" if self.desk.copies.is_planning else "plan: nothing is changed yet"
        row.right((word, "note" if self.desk.copies.is_planning else "dim"), (" ", "dim"))
        return row.line()

    def page_lines(self, width: int) -> Sequence[Shown]:
        """The plan, or the runs."""
        copying, copies = self.owner.copying, self.desk.copies
        wall = self.owner.now().wall
        if not self._is_plan:
            goings = copying.latest()
            return draw_runs(goings, width, wall) if goings else _nothing(width, "nothing was copied")
        plan = copies.plan_now
        if plan is not None:
            return draw_plan(
                plan,
                width,
                wall,
                away=copying.away(),
                refused=self._refused,
                package=self.desk.package,
                left_out=copying.left_out,
            )
        if copies.is_planning and copying.source is not None:
            return draw_making(copying.source, copying.targets, copies.steps, width, copying.away())
        return _nothing(width, copies.steps or "the plan was not made; ^r makes it anew")

    def _refused(self, target: TargetPlan) -> str:
        return self.desk.refusal(target, consent_to_all(target.side.host))

    def page_keys(self) -> Sequence[tuple[str, str]] | None:
        """The keys that mean something now, the next step first."""
        back, enter, move = ("esc", "back"), ("enter", "evidence"), ("↑↓", "move")
        rest = (("d", "compare"), ("?", "help"), ("q", "quit"))
        copies = self.desk.copies
        if self._is_plan:
            if copies.plan_now is None:
                return (("esc", "leave"), ("^r", "plan anew"), *rest[1:])
            return (("c", "copy…"), ("esc", "leave"), enter, move, ("^r", "plan anew"), *rest)
        if copies.is_running:
            return (("esc", "cancel or leave it running"), move, enter, *rest[1:])
        return (back, ("c", "plan anew"), move, enter, ("b", "roll back"), *rest)

    def open(self, opens: Opens) -> None:
        """The evidence of a check, or how the files differ."""
        source = self.owner.copying.source
        if isinstance(opens.what, Side) and source is not None:
            self.owner.copying.show_comparison(source, opens.what, opens.name)
        else:
            super().open(opens)

    # ---- actions

    def action_ask(self) -> None:
        """The question before the copy; once it has ended, a new plan."""
        copying, plan = self.owner.copying, self.desk.copies.plan_now
        if self.owner.is_read_only:
            self._say("read-only: nothing is copied")
        elif not self._is_plan:
            if self.desk.copies.is_running:
                self._say("it is under way; esc cancels it or leaves it running")
            elif copying.source is not None:
                copying.seen()
                copying.plan(copying.source, copying.targets)
            else:
                self._say("esc, then c plans a copy")
        elif plan is None:
            self._say("the plan is still being made" if self.desk.copies.is_planning else "there is no plan")
        elif why := self._hopeless(plan):
            self._say(f"it can't be copied: {why}")
        else:
            self.app.push_screen(QuestionScreen(self._question(plan)), partial(self._answered, plan))

    def _hopeless(self, plan: CopyPlan) -> str:
        """Why it can be copied to no target at all."""
        if plan.problem:
            return plan.problem
        reasons = [self._refused(target) for target in plan.targets]
        return "" if "" in reasons else next(iter(reasons), "there is no target")

    def _question(self, plan: CopyPlan) -> Asked:
        going = [target for target in plan.targets if not self._refused(target)]
        is_one = len(going) == 1
        ticks = [
            (need.code, need.text if is_one else f"{target.side.host}: {need.text}")
            for target in going
            for need in target.needs
            if need.code != "production"
        ]
        hosts = [
            target.side.host
            for target in going
            if any(need.code == "production" for need in target.needs)
            or self.owner.copying.is_production(target.side.host)
        ]
        return Asked(
            f"copy {self.desk.package} from {plan.source.host}",
            lambda width: draw_copy_question(
                plan, going, width, self.owner.now().wall, self.desk.package, self._refused
            ),
            "Copy",
            ticks,
            list(dict.fromkeys(hosts)),
            partial(self._why_not, plan, going),
        )

    def _why_not(self, plan: CopyPlan, going: Sequence[TargetPlan]) -> str:
        if self.desk.copies.plan_now is not plan:
            return "the plan has changed: leave this and look at it again"
        away = self.owner.copying.away()
        if plan.source.host in away:
            return away[plan.source.host]
        gone = [away[target.side.host] for target in going if target.side.host in away]
        return "; ".join(gone[:2])

    def _answered(self, plan: CopyPlan, consent: Consent | None) -> None:
        if consent is None:
            return
        if self.desk.copies.plan_now is not plan:
            self._say("the plan has changed: nothing was done")
        elif why := self.owner.copying.start(consent):
            self._say(f"nothing was done: {why}")
        else:
            self.show(is_plan=False)

    def action_again(self) -> None:
        """Makes the plan anew."""
        copying = self.owner.copying
        if self._is_plan and copying.source is not None:
            copying.plan(copying.source, copying.targets)
        else:
            self._say("there is no plan to be made anew here")

    def action_back(self) -> None:
        """Leaves a plan; of what runs it asks whether it is to go on."""
        copies = self.desk.copies
        if self._is_plan:
            if copies.is_planning:
                copies.cancel()
            self.owner.close_front()
        elif copies.is_running:
            answers = [Answer("leave", "Leave it running"), Answer("cancel", "Cancel it"), Answer("", "Stay")]
            goings = self.owner.copying.latest
            ask = PickScreen("leave it running?", lambda width: draw_leaving(goings(), width), answers)
            self.app.push_screen(ask, self._left)
        else:
            self.owner.copying.seen()
            self.owner.close_front()

    def _left(self, answer: str | None) -> None:
        if answer == "cancel":
            self.desk.copies.cancel()
            self.owner.paint()
        elif answer == "leave" and self.app.screen is self:
            self.owner.close_front()

    def _say(self, words: str) -> None:
        self.owner.notify(safe(words), severity="warning", timeout=4, markup=False)


def _nothing(width: int, words: str) -> list[Shown]:
    return [Shown(()), Shown(Row(width).add(f"   {words}", "warn").line())]
