"""The pins of a plan by agents as they run on hosts: what the source's package requires, weighed at the target."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dflash_console.config import Config, ConsoleConfig, HostConfig, PackageConfig
from dflash_console.copies import Side
from dflash_console.fleet import Fleet
from dflash_console.operations.copying import copy
from dflash_console.operations.planning import make_plan
from dflash_console.verdict import Check
from tests.agent.deep_venvs import add, healthy, remove
from tests.agent.environments import make_venv
from tests.operations.local import BY, YES, content, lay_package, site_of

REQUIRES = """Requires-Dist: torch==2.9.1
Requires-Dist: numpy>=1.20
Requires-Dist: xgrammar==0.1.27
Requires-Dist: pytest; extra == "dev"
Requires-Dist: pywin32; sys_platform == "win32"
"""


@asynccontextmanager
async def watched(*sides: Side) -> AsyncIterator[tuple[Fleet, Config]]:
    """Agents for these environments, each on a host of its own, once they have told of them."""
    hosts = {side.host: HostConfig(side.host, local=True, role="target", venvs=[side.venv]) for side in sides}
    config = Config(ConsoleConfig(), PackageConfig(modules=["sglang.srt.dflash"]), hosts)
    fleet = Fleet(config)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(fleet.run())
        try:
            async with asyncio.timeout(60):
                while any("venvs" in view.unread or view.snapshot is None for view in fleet.views()):
                    await fleet.changed()
            yield fleet, config
        finally:
            running.cancel()


async def pins_of(source: Side, target: Side) -> Check:
    async with watched(source, target) as (fleet, config):
        plan = await make_plan(fleet, config, source, [target])
    assert not plan.problem
    (pins,) = [check for check in plan.targets[0].checks if check.name == "pins"]
    return pins


@pytest.fixture
def both(tmp_path: Path) -> tuple[Side, Side]:
    """A small package that asks for something, and an older one beside other things."""
    source, target = Side("ct129", str(tmp_path / "source")), Side("ct200", str(tmp_path / "target"))
    for side, version in ((source, "0.5.23"), (target, "0.5.9")):
        make_venv(Path(side.venv))
        lay_package(site_of(side), version)
        add(site_of(side), "numpy", "2.1.0")
    with (site_of(source) / "sglang-0.5.23.dist-info/METADATA").open("a") as metadata:
        metadata.write(REQUIRES)
    add(site_of(source), "torch", "2.9.1")
    add(site_of(source), "xgrammar", "0.1.27")
    return source, target


async def test_what_the_target_does_not_meet_is_listed_and_no_copy_is_kept_from_it(
    both: tuple[Side, Side],
) -> None:
    source, target = both
    add(site_of(target), "torch", "2.11.0+cu130")
    async with watched(source, target) as (fleet, config):
        plan = await make_plan(fleet, config, source, [target])
        (one,) = plan.targets
        (pins,) = [check for check in one.checks if check.name == "pins"]
        assert pins.state == "warn"
        assert pins.detail.startswith("2 of 3 requirements not met")
        assert pins.detail.endswith(f"on {target}")
        assert {"needs torch==2.9.1, has 2.11.0+cu130", "needs xgrammar==0.1.27, which is not installed"} <= {
            *pins.evidence
        }
        assert any(f"dist-info on {source}" in line for line in pins.evidence)
        assert one.needs == ()
        (run,) = await copy(fleet, config, plan, YES, lambda run: None, read_only=False, by=BY)
    assert run.state == "done", run
    assert "sglang/only_in_0_5_23.py" in content(target)
    # Dependencies never come along.
    assert (site_of(target) / "torch-2.11.0+cu130.dist-info").exists()
    assert not [*site_of(target).glob("xgrammar*")]


async def test_what_the_target_meets_is_a_pass_by_the_sources_words(both: tuple[Side, Side]) -> None:
    source, target = both
    add(site_of(target), "torch", "2.9.1+cu128")
    add(site_of(target), "xgrammar", "0.1.27")
    pins = await pins_of(source, target)
    assert (pins.state, pins.detail) == ("pass", f"3 requirements met on {target}")


async def test_pins_of_a_real_package_are_weighed_against_another_ones_environment(tmp_path: Path) -> None:
    source, target = Side("ct129", str(tmp_path / "source")), Side("ct200", str(tmp_path / "target"))
    healthy(Path(source.venv), "0.5.13.post1")
    site = healthy(Path(target.venv), "0.5.13.post1")
    remove(site, "transformers")
    add(site, "transformers", "4.57.1")
    remove(site, "modelscope")
    pins = await pins_of(source, target)
    assert pins.state == "warn"
    assert pins.detail.startswith("2 of ")
    assert {"needs transformers==5.8.1, has 4.57.1", "needs modelscope, which is not installed"} <= {
        *pins.evidence
    }


async def test_a_package_that_says_nothing_of_itself_is_a_warning_with_the_reason(
    both: tuple[Side, Side],
) -> None:
    source, target = both
    (site_of(source) / "sglang-0.5.23.dist-info/METADATA").unlink()
    pins = await pins_of(source, target)
    assert pins.state == "warn"
    assert "has no METADATA" in pins.detail
