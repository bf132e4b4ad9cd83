"""Copies and rollbacks from version to version on real hosts, as pip and a process that imports see them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dflash_console.copies import Consent, Side, TargetRun
from dflash_console.operations.copying import roll_back
from dflash_console.operations.planning import plan_roll_back
from tests.hosts.copies import BY, Console, beside, console, content, lay, left, pair
from tests.hosts.fleet import Fleet
from tests.hosts.host import Host
from tests.hosts.proofs import FOLDER, NEWEST, OLD, STABLE, site_of
from tests.hosts.venvs import lay_venv
from tests.waiting import until, until_sync

pytestmark = pytest.mark.timeout(300)

RUNNING = Consent(yes=True, allowed=frozenset({"running"}))


async def put_back(one: Console, target: Side, version: str) -> TargetRun:
    """A rollback to the newest backup of a version."""
    plan = await plan_roll_back(one.watch.fleet, one.config, target)
    assert plan.look is not None
    backup = next(backup.id for backup in plan.look.backups if backup.version == version)
    fleet, config = one.watch.fleet, one.config
    run = await roll_back(
        fleet, config, target, backup, RUNNING, lambda run: None, read_only=False, by=BY, look=None
    )
    assert run.state == "done", run
    return run


# ---- pip


def pip(host: Host, side: Side, *words: str) -> str:
    """Debian's pip, at work in an environment that has none."""
    return host.run(f"python3 -m pip --no-input --disable-pip-version-check --python {side.venv}/bin/python "
                    f"{' '.join(words)}")  # fmt: skip


def shown(host: Host, side: Side) -> dict[str, str]:
    lines = pip(host, side, "show", "sglang").splitlines()
    return dict(line.split(": ", 1) for line in lines if ": " in line)


async def test_pip_knows_what_was_copied_and_put_back_and_takes_it_away_whole(
    places: Fleet, tmp_path: Path
) -> None:
    source, target = pair(places)
    bare = Side("ct129", f"{FOLDER}/bare")
    lay_venv(places["ct129"], bare.venv)
    before = beside(places["ct129"], bare)
    lay(places["ct129"], "bare", OLD)
    needs = "what-sglang-needs.pth"
    (site_of(places["ct129"], bare.venv) / needs).write_text(
        (site_of(places["ct200"], target.venv) / needs).read_text()
    )
    here, there = places["kpro6"], places["ct200"]
    old, names = content(there, target), beside(there, target)
    async with console(tmp_path, places, source, target, bare) as one:
        await one.copied(source, target, bare)
        assert content(there, target) == content(here, source)
        told = shown(there, target)
        site = "/" + str(site_of(there, target.venv).relative_to(there.root))
        assert (told["Version"], told["Location"]) == (NEWEST, site)

        run = await put_back(one, target, OLD)
        assert run.swap == "exchange"
        assert content(there, target) == old
        assert beside(there, target) == names
        assert left(there, target) == []
        assert shown(there, target)["Version"] == OLD

    said = pip(places["ct129"], bare, "uninstall", "--yes", "sglang")
    assert f"Successfully uninstalled sglang-{NEWEST}" in said
    assert beside(places["ct129"], bare) == sorted([*before, needs])


# ---- a process that imports

MODULES = (
    "sglang",
    "sglang.version",
    "sglang.utils",
    "sglang.lang",
    "sglang.lang.ir",
    "sglang.lang.api",
    "sglang.lang.choices",
    "sglang.lang.interpreter",
    "sglang.lang.backend.runtime_endpoint",
    "sglang.srt",
    "sglang.srt.speculative",
)
IMPORTER = """
import importlib, json, os, sys, traceback
site, names = sys.argv[1], sys.argv[2].split(",")
whole, struck, wrong = {}, [], []
last = None
while not os.path.exists("/run/enough"):
    before = os.stat(site + "/sglang").st_ino  # never absent
    for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    try:
        trees, error = sorted({importlib.import_module(name).TREE for name in names}), ""
    except Exception:
        trees, error = [], traceback.format_exc()
    if before != os.stat(site + "/sglang").st_ino:
        struck.append([trees, error[-300:]])
    elif len(trees) != 1:
        wrong.append([trees, error])
    else:
        whole[trees[0]] = whole.get(trees[0], 0) + 1
        if last != trees[0]:
            last = trees[0]
            with open("/run/seen", "a") as file:
                print(last, file=file)
with open("/run/imported", "w") as file:
    json.dump({"whole": whole, "struck": struck, "wrong": wrong}, file)
"""
"""Bytecode is written, as ever: what is imported after a swap must not be the code of before it."""


def mark(host: Host, side: Side, name: str) -> None:
    """Has the modules say which tree they are of: a patched tree, as those that are copied are."""
    for module in MODULES:
        path = site_of(host, side.venv) / module.replace(".", "/")
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        text = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
        path.write_text(f"{text}\nTREE = {name!r}\n")


async def test_a_process_that_imports_all_the_time_gets_each_package_whole(
    places: Fleet, tmp_path: Path, figures: list[str]
) -> None:
    newest, target = pair(places)
    stable = lay(places["ct129"], "stable", STABLE)
    host = places["ct200"]
    for side, name in ((target, OLD), (stable, STABLE), (newest, NEWEST)):
        mark(places[side.host], side, name)
    site = "/" + str(site_of(host, target.venv).relative_to(host.root))
    host.write("/root/importer.py", IMPORTER)
    command = f"{target.venv}/bin/python -I /root/importer.py {site} {','.join(MODULES)}"
    host.run(f"rm -f /run/enough /run/seen; {command} >/run/said 2>&1 </dev/null & echo started")

    def seen() -> list[str]:
        return host.run("cat /run/seen /run/said 2>/dev/null", check=False).split()

    awaited = [OLD]

    def is_seen() -> bool:
        assert seen() == awaited, seen()
        return True

    until_sync(is_seen, 60, "the old one is imported")
    async with console(tmp_path, places, stable, newest, target) as one:
        for origin, name in ((stable, STABLE), (newest, NEWEST), (None, OLD), (None, STABLE)):
            if origin is None:
                run = await put_back(one, target, name)
            else:
                (run,) = await one.copy(await one.plan(origin, target), consent=RUNNING)
            assert (run.state, run.swap) == ("done", "exchange"), run.detail
            awaited.append(name)
            await until(is_seen, 60, f"{name} is imported, and no other one")
    host.run("touch /run/enough")
    until_sync(lambda: host.run("ls /run/imported", check=False), 60, "the importer ends")
    found = json.loads(host.run("cat /run/imported; rm -f /run/enough /run/seen /run/said /run/imported"))
    figures.append(
        f"imported while 4 swaps went on: {found['whole']} whole, {len(found['struck'])} struck by one"
    )
    assert found["wrong"] == []
    assert set(found["whole"]) == {OLD, STABLE, NEWEST}
    # Python opens by name: an import that is under way in the instant of a swap may end in the other tree.
    assert len(found["struck"]) <= 4, found["struck"]
    assert min(found["whole"].values()) >= 1
