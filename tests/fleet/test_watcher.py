"""One host's life: up, silent, gone, back; in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dflash_console.errors import AgentFailed, HostKeyChanged, Refused, Unreachable
from dflash_console.model import Missing, Note, Sample
from tests import pictures
from tests.fleet.doubles import Scene
from tests.fleet.virtual import run_virtual

Story = Callable[[Scene], Coroutine[Any, Any, None]]


def tell(story: Story, *names: str, interval: float = 1.0) -> None:
    """Plays a story on a fleet of these hosts."""

    async def play() -> None:
        async with Scene(*(names or ("ct200",)), interval=interval) as scene:
            await story(scene)

    run_virtual(play())


def test_a_host_is_connecting_until_its_agent_watches() -> None:
    async def story(scene: Scene) -> None:
        view = scene.view("ct200")
        assert (view.link.state, view.snapshot, view.heard) == ("connecting", None, None)
        assert view.unread == {"host", "gpu", "venvs", "units", "paths"}
        view = await scene.until_up("ct200")
        assert view.link.next_try is None

    tell(story)


def test_the_first_picture_is_there_before_the_slow_sections() -> None:
    async def story(scene: Scene) -> None:
        await scene.until_up("ct200")
        scene.agent("ct200").say(Sample(at=1.0, gpu=pictures.report()))
        view = await scene.until("ct200", lambda view: view.heard is not None)
        assert view.snapshot is None
        assert view.unread == {"host", "venvs", "units", "paths"}
        scene.agent("ct200").say(Sample(at=1.1, host=pictures.host()))
        view = await scene.until("ct200", lambda view: view.snapshot is not None)
        assert view.snapshot is not None
        assert view.snapshot.gpu == pictures.report()
        assert view.snapshot.venvs == []
        assert view.unread == {"venvs", "units", "paths"}

    tell(story)


def test_a_section_that_did_not_come_again_is_as_it_was() -> None:
    async def story(scene: Scene) -> None:
        await scene.until_up("ct200")
        scene.agent("ct200").tell_all()
        scene.agent("ct200").tick(pictures.report(pictures.gpu(utilization=97)))
        view = await scene.until(
            "ct200", lambda view: view.revision > 0 and 97 in sum(view.utilization.values(), ())
        )
        assert view.snapshot is not None
        assert view.snapshot.venvs == [pictures.venv()]
        assert view.snapshot.gpu.gpus[0].utilization == 97
        assert not view.unread

    tell(story)


def test_the_heartbeat_gives_the_latency() -> None:
    async def story(scene: Scene) -> None:
        view = await scene.until("ct200", lambda view: not isinstance(view.link.latency_ms, Missing))
        assert view.link.latency_ms == 2.0

    tell(story)


@pytest.mark.parametrize(("interval", "limit"), [(0.2, 3.0), (1.0, 3.0), (5.0, 15.0)])
def test_a_silent_host_is_stale_after_three_intervals_and_comes_back(interval: float, limit: float) -> None:
    async def story(scene: Scene) -> None:
        await scene.until_up("ct200")
        scene.agent("ct200").tell_all()
        heard = (await scene.until("ct200", lambda view: view.heard is not None)).heard
        assert heard is not None
        view = await scene.until_state("ct200", "stale")
        assert scene.now - heard == pytest.approx(limit)
        assert f"{limit:.0f} s" in view.link.detail
        assert view.snapshot is not None
        assert view.heard == heard
        scene.agent("ct200").tick()
        view = await scene.until_up("ct200")
        assert view.link.detail == ""
        assert view.heard == pytest.approx(scene.now)

    tell(story, interval=interval)


def test_a_steady_host_is_never_stale() -> None:
    async def story(scene: Scene) -> None:
        await scene.until_up("ct200")
        await scene.ticking("ct200", 120)
        view = scene.view("ct200")
        assert view.link.state == "up"
        assert view.link.since < scene.wall + scene.now - 100

    tell(story)


def test_an_unanswered_heartbeat_drops_the_link_and_a_new_one_is_made() -> None:
    async def story(scene: Scene) -> None:
        await scene.until_up("ct200")
        first = scene.agent("ct200")
        first.tell_all()
        first.answers_pings = False
        silent_since = scene.now
        view = await scene.until_state("ct200", "unreachable")
        assert scene.now - silent_since <= 5 + 15 + 0.1
        assert "15 s" in view.link.detail
        assert first.is_closed
        assert view.snapshot is not None, "the last good picture stays"
        assert isinstance(view.link.latency_ms, Missing), "a latency of a link that is down would mislead"
        await scene.until_up("ct200")
        assert scene.agent("ct200") is not first

    tell(story)


def test_the_end_of_the_link_is_told_with_its_reason_and_the_next_try() -> None:
    async def story(scene: Scene) -> None:
        await scene.until_up("ct200")
        scene.agent("ct200").say(Unreachable("connection reset by peer"))
        view = await scene.until_state("ct200", "unreachable")
        assert view.link.detail == "connection reset by peer"
        assert view.link.next_try is not None
        assert 0 <= view.link.next_try - (scene.wall + scene.now) <= 1.0
        assert view.failures == 1

    tell(story)


def test_an_agent_that_ends_without_a_word_is_a_failed_agent() -> None:
    async def story(scene: Scene) -> None:
        await scene.until_up("ct200")
        scene.agent("ct200").say(AgentFailed("the agent ended: killed by signal 9"))
        view = await scene.until_state("ct200", "agent_failed")
        assert "signal 9" in view.link.detail
        await scene.until_up("ct200")

    tell(story)


def test_a_host_that_stays_away_keeps_its_state_while_it_is_tried() -> None:
    async def story(scene: Scene) -> None:
        scene.network.down["ct200"] = Unreachable("connection refused")
        states = set()
        async with asyncio.timeout(600):
            while len(scene.network.tries["ct200"]) < 5:
                await scene.fleet.changed()
                view = scene.view("ct200")
                states.add((view.link.state, view.link.next_try is None))
        assert states == {("unreachable", False), ("unreachable", True)}

    tell(story)


def test_rests_grow_to_half_a_minute_and_never_beyond() -> None:
    async def story(scene: Scene) -> None:
        scene.network.down["ct200"] = Unreachable("no route")
        await scene.until("ct200", lambda view: view.failures >= 40)
        tries = scene.network.tries["ct200"]
        rests = [after - before - 0.1 for before, after in itertools.pairwise(tries)]
        assert rests[0] <= 1.0
        assert max(rests) <= 30.001
        assert max(rests) > 10

    tell(story)


@pytest.mark.parametrize(
    "error", [Refused("permission denied"), HostKeyChanged("another key than the known one")]
)
def test_a_host_that_lets_nobody_in_is_asked_once_a_minute_at_most(error: Exception) -> None:
    async def story(scene: Scene) -> None:
        scene.network.down["ct200"] = error
        await scene.until("ct200", lambda view: view.failures >= 20)
        tries = scene.network.tries["ct200"]
        rests = [after - before - 0.1 for before, after in itertools.pairwise(tries)]
        assert min(rests) >= 59.999
        assert max(rests) <= 300.001

    tell(story)


def test_retry_wakes_a_resting_host_at_once() -> None:
    async def story(scene: Scene) -> None:
        scene.network.down["ct200"] = Refused("permission denied")
        await scene.until_state("ct200", "refused")
        del scene.network.down["ct200"]
        asked = scene.now
        scene.fleet.retry("ct200")
        await scene.until_up("ct200")
        assert scene.now - asked < 0.2

    tell(story)


def test_only_a_link_that_stood_a_minute_clears_the_failures() -> None:
    async def story(scene: Scene) -> None:
        for expected in (1, 2, 3):
            await scene.until_up("ct200")
            scene.agent("ct200").say(Unreachable("reset"))
            view = await scene.until_state("ct200", "unreachable")
            assert view.failures == expected
        await scene.until_up("ct200")
        await scene.ticking("ct200", 61)
        scene.agent("ct200").say(Unreachable("reset"))
        view = await scene.until_state("ct200", "unreachable")
        assert view.failures == 1

    tell(story)


def test_a_fault_of_ours_on_one_host_ends_no_other() -> None:
    async def story(scene: Scene) -> None:
        scene.network.down["ct129"] = ZeroDivisionError("integer division")
        await scene.until("ct129", lambda view: view.failures >= 3)
        view = scene.view("ct129")
        assert view.link.state == "agent_failed"
        assert "ZeroDivisionError: integer division" in view.link.detail
        assert scene.view("ct200").link.state in ("up", "stale")
        del scene.network.down["ct129"]
        await scene.until_up("ct129")

    tell(story, "ct129", "ct200")


def test_a_fault_while_reading_is_shown_and_tried_again() -> None:
    async def story(scene: Scene) -> None:
        await scene.until_up("ct200")
        scene.agent("ct200").say(RuntimeError("boom"))
        view = await scene.until_state("ct200", "agent_failed")
        assert "RuntimeError: boom" in view.link.detail
        assert scene.agent("ct200").is_closed
        await scene.until_up("ct200")

    tell(story)


def test_a_refresh_reaches_the_agent_also_when_asked_before_it_is_there() -> None:
    async def story(scene: Scene) -> None:
        scene.fleet.refresh("ct200")
        await scene.until_up("ct200")
        await scene.ticking("ct200", 1)
        assert scene.agent("ct200").requests == ["refresh"]
        scene.fleet.refresh("ct200")
        await scene.ticking("ct200", 1)
        assert scene.agent("ct200").requests == ["refresh", "refresh"]

    tell(story)


def test_a_note_stands_until_its_section_comes() -> None:
    async def story(scene: Scene) -> None:
        await scene.until_up("ct200")
        scene.agent("ct200").say(Note("units", "systemctl did not answer in 5 s"))
        view = await scene.until("ct200", lambda view: bool(view.notes))
        assert view.notes == {"units": "systemctl did not answer in 5 s"}
        scene.agent("ct200").tick()
        scene.agent("ct200").say(Sample(at=5.0, units=[pictures.unit()]))
        await scene.until("ct200", lambda view: not view.notes)

    tell(story)


def test_a_note_that_says_the_same_again_changes_nothing() -> None:
    async def story(scene: Scene) -> None:
        await scene.until_up("ct200")
        agent = scene.agent("ct200")
        agent.say(Note("gpu", "hung"))
        before = await scene.until("ct200", lambda view: bool(view.notes))
        for _ in range(100):
            agent.say(Note("gpu", "hung"))
        agent.say(Note("units", "no bus"))
        after = await scene.until("ct200", lambda view: len(view.notes) == 2)
        assert after.revision == before.revision + 1

    tell(story)


def test_the_words_of_a_fault_of_ours_are_short_and_harmless() -> None:
    async def story(scene: Scene) -> None:
        scene.network.down["ct200"] = KeyError("\x1b]0;x\x07" + "y" * 100_000)
        view = await scene.until_state("ct200", "agent_failed")
        assert "fault of the console itself: KeyError" in view.link.detail
        assert len(view.link.detail) < 400
        assert "\x1b" not in view.link.detail

    tell(story)


def test_another_boot_id_is_noticed_and_the_same_one_is_not() -> None:
    async def story(scene: Scene) -> None:
        for boot, is_seen in (("boot-1", False), ("boot-1", False), ("boot-2", True)):
            await scene.until_up("ct200")
            heard = scene.view("ct200").heard or 0.0
            scene.agent("ct200").say(Sample(at=1.0, host=pictures.host(boot_id=boot)))
            view = await scene.until("ct200", lambda view, heard=heard: (view.heard or 0.0) > heard)  # type: ignore[misc]
            assert (view.rebooted_at is not None) is is_seen
            scene.agent("ct200").say(Unreachable("connection lost"))
            await scene.until_state("ct200", "unreachable")

    tell(story)


def test_a_clock_that_jumps_on_either_side_changes_no_state() -> None:
    async def story(scene: Scene) -> None:
        await scene.until_up("ct200")
        await scene.ticking("ct200", 5)
        scene.wall -= 86_400
        scene.agent("ct200").at += 7_200
        await scene.ticking("ct200", 5)
        scene.agent("ct200").at -= 14_400
        await scene.ticking("ct200", 5)
        view = scene.view("ct200")
        assert view.link.state == "up"
        assert view.failures == 0
        assert len(scene.network.tries["ct200"]) == 1

    tell(story)


def test_ending_the_fleet_closes_every_link() -> None:
    agents = []

    async def story(scene: Scene) -> None:
        for name in ("ct129", "ct200"):
            await scene.until_up(name)
            agents.append(scene.agent(name))

    tell(story, "ct129", "ct200")
    assert [agent.is_closed for agent in agents] == [True, True]


def test_a_request_goes_to_the_agent_and_without_one_says_why() -> None:
    async def story(scene: Scene) -> None:
        with pytest.raises(Unreachable, match="ct200 is not connected: connecting"):
            await scene.fleet.request("ct200", "verify", 5.0, part="files")
        await scene.until_up("ct200")
        await scene.fleet.request("ct200", "verify", 5.0, part="files")
        assert scene.agent("ct200").requests == ["verify"]
        scene.network.down["ct200"] = Unreachable("no route")
        scene.agent("ct200").say(Unreachable("no answer to `ping` in 5 s"))
        await scene.until_state("ct200", "unreachable")
        with pytest.raises(Unreachable, match="ct200 is not connected: no"):
            await scene.fleet.request("ct200", "verify", 5.0, part="files")

    tell(story)


def test_what_still_waits_for_an_answer_is_told_why_the_link_ended() -> None:
    async def story(scene: Scene) -> None:
        await scene.until_up("ct200")
        agent = scene.agent("ct200")
        agent.say(Unreachable("no answer to `ping` in 5 s"))
        await scene.until_state("ct200", "unreachable")
        assert str(agent.told) == "no answer to `ping` in 5 s"

    tell(story)
