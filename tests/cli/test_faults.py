"""What one host's picture does to the answer about the others."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from dflash_console import findings
from dflash_console.cli import status
from dflash_console.cli.status_json import status_json
from dflash_console.cli.status_text import Terminal, status_text
from dflash_console.errors import Unreachable
from dflash_console.findings import Picture, findings_of
from dflash_console.fleet import HostView
from dflash_console.fleet.history import Rings
from dflash_console.fleet.merge import absorb, snapshot_of
from dflash_console.link.clean import decode
from dflash_console.model import Finding, LinkStatus, Sample
from tests import pictures
from tests.cli.test_status import view
from tests.extremes import Number, example, variants
from tests.fleet.doubles import config


def answered(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *views: HostView, as_json: bool
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `status` over these views."""

    async def look(_: object) -> tuple[HostView, ...]:
        return views

    monkeypatch.setattr(status, "look", look)
    code = status.run_status(config(*(view.config.name for view in views)), [], as_json=as_json)
    return code, *capfd.readouterr()


# Something that no decoder lets through, and that nothing can be made of.
ABSURD = pictures.snapshot(host=pictures.host(uptime=object()))
NAMES = ("ct129", "ct200", "kpro6")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_picture_that_can_not_be_told_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], as_json: bool
) -> None:
    first, second, third = NAMES
    views = (view(first), view(second, snapshot=ABSURD), view(third, state="unreachable", snapshot=None))
    code, out, err = answered(monkeypatch, capfd, *views, as_json=as_json)
    assert code == 70
    assert f"fault of the console itself, over the host {second}" in err
    assert "Traceback" in err
    if as_json:
        hosts = json.loads(out)["hosts"]
        assert [host["name"] for host in hosts] == [*NAMES]
        assert hosts[0]["hostname"] == "dflash-train"
        assert [finding["code"] for finding in hosts[1]["findings"]] == ["console_fault"]
        assert hosts[1]["unread"] == ["gpu", "host", "paths", "units", "venvs"]
    else:
        assert "the host's picture can't be shown: TypeError" in " ".join(out.split())
        assert "NVIDIA" in out or "GPU" in out
        assert "3 hosts: 2 up, 1 unreachable" in " ".join(out.split())


def test_a_rule_that_fails_is_told_and_ends_with_70(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(picture: Picture) -> Iterator[Finding]:
        yield Finding("never", "note", "host", str(1 // 0))

    monkeypatch.setattr(findings, "RULES", (broken,))
    code, out, _ = answered(monkeypatch, capfd, view(), as_json=True)
    assert code == 70
    assert "the rule broken failed: ZeroDivisionError" in out


def test_without_a_fault_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    gone = view("ct129", snapshot=None, link=LinkStatus("unreachable", str(Unreachable("refused"))))
    for as_json in (False, True):
        code, _, err = answered(monkeypatch, capfd, gone, view(), as_json=as_json)
        assert (code, err) == (3, "")


# ---- within the bounds of the model


def at_the_bounds(kind: inspect.Type) -> list[Any]:
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return [kind.ge, kind.le]
    if isinstance(kind, inspect.ListType):
        assert kind.max_length is not None
        return [[], [example(kind.item_type)] * kind.max_length]
    if isinstance(kind, inspect.DictType):
        assert kind.max_length is not None
        return [{}, {f"name {number}": example(kind.value_type) for number in range(kind.max_length)}]
    if isinstance(kind, inspect.StrType):
        return ["", "x" * 4096, "漢" * 4096]
    return list(kind.values) if isinstance(kind, inspect.LiteralType) else []


def test_no_value_within_the_bounds_is_one_that_can_not_be_told() -> None:
    for field, message in variants(inspect.type_info(Sample), at_the_bounds):
        sample = decode(msgspec.json.encode(message))
        assert isinstance(sample, Sample)
        tell(sample, field)


@pytest.mark.parametrize("seed", range(40))
def test_no_numbers_at_their_bounds_are_a_picture_that_can_not_be_told(seed: int) -> None:
    rng = random.Random(seed)

    def number(kind: Number) -> float:
        assert kind.ge is not None
        assert kind.le is not None
        return rng.choice([kind.ge, kind.le, kind.ge + 1])

    message = example(inspect.type_info(Sample), number)
    sample = decode(msgspec.json.encode(message))
    assert isinstance(sample, Sample)
    tell(sample, str(seed))


def tell(sample: Sample, what: str) -> None:
    """Has everything made of a sample that `status` makes."""
    before = Sample(1.0, host=pictures.host(), gpu=pictures.report(pictures.lost(0), pictures.gpu(1)))
    rings = Rings(1.0)
    for known in (before, absorb(before, sample), absorb(sample, before)):
        assert known.gpu
        utilization = rings.take(known.at, known.gpu)
        seen = view(snapshot=snapshot_of(known), utilization=utilization)
        found = findings_of(seen)
        assert not [finding.text for finding in found if finding.code == findings.FAULT], what
        for width in (40, 80, 1 << 16):
            assert status_text([(seen, found)], Terminal(width, has_colours=True))
        assert status_json([(seen, found)])
