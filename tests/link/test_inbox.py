"""What a slow consumer still gets."""

from __future__ import annotations

from msgspec import UNSET

from dflash_console.link.inbox import MOST, Inbox, News, merge
from dflash_console.model import SECTIONS, Note, PathInfo, Sample
from tests import pictures


def drained(inbox: Inbox) -> list[News]:
    return [inbox.take() for _ in range(len(inbox))]


def path(name: str) -> PathInfo:
    return PathInfo(name, "folder", 1)


def test_samples_that_follow_each_other_become_one_with_the_newest_of_each_section() -> None:
    inbox = Inbox()
    inbox.put(Sample(1, host=pictures.snapshot().host, paths=[path("/old")]))
    inbox.put(Sample(2, paths=[path("/new")]))
    assert drained(inbox) == [Sample(2, host=pictures.snapshot().host, paths=[path("/new")])]


def test_a_merge_leaves_unset_what_neither_tells() -> None:
    assert merge(Sample(1, paths=[]), Sample(2, units=[])) == Sample(2, paths=[], units=[], gpu=UNSET)


def test_the_order_of_notes_and_samples_is_kept() -> None:
    inbox = Inbox()
    news: list[News] = [
        Note("gpu", "hung"),
        Sample(1, paths=[]),
        Note("gpu", "hung again"),
        Sample(2, units=[]),
    ]
    for message in news:
        inbox.put(message)
    assert drained(inbox) == news


def test_it_never_grows_past_its_limit_and_loses_no_section() -> None:
    inbox = Inbox()
    inbox.put(Sample(0, units=[]))
    for number in range(10_000):
        inbox.put(Note(SECTIONS[number % len(SECTIONS)], str(number)))
        inbox.put(Sample(number, paths=[path(str(number))]))
        assert len(inbox) <= MOST + 1
    news = drained(inbox)
    samples = [message for message in news if isinstance(message, Sample)]
    whole = samples[0]
    for sample in samples[1:]:
        whole = merge(whole, sample)
    assert (whole.units, whole.paths) == ([], [path("9999")])
    assert Note("units", "9998") in news


def test_a_note_that_a_later_sample_answers_may_go() -> None:
    inbox = Inbox()
    inbox.put(Note("paths", "can't be read"))
    inbox.put(Sample(1, paths=[]))
    for number in range(MOST):
        inbox.put(Note("gpu", f"noise {number}"))
    assert not [
        message for message in drained(inbox) if isinstance(message, Note) and message.section == "paths"
    ]
