"""Many hosts at once."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from dflash_console.errors import Unreachable
from dflash_console.fleet import Fleet
from dflash_console.model import Sample
from tests import pictures
from tests.fleet.doubles import Network, Scene, config
from tests.fleet.test_watcher import tell
from tests.fleet.virtual import VirtualLoop


def test_views_are_in_the_configs_order_and_the_same_objects_while_nothing_changed() -> None:
    async def story(scene: Scene) -> None:
        for name in ("kpro6", "ct129"):
            await scene.until_up(name)
        scene.agent("ct129").tell_all()
        await scene.until("ct129", lambda view: view.snapshot is not None)
        before = scene.fleet.views()
        assert [view.config.name for view in before] == ["kpro6", "ct129"]
        assert scene.fleet.views() is before
        scene.agent("ct129").tick()
        await scene.fleet.changed()
        after = scene.fleet.views()
        assert after[0] is before[0]
        assert after[1] is not before[1]
        assert after[1].revision > before[1].revision

    tell(story, "kpro6", "ct129")


def test_a_card_that_two_hosts_show_is_told_on_both() -> None:
    async def story(scene: Scene) -> None:
        for name in ("ct129", "ct200", "kpro6"):
            await scene.until_up(name)
        shared, own = pictures.gpu(0), pictures.gpu(1)
        scene.agent("ct200").say(Sample(1.0, host=pictures.host(), gpu=pictures.report(shared)))
        await scene.until("ct200", lambda view: view.snapshot is not None)
        assert scene.view("ct200").shared == {}
        scene.agent("kpro6").say(Sample(1.0, host=pictures.host(), gpu=pictures.report(shared)))
        scene.agent("ct129").say(Sample(1.0, host=pictures.host(), gpu=pictures.report(own)))
        await scene.until("kpro6", lambda view: bool(view.shared))
        await scene.until("ct129", lambda view: view.snapshot is not None)
        assert scene.view("kpro6").shared == {shared.uuid: ("ct200",)}
        assert scene.view("ct200").shared == {shared.uuid: ("kpro6",)}
        assert scene.view("ct129").shared == {}
        scene.agent("ct129").say(Unreachable("gone"))
        scene.agent("kpro6").tick(pictures.report(own, passed_through=1))
        await scene.until("ct200", lambda view: not view.shared)
        assert scene.view("ct129").shared == {own.uuid: ("kpro6",)}, "the last good picture still counts"

    tell(story, "ct129", "ct200", "kpro6")


def test_dead_hosts_do_not_hold_the_living_up() -> None:
    dead = [f"dead{number}" for number in range(40)]

    async def story(scene: Scene) -> None:
        scene.network.stuck.update(dead)
        began = scene.now
        await scene.until_up("alive")
        assert scene.now - began < 0.2
        for name in dead:
            await scene.until_state(name, "unreachable")

    tell(story, *dead, "alive")


def test_an_unknown_name_is_a_key_error() -> None:
    async def story(scene: Scene) -> None:
        with pytest.raises(KeyError):
            scene.fleet.retry("ct999")
        with pytest.raises(KeyError):
            scene.fleet.refresh("ct999")

    tell(story)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_eager_tasks_change_nothing() -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(vars(asyncio)["eager_task_factory"])
        async with Scene("ct129", "ct200") as scene:
            scene.network.down["ct129"] = Unreachable("connection refused")
            await scene.until_up("ct200")
            scene.agent("ct200").tell_all()
            scene.fleet.refresh("ct200")
            await scene.until("ct200", lambda view: not view.unread)
            await scene.until_state("ct200", "stale")
            await scene.until("ct129", lambda view: view.failures >= 3)
            scene.agent("ct200").say(Unreachable("reset"))
            await scene.until_state("ct200", "unreachable")
            await scene.until_up("ct200")
            del scene.network.down["ct129"]
            scene.fleet.retry("ct129")
            await scene.until_up("ct129")

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(play())


def test_a_cancellation_that_meets_an_error_still_ends_the_fleet() -> None:
    class Spoilsport(Network):
        async def open(self, host: Any) -> Any:
            agent = await super().open(host)

            async def fail(why: object = None) -> None:
                raise Unreachable("closing failed")

            agent.close = fail  # type: ignore[method-assign]
            return agent

    async def play() -> None:
        network = Spoilsport()
        fleet = Fleet(config("ct200"), opener=network.open)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(fleet.run())
            while fleet.views()[0].link.state != "up":
                await fleet.changed()
            network.agents["ct200"][-1].say(Unreachable("lost in the same moment"))
            running.cancel()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(play())
