"""When a package counts as ready."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from dflash_console.verdict import NEEDED, Check, CheckState, PartAnswer, Verdict, in_order


def verdict(*checks: Check, waiting: tuple[str, ...] = (), is_deep: bool = False) -> Verdict:
    return Verdict("ct200", "/root/venv", checks, waiting, is_deep)


def good(*others: Check, **states: str) -> tuple[Check, ...]:
    """Everything that is needed passes, but for the states named."""
    return (*(Check(name, cast("CheckState", states.get(name, "pass"))) for name in NEEDED), *others)


def test_what_is_needed_is_enough() -> None:
    assert verdict(*good()).is_ready


def test_nothing_looked_at_is_not_ready() -> None:
    assert not verdict().is_ready


@pytest.mark.parametrize("name", NEEDED)
def test_each_of_the_needed_checks_is_needed(name: str) -> None:
    assert not verdict(*(check for check in good() if check.name != name)).is_ready
    assert not verdict(*good(**{name: "unknown"})).is_ready
    assert not verdict(*good(**{name: "fail"})).is_ready
    assert verdict(*good(**{name: "warn"})).is_ready


def test_a_failure_of_any_other_check_is_not_ready_and_what_is_only_unknown_is() -> None:
    assert not verdict(*good(Check("service sglang.service", "fail"))).is_ready
    assert verdict(*good(Check("record", "unknown"))).is_ready


def test_it_is_not_ready_while_a_part_has_not_answered() -> None:
    assert not verdict(*good(), waiting=("find_spec",)).is_ready


def test_a_deep_verdict_needs_an_import_of_every_module() -> None:
    imported = (Check("import a", "pass"), Check("import b", "pass"))
    assert not verdict(*good(), is_deep=True).is_ready
    assert verdict(*good(*imported), is_deep=True).is_ready
    assert not verdict(*good(*imported, Check("import c", "unknown")), is_deep=True).is_ready


def test_the_reasons_are_the_failures_then_what_is_needed_and_not_known() -> None:
    checks = good(Check("record", "unknown"), Check("nested", "fail"), find_spec="unknown", python="warn")
    assert [check.name for check in verdict(*checks).reasons] == ["nested", "find_spec"]
    assert [check.name for check in verdict(*checks).warnings] == ["python"]


def test_checks_are_shown_in_one_order_and_unknown_kinds_last() -> None:
    names = ("later", "import b", "service x", "record", "modules", "import a", "python")
    shown = [check.name for check in in_order(tuple(Check(name, "pass") for name in names))]
    assert shown == ["python", "modules", "record", "service x", "import b", "import a", "later"]


def test_an_answer_of_the_agent_is_refused_when_it_is_no_answer() -> None:
    whole = b'{"checks":[{"name":"record","state":"pass","detail":"x","evidence":["a"]}],"facts":{"files":3}}'
    assert msgspec.json.decode(whole, type=PartAnswer).checks == (Check("record", "pass", "x", ("a",)),)
    for broken in (b'{"checks":[{"name":"record","state":"fine"}]}', b'{"checks":1}', b"[]", b"null"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(broken, type=PartAnswer)
