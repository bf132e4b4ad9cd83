"""`verify` over real SSH, on packages in every state that the story went through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dflash_console.config import load
from dflash_console.operations.verdicts import Verdicts
from dflash_console.verdict import Verdict
from tests import cuda
from tests.compiled import FITTING, OLDER, TORCH, real
from tests.hosts.commands import sh
from tests.hosts.fleet import Fleet
from tests.hosts.gpus import CARDS
from tests.hosts.host import AGENT_MARK, Host
from tests.hosts.proofs import (
    CASES,
    FOLDER,
    TABLES,
    UNIT,
    Case,
    lay_cases,
    lay_hanging,
    lay_proof,
    remove_cases,
    site_of,
    verify_json,
)
from tests.hosts.story import add_unit
from tests.hosts.venvs import site_packages
from tests.hosts.watching import Watching, config_file, watching
from tests.waiting import until_sync

pytestmark = pytest.mark.timeout(900)

Row = dict[str, Any]


@pytest.fixture(scope="module")
def laid(fleet: Fleet) -> Iterator[Fleet]:
    """The hosts, with an environment in each state."""
    try:
        lay_cases(fleet)
        yield fleet
    finally:
        remove_cases(fleet)


@pytest.fixture(scope="module")
def told(
    laid: Fleet, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, dict[tuple[str, str], Row], str]:
    """What one command says of all of them: exit code, a row for each, stderr."""
    code, rows, stderr = verify_json(config_file(tmp_path_factory.mktemp("verify"), laid, TABLES))
    return code, {(row["host"], row["venv"]): row for row in rows}, stderr


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_state_of_a_package_has_one_verdict_and_one_reason(
    told: tuple[int, dict[tuple[str, str], Row], str], case: Case
) -> None:
    row = told[1][case.host, case.venv]
    checks = {check["name"]: check for check in row["checks"]}
    odd = {name: check["state"] for name, check in checks.items() if check["state"] != "pass"}
    assert row["ready"] is case.is_ready, odd
    state = "warn" if case.is_ready else "fail"
    assert odd == {**({case.check: state} if case.check else {}), **case.others}, checks
    if case.check:
        assert case.words in checks[case.check]["detail"]
        assert checks[case.check]["evidence"] or case.is_ready


def test_all_hosts_are_told_in_one_answer(told: tuple[int, dict[tuple[str, str], Row], str]) -> None:
    code, rows, stderr = told
    assert code == 1
    assert list(rows) == [(case.host, case.venv) for case in CASES]
    for case in CASES:
        assert f"{case.host} {case.venv}: {'ready' if case.is_ready else 'not ready ('}" in stderr


def states(row: Row) -> dict[str, str]:
    """The checks that do not pass."""
    return {check["name"]: check["state"] for check in row["checks"] if check["state"] != "pass"}


def detail(row: Row, name: str) -> str:
    """A check's one line."""
    (found,) = [check["detail"] for check in row["checks"] if check["name"] == name]
    return str(found)


def test_the_logins_home_that_shadows_the_package_is_told(laid: Fleet, hosts: Fleet, tmp_path: Path) -> None:
    host, venv = hosts["ct129"], f"{FOLDER}/elsewhere"
    host.write("/root/sglang/__init__.py", "x = 1\n")
    try:
        code, (row,), _ = verify_json(config_file(tmp_path, hosts, {"ct129": {"venvs": [venv], "units": []}}))
    finally:
        host.run("rm -r /root/sglang")
    assert (code, row["ready"], states(row)) == (1, False, {"find_spec": "fail"})
    expected = f"/root/sglang/__init__.py, not {site_packages(venv)}/sglang/__init__.py"
    assert f"the working directory /root comes first: imports {expected}" in detail(row, "find_spec")


# ---- verdicts that are kept


@asynccontextmanager
async def running(watch: Watching, config: Path) -> AsyncIterator[Verdicts]:
    """The console's verdicts over its fleet, which look at the files again and again."""
    verdicts = Verdicts(watch.fleet, load(config, {}), recheck=0.2)
    try:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(verdicts.run())
            try:
                yield verdicts
            finally:
                task.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:  # a test's own failure, said plainly
            raise group.exceptions[0] from None
        raise


def complete(verdicts: Verdicts, host: str, venv: str) -> Verdict | None:
    """A verdict once nothing of it is under way; fails with what is."""
    found = {verdict.venv: verdict for verdict in verdicts.of(host)}
    assert venv in found, "not asked yet"
    assert not found[venv].waiting, found[venv].waiting
    return found[venv]


async def test_a_verdict_is_kept_until_what_it_stands_on_changes(
    laid: Fleet, hosts: Fleet, tmp_path: Path
) -> None:
    host, name = hosts["ct129"], "sglang-kept.service"
    venv = lay_proof(host, "kept")
    add_unit(host, name, UNIT.format(venv=venv, words="-m sglang.launch_server", folder="/"))
    config = config_file(tmp_path, hosts, {"ct129": {"package_venv": venv, "units": [name]}})
    async with watching(config) as watch, running(watch, config) as verdicts:
        await watch.until_whole("ct129")

        def proved() -> Verdict | None:
            return complete(verdicts, "ct129", venv)

        def stale() -> str:
            verdicts.refresh()
            (verdict,) = verdicts.of("ct129")
            return verdict.stale

        assert verdicts.ask("ct129") == ""
        verdict = await watch.until(proved, "the package is proved")
        assert verdict.is_ready
        assert {check.state for check in verdict.checks} == {"pass"}
        assert f"service {name}" in {check.name for check in verdict.checks}
        await watch.until_sampled("ct129", 3)
        assert stale() == "", "what the verification itself did is no change"

        host.run(f"echo '# patched' >> {site_packages(venv)}/sglang/srt/speculative/dflash_utils.py")
        assert await watch.until(stale, "it is stale") == "files of the package changed"
        assert verdicts.ask("ct129") == ""
        await watch.until(lambda: not stale() and proved(), "it is proved anew")
        (verdict,) = verdicts.of("ct129")
        assert [(check.name, check.state) for check in verdict.warnings] == [("record", "warn")]

        add_unit(host, name, UNIT.format(venv="/root/ml-env", words="-m sglang.launch_server", folder="/"))
        assert await watch.until(stale, "it is stale") == "a unit changed"


