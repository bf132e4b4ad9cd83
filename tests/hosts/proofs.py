"""Environments to be proved, on real hosts: each state that the story's packages went through, and what the console
has to say of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.hosts.commands import sh
from tests.hosts.fleet import Fleet
from tests.hosts.host import Host
from tests.hosts.layout import put
from tests.hosts.venvs import lay_venv, lay_wheel, reach_needs, site_packages
from tests.waiting import until_sync
from tests.wheels import wheel

__all__ = [
    "CASES",
    "FOLDER",
    "NEWEST",
    "STABLE",
    "TABLES",
    "UNIT",
    "Case",
    "lay_cases",
    "lay_hanging",
    "lay_proof",
    "remove_cases",
    "site_of",
    "verify_json",
]

FOLDER = "/var/lib/proofs"
OLD, STABLE, NEWEST = "0.5.9", "0.5.13.post1", "0.5.23"
SPECULATIVE = "sglang/srt/speculative"
TREES, SOURCE, UNITS = "ct200", "ct129", "kpro6"
"""The hosts: with trees in every state, where copies come from, with units that start the package."""
ELSEWHERE, SHADOWED, OLDER = (f"sglang-{word}.service" for word in ("elsewhere", "shadowed", "older"))
UNIT = "[Service]\nExecStart={venv}/bin/python {words}\nWorkingDirectory={folder}\n"
LAUNCH = "-m sglang.launch_server --model-path /models/Qwen3.6-27B --speculative-algorithm DFLASH"
SERVE = "-m http.server --bind 127.0.0.1 30011 --directory /srv/sglang"
"""Stands for the server: it stays, and its command line names the package."""


@dataclass(frozen=True)
class Case:
    """One environment: the state of its package, the one verdict on it and the one check that says why."""

    name: str
    host: str
    is_ready: bool
    check: str = ""
    """The check with the reason; none where all is well."""
    words: str = ""
    """What its line has to say."""
    others: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Further checks that do not pass, with their state: consequences of the same fault."""

    @property
    def venv(self) -> str:
        """Its path on the host."""
        return f"{FOLDER}/{self.name}"


def _others(**states: str) -> MappingProxyType[str, str]:
    return MappingProxyType(states)


NO_MODULES = "missing: dflash_worker (or dflash_worker_v2), dflash_info, dflash_utils"
CASES = (
    Case("pypi", TREES, False, "modules", NO_MODULES, _others(find_spec="fail")),
    Case("stable", TREES, True),
    Case("newest", TREES, True),
    Case(
        "nested",
        TREES,
        False,
        "modules",
        f"{NO_MODULES}; they lie in the nested",
        _others(find_spec="fail", nested="warn", record="warn"),
    ),
    Case(
        "overlaid",
        TREES,
        True,
        "leftovers",
        f"files of {OLD} below the tree of {STABLE}",
        _others(version="warn", record="unknown"),
    ),
    Case(
        "swapped",
        TREES,
        True,
        "version",
        f"tree {STABLE}, dist-info {OLD}: the tree was copied over",
        _others(record="unknown"),
    ),
    Case("minor", TREES, True, "python", "1 compiled for another Python: srt/grpc/_core.cpython-312-"),
    Case("emptied", TREES, False, "modules", "empty: dflash_utils", _others(record="fail", find_spec="fail")),
    Case(
        "editable",
        TREES,
        True,
        "origin",
        f"an editable install of {FOLDER}/checkout",
        _others(record="unknown"),
    ),
    Case(
        "raises",
        TREES,
        False,
        "find_spec",
        "sglang itself does not import: ModuleNotFoundError: No module named 'numpy'",
    ),
    Case(
        "shadowed",
        UNITS,
        False,
        f"service {SHADOWED}",
        f"the working directory {FOLDER}/folder comes first: imports {FOLDER}/folder/sglang/__init__.py, not",
    ),
    Case(
        "older",
        UNITS,
        False,
        f"service {OLDER}",
        "running the old package, restart needed: started ",
        _others(record="warn"),
    ),
    Case(
        "elsewhere",
        SOURCE,
        False,
        f"service {ELSEWHERE}",
        f"starts /root/ml-env, not this one ({FOLDER}/elsewhere)",
    ),
)
TABLES: dict[str, dict[str, object]] = {
    TREES: {"venvs": [case.venv for case in CASES if case.host == TREES]},
    UNITS: {"venvs": [case.venv for case in CASES if case.host == UNITS], "units": [SHADOWED, OLDER]},
    SOURCE: {"package_venv": f"{FOLDER}/elsewhere", "units": [ELSEWHERE]},
}


# ---- laying


def site_of(host: Host, venv: str) -> Path:
    """An environment's site-packages, as this machine sees it."""
    return host.root / site_packages(venv).lstrip("/")


def lay_proof(host: Host, name: str, version: str = STABLE, *, reaches: bool = True) -> str:
    """An environment with a whole package, which can be imported if it `reaches` what it needs; gives its path."""
    venv = f"{FOLDER}/{name}"
    lay_venv(host, venv)
    lay_wheel(host, venv, wheel(version))
    if reaches:
        reach_needs(host, venv)
    return venv


def lay_hanging(host: Host, name: str) -> str:
    """An environment whose package is whole and hangs when it is imported; gives its path."""
    venv = f"{FOLDER}/{name}"
    site = lay_venv(host, venv)
    put(host.root, f"{site}/sglang/__init__.py", "import time\ntime.sleep(100000)\n")
    for module in ("dflash_worker", "dflash_info", "dflash_utils"):
        put(host.root, f"{site}/{SPECULATIVE}/{module}.py", "x = 1\n")
    return venv


