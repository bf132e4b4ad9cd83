"""Real hosts for the tests: booted once a run, every fault undone after each test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.hosts.commands import missing_prerequisites
from tests.hosts.fleet import Fleet
from tests.hosts.proofs import FOLDER
from tests.hosts.story import NAMES, lay_story, reset_story

FIGURE = "figure"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "fleet" in getattr(item, "fixturenames", ()) and "hosts" in item.path.parts:
            item.add_marker(pytest.mark.real_hosts)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    ended = [
        report
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "teardown"
    ]
    lines = [str(words) for report in ended for name, words in report.user_properties if name == FIGURE]
    if lines:
        terminalreporter.section("measured on real hosts")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Lines for the end of the run's output: what was measured on the way."""
    lines: list[str] = []
    yield lines
    # Of the last phase: a process of its own may have run the test, and only reports come from there.
    request.node.user_properties += [(FIGURE, line) for line in lines]


@pytest.fixture(scope="session")
def real_hosts_can_boot() -> None:
    """Skips where real hosts can't be had, and says why; fails instead where they are required."""
    missing = missing_prerequisites()
    if missing:
        message = f"real hosts can't be booted here, for want of: {'; '.join(missing)}"
        if os.environ.get("DFLASH_REQUIRE_HOSTS") == "1":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)


@pytest.fixture(scope="session")
def fleet(real_hosts_can_boot: None) -> Iterator[Fleet]:
    """The story's three hosts, up and with all that the story says is on them."""
    with Fleet(NAMES) as fleet:
        lay_story(fleet)
        fleet.boot()
        yield fleet


@pytest.fixture
def hosts(fleet: Fleet) -> Iterator[Fleet]:
    """The three hosts for one test, which may do anything to them; everything is undone afterwards."""
    yield fleet
    reset_story(fleet)
    fleet.restore()


@pytest.fixture
def places(hosts: Fleet) -> Iterator[Fleet]:
    """The hosts; what was laid on them is gone afterwards."""
    yield hosts
    for host in hosts:
        if host.is_on:
            # The deepest first: what is bound there belongs to others, and must not be emptied.
            mounts = f"awk '$2 ~ \"^{FOLDER}/\" {{print $2}}' /proc/mounts | sort -r"
            host.run(f"{mounts} | xargs -r -n 1 umount -l; rm -rf --one-file-system {FOLDER}")