async def test_a_link_that_is_cut_leaves_every_part_unknown_with_the_reason(
    laid: Fleet, hosts: Fleet, tmp_path: Path
) -> None:
    host, name = hosts["ct200"], "sglang-hangs.service"
    hanging, other = lay_hanging(host, "hangs"), f"{FOLDER}/stable"
    add_unit(host, name, UNIT.format(venv=hanging, words="-m sglang.launch_server", folder="/"))
    tables: dict[str, dict[str, object]] = {
        "ct200": {"units": [name]},
        "ct129": {"units": []},
        "kpro6": {"units": []},
    }
    config = config_file(tmp_path, hosts, tables)
    async with watching(config) as watch, running(watch, config) as verdicts:
        await watch.until_whole(*tables)
        assert verdicts.ask("ct200", hanging) == ""
        await watch.until(
            lambda: verdicts.of("ct200") and verdicts.of("ct200")[0].waiting == ("find_spec", "service"),
            "the files are told and the imports hang",
        )
        await watch.until(lambda: len(left(host, f"{hanging}/bin/")) == 2, "both imports are under way")
        host.cut()
        assert verdicts.ask("ct200", other) == ""
        assert verdicts.ask("ct129", f"{FOLDER}/elsewhere") == ""
        assert verdicts.ask("kpro6", f"{FOLDER}/shadowed") == ""
        cut = await watch.until(lambda: complete(verdicts, "ct200", hanging), "it ends")
        unasked = await watch.until(lambda: complete(verdicts, "ct200", other), "it ends")
        for verdict, lost in ((cut, ("find_spec", "service")), (unasked, ("files", "find_spec", "service"))):
            unknown = {check.name: check.detail for check in verdict.checks if check.state == "unknown"}
            assert {*lost} <= {*unknown}
            assert all("no answer" in unknown[part] or "not connected" in unknown[part] for part in lost), (
                unknown
            )
            assert not verdict.is_ready
        assert {check.name for check in unasked.checks} == {"files", "find_spec", "service"}
        assert "origin" in {check.name for check in cut.checks if check.state == "pass"}
        for there, venv in (("ct129", "elsewhere"), ("kpro6", "shadowed")):
            answered = await watch.until(
                lambda there=there, venv=venv: complete(verdicts, there, f"{FOLDER}/{venv}"),  # type: ignore[misc]
                f"{there} is answered",
            )
            assert answered.is_ready, answered.reasons
        gone = f"{hanging}/bin/", AGENT_MARK
        await watch.until(lambda: not left(host, *gone), "no process stays on the host that nobody hears")
        host.mend()
        await watch.until_link("ct200", "up")
    until_sync(lambda: not any(left(each, *gone) for each in hosts), 60, "no process is left on any host")


def left(host: Host, *marks: str) -> list[str]:
    """The commands that run on a host and hold one of the marks."""
    commands = [process.command for process in host.processes()]
    return [command for command in commands if any(mark in command for mark in marks)]


# ---- deep


def test_deep_checks_tell_a_kernel_that_fits_and_a_gpu_that_cuda_can_not_use(
    laid: Fleet, hosts: Fleet, tmp_path: Path
) -> None:
    host = hosts["ct129"]
    for name, kernel in (("fits", FITTING), ("unfit", OLDER)):
        site = site_of(host, lay_proof(host, name, reaches=False))
        for tree in (real(TORCH), real(kernel)):
            sh("cp", "--archive", "--sparse=always", f"{tree}/.", site)
    healthy, dead = (card.uuid for card in CARDS["ct129"])
    host.write("/usr/lib/x86_64-linux-gnu/libcuda.so.1", cuda.build(tmp_path / "cuda").read_bytes(), 0o755)
    state = (
        f"gpu {healthy} NVIDIA RTX A6000\ngpu {dead} NVIDIA RTX A6000\nerror cuDevicePrimaryCtxRetain 46\n"
    )
    host.write("/var/lib/standin-cuda", state)
    host.write("/etc/environment", f"{cuda.ENVIRONMENT}=/var/lib/standin-cuda\n")
    venvs = [f"{FOLDER}/fits", f"{FOLDER}/unfit"]
    config = config_file(tmp_path, hosts, {"ct129": {"venvs": venvs, "units": []}})
    code, rows, _ = verify_json(config, "--deep")
    assert code == 1
    fits, unfit = rows
    assert [row["deep"] for row in rows] == [True, True]
    assert detail(fits, "symbols").startswith("torch 2.13.0+cu130 defines all ")
    assert "symbols" not in states(fits)
    assert states(unfit)["symbols"] == "fail"
    assert "at::cuda::getCurrentCUDABlasHandle()" in detail(unfit, "symbols")
    for row in rows:
        odd = states(row)
        assert f"cuda {healthy}" not in odd
        assert "opened and closed a context" in detail(row, f"cuda {healthy}")
        assert odd[f"cuda {dead}"] == "fail"
        assert "cuDevicePrimaryCtxRetain: error 46 " in detail(row, f"cuda {dead}")
        assert not {"pins", "abi", "import", "cuda"} & odd.keys(), "each part is told by its checks"
