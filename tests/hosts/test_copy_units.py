"""Copies into environments that something runs from, or that somebody holds, on real hosts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_console.copies import Consent
from tests.hosts.copies import configured, console, content, copying_command, journal, outcome, pair
from tests.hosts.fleet import Fleet
from tests.hosts.host import Host
from tests.hosts.proofs import STABLE, site_of, verify_json
from tests.hosts.story import add_unit
from tests.hosts.watching import Watching
from tests.waiting import until_sync

pytestmark = pytest.mark.timeout(300)

UNIT = "sglang-held.service"
PROGRAM = "/srv/sglang/hold.py"
HOLD = """
import hashlib, importlib.util, mmap, os, sys
site = importlib.util.find_spec("sglang").submodule_search_locations[0]
held = os.open(site, os.O_RDONLY)
file = open(site + "/version.py", "rb")
mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
os.chdir(held)
turn = 0
while True:
    turn += 1
    with open("version.py", "rb") as file:
        found = hashlib.sha256(file.read()).hexdigest()
    same = found == hashlib.sha256(mapped).hexdigest()
    with open("/run/held.new", "w") as file:
        file.write(f"{turn} {found} {same}")
    os.rename("/run/held.new", "/run/held")
    os.sched_yield()
    __import__("select").select([], [], [], 0.02)
"""
"""Holds the tree that it began with in every way: by working directory, descriptor and mapping."""
HELD = """\
[Service]
ExecStart={venv}/bin/python -I {program}
"""


@pytest.fixture
def host(places: Fleet) -> Iterator[Host]:
    """The target, with a program that holds the package it was started with."""
    host = places["ct200"]
    host.run(f"mkdir -p {Path(PROGRAM).parent}")
    host.write(PROGRAM, HOLD)
    yield host
    host.run(f"systemctl stop {UNIT}; rm -rf /srv/sglang /srv/link /run/held", check=False)


def start(host: Host, venv: str) -> None:
    add_unit(host, UNIT, HELD.format(venv=venv, program=PROGRAM))
    host.run(f"systemctl start {UNIT}")
    until_sync(lambda: told(host)[0] > 1, 30, "the service turns")


def told(host: Host) -> tuple[int, str, str]:
    """What the service has written last: its turn, the hash of what it holds, whether its mapping is the same."""
    turn, found, same = host.run("cat /run/held 2>/dev/null || echo 0 - -").split()
    return int(turn), found, same


def main_pid(host: Host) -> str:
    return host.run(f"systemctl show --property=MainPID,NRestarts {UNIT}")


def test_a_service_that_runs_from_there_needs_its_own_yes_and_goes_on_undisturbed(
    places: Fleet, host: Host, tmp_path: Path
) -> None:
    source, target = pair(places, new=STABLE)
    old, running = content(host, target), None
    start(host, target.venv)
    running = main_pid(host)
    version = hashlib.sha256((site_of(host, target.venv) / "sglang/version.py").read_bytes()).hexdigest()
    config = configured(tmp_path, places, source, target, units=[UNIT])

    code, (result,), said = outcome(copying_command(config, source, target))
    assert (code, result["state"]) == (4, "refused"), result
    assert "it needs --allow running" in result["detail"]
    assert UNIT in result["detail"]
    assert content(host, target) == old
    assert journal(host, target) == [], "nothing was begun"

    words = ("--yes", "--allow", "running")
    code, (result,), said = outcome(copying_command(config, source, target, words=words))
    assert (code, result["state"]) == (0, "done"), (result, said)
    assert f"service {UNIT}: running the old package, restart needed" in result["detail"], result
    new = content(host, target)
    assert f"sglang-{STABLE}.dist-info/METADATA" in new
    assert (site_of(host, target.venv) / "sglang/version.py").exists()

    assert main_pid(host) == running, "it was neither stopped nor started"
    turn = told(host)[0]
    until_sync(lambda: told(host)[0] > turn + 5, 30, "it goes on")
    assert told(host)[1:] == (version, "True"), "what it holds is what it began with"
    code, (verdict,), _ = verify_json(config, "ct200")
    assert code == 1
    (service,) = (check for check in verdict["checks"] if check["name"] == f"service {UNIT}")
    assert service["state"] == "fail"
    assert service["detail"].startswith("running the old package, restart needed: started ")


async def test_a_service_that_begins_after_the_plan_is_seen_through_a_link(
    places: Fleet, host: Host, tmp_path: Path
) -> None:
    source, target = pair(places, new=STABLE)
    old = content(host, target)
    host.run(f"ln -s {target.venv} /srv/link")
    async with console(tmp_path, places, source, target, units=[UNIT]) as one:
        plan = await one.plan(source, target)
        assert plan.targets[0].needs == ()
        start(host, "/srv/link")
        await one.watch.until(lambda: runs(one.watch), "the console sees the service")
        (run,) = await one.copy(plan)
        assert run.state == "refused", run
        assert run.detail.startswith(f"unit {UNIT}")
        assert f" began to run from {target} after the plan was made" in run.detail
        assert content(host, target) == old

        plan = await one.plan(source, target)
        (need,) = plan.targets[0].needs
        assert need.code == "running"
        assert f"unit {UNIT}; process " in need.text
        (run,) = await one.copy(plan)
        assert run.state == "refused"
        (run,) = await one.copy(plan, consent=Consent(yes=True, allowed=frozenset({"running"})))
        assert run.state == "done", run
        assert "restart needed" in run.detail


def runs(watch: Watching) -> bool:
    unit = watch.unit("ct200", UNIT)
    return unit.active == "active" and unit.venv == "/srv/link"


HOLDER = """
import fcntl, json, os, sys, time
file = open(sys.argv[1] + "/.dflash-console/lock", "r+")
fcntl.flock(file, fcntl.LOCK_EX)
file.truncate(0)
since = 1740783600  # 2025-02-28 23:00:00 UTC
json.dump({"by": "ana@desk", "since": since, "what": "copy from ct129", "pid": os.getpid()}, file)
file.flush()
print("held", flush=True)
time.sleep(100000)
"""


async def test_who_holds_an_environment_is_told_with_the_day_since_when(
    places: Fleet, host: Host, tmp_path: Path
) -> None:
    source, target = pair(places, new=STABLE)
    async with console(tmp_path, places, source, target) as one:
        await one.copied(source, target)
        patched = site_of(places["kpro6"], source.venv) / "sglang/version.py"
        patched.unlink()
        patched.write_text("__version__ = 'patched'\n")
        plan = await one.plan(source, target)
        before = content(host, target)
        host.write("/srv/sglang/holder.py", HOLDER)
        command = f"python3 /srv/sglang/holder.py {target.venv} >/run/holder 2>&1 </dev/null & echo $!"
        pid = host.run(command).strip()
        try:
            until_sync(lambda: "held" in host.run("cat /run/holder"), 30, "another one holds it")
            (run,) = await one.copy(plan)
            words = "held by ana@desk since 2025-02-28 23:00:00 UTC (copy from ct129): wait for its end and plan again"
            assert (run.state, run.detail) == ("refused", words)
            held = await one.plan(source, target)
            (failed,) = held.targets[0].failed
            assert failed.name == "lock"
            assert "held by ana@desk (copy from ct129, since 2025-02-28 23:00:00 UTC)" in failed.detail
            assert content(host, target) == before
        finally:
            host.run(f"kill {pid}; rm -f /run/holder")
        (run,) = await one.copied(source, target)
        assert run.state == "done"
