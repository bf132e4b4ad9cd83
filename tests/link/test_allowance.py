"""How much at once, and how much a second."""

from __future__ import annotations

from dflash_console.link.allowance import Allowance


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_so_much_at_once_is_covered_and_no_more() -> None:
    allowance = Allowance(10, 1, Clock())
    assert allowance.covers(4)
    assert allowance.covers(6)
    assert not allowance.covers(1)


def test_so_much_a_second_is_covered_for_ever() -> None:
    clock = Clock()
    allowance = Allowance(10, 5, clock)
    for _ in range(1000):
        clock.time += 1.0
        assert allowance.covers(5)


def test_a_little_more_a_second_is_not_covered_for_ever() -> None:
    clock = Clock()
    allowance = Allowance(10, 5, clock)
    covered = 0
    while allowance.covers(6):
        covered += 1
        clock.time += 1.0
    assert 3 < covered < 20


def test_a_long_silence_saves_no_more_than_is_allowed_at_once() -> None:
    clock = Clock()
    allowance = Allowance(10, 5, clock)
    clock.time += 1e6
    assert allowance.covers(10)
    assert not allowance.covers(1)


def test_what_was_granted_comes_on_top_once() -> None:
    allowance = Allowance(10, 1, Clock())
    allowance.grant(100)
    assert allowance.covers(105)
    assert allowance.covers(5)
    assert not allowance.covers(1)


def test_a_grant_that_is_revoked_is_gone() -> None:
    allowance = Allowance(10, 1, Clock())
    allowance.grant(100)
    allowance.revoke()
    assert not allowance.covers(11)