def lay_cases(fleet: Fleet) -> None:
    """All of them on hosts that are up."""
    units = fleet[UNITS]
    older = lay_proof(units, "older")
    put(units.root, f"/etc/systemd/system/{OLDER}", UNIT.format(venv=older, words=SERVE, folder="/"))
    units.run(f"mkdir -p /srv/sglang; systemctl daemon-reload; systemctl start {OLDER}")
    started = until_sync(lambda: _clock(units), 30, "the host tells its time")
    shadowed = lay_proof(units, "shadowed")
    put(
        units.root,
        f"/etc/systemd/system/{SHADOWED}",
        UNIT.format(venv=shadowed, words=LAUNCH, folder=f"{FOLDER}/folder"),
    )
    put(units.root, f"{FOLDER}/folder/sglang/__init__.py", "x = 1\n")

    source = fleet[SOURCE]
    lay_proof(source, "elsewhere")
    put(
        source.root,
        f"/etc/systemd/system/{ELSEWHERE}",
        UNIT.format(venv="/root/ml-env", words=LAUNCH, folder="/"),
    )
    source.run("systemctl daemon-reload")
    _lay_trees(fleet)

    until_sync(lambda: _clock(units) > started + 2, 30, "the change comes later than the start")
    units.run(
        f"cd {site_packages(older)}; cp -a sglang next; echo '# patched' >> next/utils.py; "
        "rm -r sglang; mv next sglang; systemctl daemon-reload"
    )


def _lay_trees(fleet: Fleet) -> None:
    host = fleet[TREES]
    for name, version in (
        ("pypi", OLD),
        ("nested", OLD),
        ("overlaid", OLD),
        ("swapped", OLD),
        ("newest", NEWEST),
    ):
        lay_proof(host, name, version)
    for name in ("stable", "minor", "emptied"):
        lay_proof(host, name)
    lay_proof(host, "raises", reaches=False)
    _nest(fleet)
    tree = wheel(STABLE) / "sglang"
    sh("cp", "--archive", f"{tree}/.", site_of(host, f"{FOLDER}/overlaid") / "sglang")
    swapped = site_of(host, f"{FOLDER}/swapped")
    sh("rm", "-r", swapped / "sglang")
    sh("cp", "--archive", tree, swapped)
    _lay_editable(host)
    emptied = site_of(host, f"{FOLDER}/emptied") / SPECULATIVE / "dflash_utils.py"
    emptied.write_text("")
    _lay_for_another_python(site_of(host, f"{FOLDER}/minor"))


def _nest(fleet: Fleet) -> None:
    """As in the story: the whole package onto the folder that is there, by way of this machine."""
    package = f"{site_packages('/root/ml-env')}/sglang"
    onto = f"{site_packages(f'{FOLDER}/nested')}/sglang"
    sh("scp", "-F", fleet.ssh_config, "-3", "-q", "-r", f"{SOURCE}:{package}", f"{TREES}:{onto}", timeout=240)


def _lay_editable(host: Host) -> None:
    """What `pip install --editable` leaves, of a checkout beside the environment."""
    venv, checkout = f"{FOLDER}/editable", f"{FOLDER}/checkout/python"
    lay_venv(host, venv)
    reach_needs(host, venv)
    site = site_of(host, venv)
    (host.root / checkout.lstrip("/")).mkdir(parents=True)
    sh("cp", "--archive", wheel(STABLE) / "sglang", host.root / checkout.lstrip("/"))
    info = f"sglang-{STABLE}.dist-info"
    sh("cp", "--archive", wheel(STABLE) / info, site)
    pth = f"__editable__.sglang-{STABLE}.pth"
    (site / pth).write_text(f"{checkout}\n")
    (site / info / "RECORD").write_text(
        f"{pth},,\n{info}/METADATA,,\n{info}/direct_url.json,,\n{info}/RECORD,,\n"
    )
    (site / info / "direct_url.json").write_text(
        json.dumps({"url": f"file://{checkout}", "dir_info": {"editable": True}})
    )


def _lay_for_another_python(site: Path) -> None:
    """The same package as it is built for the next Python: its compiled file bears another name."""
    (compiled,) = site.glob("sglang/**/*.cpython-311-*.so")
    other = compiled.with_name(compiled.name.replace("cpython-311", "cpython-312"))
    compiled.rename(other)
    record = site / f"sglang-{STABLE}.dist-info/RECORD"
    record.write_text(record.read_text().replace(compiled.name, other.name))


def _clock(host: Host) -> int:
    return int(host.run("date +%s"))


def remove_cases(fleet: Fleet) -> None:
    """Takes all of it away again."""
    for host in fleet:
        names = " ".join((ELSEWHERE, SHADOWED, OLDER))
        host.run(f"systemctl stop {names}", check=False)
        host.run(
            f"cd /etc/systemd/system; rm -f {names}; systemctl daemon-reload; rm -rf {FOLDER} /srv/sglang"
        )


# ---- asking


def verify_json(config: Path, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    """Runs `dflash-console verify --json`: exit code, results, stderr."""
    command: Sequence[str | Path] = (
        Path(sys.executable).with_name("dflash-console"),
        "--config",
        config,
        "verify",
        "--json",
        *words,
    )
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=280,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.stdout.strip(), f"exit {done.returncode}, nothing on stdout: {done.stderr}"
    return done.returncode, json.loads(done.stdout)["results"], done.stderr
