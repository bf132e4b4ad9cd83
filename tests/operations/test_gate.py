"""The one gate: nothing is changed without all that it asks for."""

from __future__ import annotations

import pytest

from dflash_console.copies import Consent, Need, NeedCode
from dflash_console.operations.gate import refusal
from dflash_console.verdict import Check
from tests.operations.copies import target_plan

YES = Consent(yes=True)
CODES: tuple[NeedCode, ...] = ("onto_source", "running", "unverified", "warned", "layer", "python")


def test_a_plan_without_needs_goes_with_a_yes() -> None:
    assert refusal(target_plan(), YES, read_only=False) == ""


def test_read_only_comes_before_all_else() -> None:
    everything = Consent(yes=True, allowed=frozenset(CODES), typed=frozenset({"ct200"}))
    assert "read-only" in refusal(target_plan(), everything, read_only=True)


def test_without_a_yes_nothing_goes() -> None:
    everything = Consent(allowed=frozenset(CODES), typed=frozenset({"ct200"}))
    assert refusal(target_plan(), everything, read_only=False) == "not confirmed"


def test_a_problem_is_the_reason() -> None:
    assert (
        refusal(target_plan(look=None, problem="ct200: no route"), YES, read_only=False) == "ct200: no route"
    )
    assert refusal(target_plan(look=None), YES, read_only=False)


def test_a_failed_check_can_not_be_allowed() -> None:
    everything = Consent(yes=True, allowed=frozenset(CODES), typed=frozenset({"ct200"}))
    plan = target_plan(checks=(Check("place", "pass"), Check("space", "fail", "make room")))
    assert refusal(plan, everything, read_only=False) == "space: make room"


@pytest.mark.parametrize("code", CODES)
def test_each_need_is_covered_by_its_own_yes_only(code: NeedCode) -> None:
    plan = target_plan(needs=(Need(code, "why"),))
    others = frozenset(CODES) - {code}
    assert code in refusal(plan, Consent(True, others, frozenset({"ct200"})), read_only=False)
    assert refusal(plan, Consent(True, frozenset({code})), read_only=False) == ""


def test_a_production_host_is_covered_by_its_typed_name_only() -> None:
    plan = target_plan(needs=(Need("production", "type its name"),))
    allowed = Consent(True, frozenset({*CODES, "production"}), frozenset({"ct129"}))
    assert "was not typed" in refusal(plan, allowed, read_only=False)
    assert refusal(plan, Consent(True, typed=frozenset({"ct200"})), read_only=False) == ""
