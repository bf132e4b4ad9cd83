"""What a verification asks of whom."""

from __future__ import annotations

import msgspec
import pytest

from dflash_console.config import Config, ConsoleConfig, HostConfig, PackageConfig
from dflash_console.fleet import HostView
from dflash_console.model import LinkStatus, Missing
from dflash_console.operations.orders import BRIEF, at_home, environments, needed_sections, order, source_of
from tests import pictures

CONFIG = Config(ConsoleConfig(), PackageConfig(), {})
HOME = "/root/ml-env"


def view(host: HostConfig | None = None, **fields: object) -> HostView:
    picture = msgspec.structs.replace(pictures.snapshot(), **fields)
    return HostView(
        config=host or HostConfig("ct200"), link=LinkStatus("up"), snapshot=picture, unread=frozenset()
    )


def copied(version: str, dist_version: str) -> HostView:
    there = pictures.venv(package=pictures.package(version=version, dist_version=dist_version))
    return view(HostConfig("ct200", role="target"), venvs=[there])


def test_the_environments_of_the_config_are_meant_before_any_that_were_found() -> None:
    host = HostConfig("ct200", venvs=["/a", "/b/"], package_venv="/b")
    assert environments(view(host)) == ("/a", "/b")


def test_a_home_of_the_config_is_the_login_users() -> None:
    picture = msgspec.structs.replace(
        pictures.snapshot(), host=msgspec.structs.replace(pictures.snapshot().host, home="/home/ops")
    )
    seen = HostView(config=HostConfig("ct200", venvs=["~/env"]), link=LinkStatus("up"), snapshot=picture)
    assert environments(seen) == ("/home/ops/env",)
    assert at_home(seen, "/") == "/"


def test_of_those_found_the_ones_with_the_package_are_meant_and_all_where_none_has_it() -> None:
    with_package, without = pictures.venv(path="/a"), pictures.venv(path="/b", package=Missing("not_found"))
    assert environments(view(venvs=[without, with_package])) == ("/a",)
    assert environments(view(venvs=[without])) == ("/b",)
    assert environments(view(venvs=[])) == ()


@pytest.mark.parametrize(
    ("host", "venv", "expected"),
    [
        (HostConfig("a", package_venv="/a"), "/a", True),
        (HostConfig("a", package_venv="/a", venvs=["/b"]), "/b", False),
        (HostConfig("a", venvs=["/b"]), "/b", True),
        (HostConfig("a", venvs=["/b", "/c"]), "/b", False),
    ],
)
def test_a_service_elsewhere_is_a_failure_only_where_it_is_plain_which_environment_it_should_start(
    host: HostConfig, venv: str, expected: bool
) -> None:
    fields = order(view(host), CONFIG, venv, (), is_deep=False).fields
    assert fields["is_package_venv"] is expected
    assert fields["package_venv"] == host.package_venv
    assert fields["brief"] == BRIEF
    assert order(view(host), CONFIG, venv, (), is_deep=True).fields["brief"] is None
    asked_once = order(view(host), CONFIG, venv, (), is_deep=False, is_brief=False)
    assert asked_once.fields["brief"] is None


def test_units_that_are_not_installed_are_not_asked_about() -> None:
    units = [pictures.unit(name="a.service"), pictures.unit(name="b.service", load="not-found")]
    assert order(view(units=units), CONFIG, "/a", (), is_deep=False).fields["units"] == ["a.service"]


def test_a_gpu_counts_as_busy_unless_it_is_known_to_be_idle() -> None:
    idle, hidden = pictures.gpu(0), pictures.gpu(1, hidden_memory=5)
    unknown, used = (
        pictures.gpu(2, processes=Missing("permission")),
        pictures.gpu(3, processes=[pictures.process()]),
    )
    seen = view(gpu=pictures.report(idle, hidden, unknown, used))
    gpus = order(seen, CONFIG, "/a", (), is_deep=True).deep_fields["gpus"]
    assert isinstance(gpus, list)
    assert [gpu["busy"] for gpu in gpus] == [False, True, True, True]


def test_a_tree_of_another_version_than_its_metadata_is_held_against_a_source_of_that_version() -> None:
    here = copied("0.5.11", "0.5.9")
    source = view(
        HostConfig("ct129", role="source"), venvs=[pictures.venv(package=pictures.package(version="0.5.11"))]
    )
    other = view(
        HostConfig("old", role="source"), venvs=[pictures.venv(package=pictures.package(version="0.5.10"))]
    )
    venv = here.snapshot.venvs[0].path if here.snapshot else ""
    found = source_of(here, venv, (other, here, source))
    assert found is not None
    assert found[0] == "ct129"
    assert source_of(here, venv, (other, here)) is None
    assert source_of(copied("0.5.9", "0.5.9"), venv, (source,)) is None


def test_more_of_the_picture_must_have_come_for_a_deep_verification_and_for_environments_to_be_found() -> (
    None
):
    assert needed_sections(HostConfig("a", venvs=["/a"]), None, is_deep=False) == {"units"}
    assert needed_sections(HostConfig("a"), "/a", is_deep=False) == {"units"}
    assert needed_sections(HostConfig("a"), None, is_deep=False) == {"units", "venvs"}
    assert needed_sections(HostConfig("a", venvs=["/a"]), None, is_deep=True) == {"units", "venvs", "gpu"}
