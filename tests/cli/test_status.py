"""What `status` waits for, what it answers and with which exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dflash_console.cli.status import LIMIT, chosen, exit_code, is_settled, look
from dflash_console.cli.status_json import status_json
from dflash_console.config import HostConfig
from dflash_console.errors import AgentFailed, ConfigError, HostKeyChanged, Unreachable
from dflash_console.findings import findings_of
from dflash_console.fleet import Fleet, HostView
from dflash_console.model import Copied, LinkStatus, Missing, Note, Sample
from tests import pictures
from tests.fleet.doubles import Agent, Network, config
from tests.fleet.virtual import run_virtual

Views = tuple[HostView, ...]


def view(name: str = "ct200", state: Any = "up", **fields: Any) -> HostView:
    whole = {
        "link": LinkStatus(state, latency_ms=2.0),
        "snapshot": pictures.snapshot(),
        "unread": frozenset(),
    }
    return HostView(config=HostConfig(name), **{**whole, **fields})


class Telling(Network):
    """A network whose agents say something as soon as they are reached."""

    def __init__(self, words: Callable[[Agent], None]) -> None:
        super().__init__()
        self.words = words

    async def open(self, host: HostConfig) -> Agent:
        agent = await super().open(host)
        self.words(agent)
        return agent


def seen(network: Network, *names: str) -> tuple[Views, float]:
    """What a look at these hosts gives, and the seconds it takes."""

    async def story() -> tuple[Views, float]:
        loop = asyncio.get_running_loop()
        whole = config(*names)
        fleet = Fleet(whole, opener=network.open, now=loop.time)
        began = loop.time()
        views = await look(whole, fleet)
        return views, loop.time() - began

    return run_virtual(story())


# ---- how long it waits


def test_it_answers_as_soon_as_every_section_is_there() -> None:
    network = Telling(Agent.tell_all)
    (one, two), seconds = seen(network, "ct129", "ct200")
    assert (one.link.state, two.link.state) == ("up", "up")
    assert seconds < 0.5
    assert all(agent.is_closed for agents in network.agents.values() for agent in agents)


def test_a_section_that_can_not_be_read_is_not_waited_for() -> None:
    def words(agent: Agent) -> None:
        agent.say(Sample(1.0, pictures.host(), pictures.report(), [], paths=[]))
        agent.say(Note("units", "no systemctl here"))

    (answer,), seconds = seen(Telling(words), "ct200")
    assert answer.notes == {"units": "no systemctl here"}
    assert seconds < 0.5


def test_a_refused_connection_is_tried_once_more() -> None:
    network = Network()
    network.down["ct200"] = Unreachable("connection refused")
    (answer,), seconds = seen(network, "ct200")
    assert (answer.link.state, answer.link.detail) == ("unreachable", "connection refused")
    assert len(network.tries["ct200"]) == 2
    assert seconds < 2


def test_a_host_key_that_changed_is_an_answer_at_once() -> None:
    network = Network()
    network.down["ct200"] = HostKeyChanged("another key")
    (answer,), seconds = seen(network, "ct200")
    assert answer.link.state == "host_key_changed"
    assert len(network.tries["ct200"]) == 1
    assert seconds < 0.5


def test_a_frozen_host_is_given_up_and_the_others_are_whole() -> None:
    network = Telling(Agent.tell_all)
    network.stuck.add("ct200")
    (one, two), seconds = seen(network, "ct129", "ct200")
    assert not one.unread
    assert (two.link.state, two.link.detail) == ("unreachable", "no answer in 8 s")
    assert seconds < LIMIT


def test_a_host_that_is_still_being_reached_at_the_end_is_unreachable() -> None:
    class Never(Network):
        async def open(self, host: HostConfig) -> Agent:
            await asyncio.Event().wait()
            raise AssertionError

    (answer,), seconds = seen(Never(), "ct200")
    assert (answer.link.state, answer.link.detail) == ("unreachable", "not reached in 10 s")
    assert seconds == pytest.approx(LIMIT)


def test_an_agent_that_tells_nothing_failed() -> None:
    (answer,), seconds = seen(Network(), "ct200")
    assert answer.link.state == "agent_failed"
    assert seconds == pytest.approx(LIMIT)


def test_a_slow_section_is_told_as_unread() -> None:
    (answer,), _ = seen(Telling(lambda agent: agent.say(Sample(1.0, host=pictures.host()))), "ct200")
    assert answer.link.state in ("up", "stale")
    assert answer.unread == {"gpu", "venvs", "units", "paths"}


@pytest.mark.parametrize(
    ("state", "failures", "waited", "expected"),
    [
        ("connecting", 0, 9.0, False),
        ("unreachable", 1, 1.0, False),
        ("unreachable", 2, 1.0, True),
        ("unreachable", 1, 7.0, True),
        ("agent_failed", 1, 1.0, False),
        ("refused", 1, 0.1, True),
        ("no_python", 1, 0.1, True),
        ("stale", 0, 9.0, True),
    ],
)
def test_a_failure_is_settled_when_another_try_would_tell_nothing_new(
    state: Any, failures: int, waited: float, expected: bool
) -> None:
    assert is_settled(view(state=state, failures=failures), waited) is expected


# ---- which hosts


def test_named_hosts_come_once_and_in_the_configs_order() -> None:
    whole = config("a", "b", "c")
    assert list(chosen(whole, ["c", "a", "c"]).hosts) == ["a", "c"]
    assert chosen(whole, []) is whole


@pytest.mark.parametrize(
    ("name", "advice"), [("ct20", "did you mean ct200?"), ("zzz", "there are: ct129, ct200")]
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=f"no host '{name}' .*{advice.replace('?', '[?]')}"):
        chosen(config("ct129", "ct200"), [name])


# ---- exit codes


BAD = pictures.snapshot(gpu=pictures.report(pictures.lost()))
UNUSUAL = pictures.snapshot(paths=[pictures.path(kind=Missing("not_found"))])


@pytest.mark.parametrize(
    ("views", "code"),
    [
        ([view()], 0),
        ([view(snapshot=UNUSUAL)], 0),
        ([view(snapshot=BAD), view()], 1),
        ([view(snapshot=BAD), view(state="unreachable", snapshot=None)], 3),
        ([view(state="host_key_unknown", snapshot=None), view()], 3),
        ([], 0),
    ],
)
def test_the_exit_code_tells_the_worst(views: list[HostView], code: int) -> None:
    assert exit_code((each, findings_of(each)) for each in views) == code


# ---- JSON


def as_json(*views: HostView) -> list[dict[str, Any]]:
    answer = msgspec.json.decode(status_json([(each, findings_of(each)) for each in views]))
    assert list(answer) == ["hosts"]
    hosts: list[dict[str, Any]] = answer["hosts"]
    return hosts


def test_the_json_of_a_host_has_the_keys_of_the_contract() -> None:
    snapshot = pictures.snapshot(gpu=pictures.report(pictures.gpu(processes=[pictures.process()])))
    (host,) = as_json(view(snapshot=snapshot))
    assert list(host)[:9] == [
        "name",
        "link",
        "hostname",
        "boot_id",
        "gpus",
        "venvs",
        "units",
        "paths",
        "findings",
    ]
    assert host["link"] == {"state": "up", "detail": "", "latency_ms": 2.0}
    assert (host["hostname"], host["boot_id"]) == ("dflash-train", "boot-1")
    (gpu,) = host["gpus"]
    for key in [
        "index",
        "uuid",
        "bus",
        "name",
        "utilization",
        "memory_used",
        "memory_total",
        "temperature",
        "power",
        "power_limit",
    ]:
        assert gpu[key] == getattr(snapshot.gpu.gpus[0], key)
    assert gpu["health"] == "ok"
    assert gpu["processes"][0]["pid"] == 4711
    (venv,) = host["venvs"]
    assert (venv["path"], venv["python"]) == ("/root/ml-env", "3.12.3")
    assert venv["packages"]["torch"] == "2.11.0"
    package = venv["package"]
    for key in ["name", "origin", "kind", "version", "dist_version", "nested", "modules"]:
        assert key in package
    assert package["modules"][pictures.WORKER].endswith("dflash_worker.py")
    (unit,) = host["units"]
    for key in ["name", "load", "active", "sub", "result", "restarts", "main_pid"]:
        assert unit[key] == getattr(snapshot.units[0], key)
    assert unit["since"] == "2023-11-14T22:13:20Z"
    assert host["paths"][0]["path"] == "/dev/shm/Qwen3.6-27B"
    assert (host["findings"], host["unread"]) == ([], [])


def test_a_missing_value_is_its_reason_and_an_absent_module_null() -> None:
    package = pictures.package(modules={pictures.WORKER: None, pictures.INFO: Missing("error", "zero bytes")})
    snapshot = pictures.snapshot(
        gpu=pictures.report(pictures.lost()),
        venvs=[pictures.venv(package=package), pictures.venv("/x", python=Missing("not_found"))],
        units=[pictures.unit(since=None)],
    )
    (host,) = as_json(view(snapshot=snapshot))
    assert host["gpus"][0]["utilization"] == {"missing": "lost", "detail": "GPU is lost"}
    assert host["venvs"][0]["package"]["modules"] == {
        pictures.WORKER: None,
        pictures.INFO: {"missing": "error", "detail": "zero bytes"},
    }
    assert host["venvs"][1]["python"] == {"missing": "not_found", "detail": ""}
    assert host["units"][0]["since"] is None
    assert host["findings"][0]["code"] == "gpu_lost"
    assert host["findings"][0]["level"] == "critical"


def test_a_host_that_was_not_reached_has_reasons_and_says_what_was_not_read() -> None:
    link = LinkStatus("unreachable", "connection refused")
    (host,) = as_json(
        view(link=link, snapshot=None, unread=frozenset(("host", "gpu", "venvs", "units", "paths")))
    )
    assert host["hostname"] == {"missing": "error", "detail": "connection refused"}
    assert host["link"]["latency_ms"] == {"missing": "not_found", "detail": "not connected"}
    assert host["gpus"] == host["venvs"] == host["units"] == host["paths"] == []
    assert host["unread"] == ["gpu", "host", "paths", "units", "venvs"]
    assert host["findings"][0]["code"] == "unreachable"


def test_a_unit_with_an_impossible_time_does_not_spoil_the_answer() -> None:
    (host,) = as_json(view(snapshot=pictures.snapshot(units=[pictures.unit(since=1e300)])))
    assert host["units"][0]["since"]["missing"] == "error"


def test_a_failed_agent_is_reached_again_before_the_answer() -> None:
    network = Telling(Agent.tell_all)
    network.down["ct200"] = AgentFailed("no memory")
    (answer,), _ = seen(network, "ct200")
    assert answer.link.state == "agent_failed"
    assert answer.failures == 2


def test_where_a_package_was_copied_from_and_an_unsettled_copy_are_in_the_json() -> None:
    came = Copied("ct129", "/root/ml-env", "0.5.11", 1_700_000_000.0, "kim@laptop", 2)
    spoilt = Copied("", "", "", Missing("error", "spoilt"), "", Missing("error", "no manifest.json"))
    venvs = [
        pictures.venv("/a", copied=came),
        pictures.venv("/b", copied=spoilt, interrupted="copy from ct129"),
        pictures.venv("/c"),
    ]
    (host,) = as_json(view(snapshot=pictures.snapshot(venvs=venvs)))
    first, second, third = host["venvs"]
    assert first["copied"] == {
        "from_host": "ct129",
        "from_venv": "/root/ml-env",
        "from_version": "0.5.11",
        "at": "2023-11-14T22:13:20Z",
        "by": "kim@laptop",
        "changed": 2,
        "verified": True,
    }
    assert second["copied"]["at"] == {"missing": "error", "detail": "spoilt"}
    assert second["copied"]["changed"] == {"missing": "error", "detail": "no manifest.json"}
    assert [row["interrupted"] for row in host["venvs"]] == ["", "copy from ct129", ""]
    assert third["copied"] is None
