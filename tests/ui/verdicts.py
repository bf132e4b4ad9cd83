"""Verdicts as real hosts give them, and a source of them that a test fills."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dflash_console.config import HostConfig
from dflash_console.fleet import HostView
from dflash_console.verdict import Check, CheckState, Verdict, in_order
from tests.ui import builders
from tests.ui.builders import WALL

BASE = "/root/venv_sglang/lib/python3.12/site-packages/sglang"
MISSING = (
    "missing: sglang.srt.speculative.dflash_worker (or dflash_worker_v2); the folder "
    f"{BASE}/srt/speculative holds dflash_info.py and dflash_utils.py"
)
TRACE = (
    "Traceback (most recent call last):",
    '  File "<stdin>", line 14, in <module>',
    f'  File "{BASE}/__init__.py", line 21, in <module>',
    "    from sglang.srt.utils.hf_transformers_utils import get_config, get_generation_config, get_tokenizer",
    "ValueError: Either a revision or a version must be specified.",
)


def check(name: str, state: CheckState = "pass", detail: str = "", *evidence: str) -> Check:
    """One check."""
    return Check(name, state, detail, evidence)


GOOD = (
    check("python", "pass", "python 3.12.3, /root/venv_sglang/bin/python"),
    check("origin", "pass", f"{BASE}/__init__.py"),
    check(
        "modules",
        "pass",
        "dflash_worker, dflash_info, dflash_utils",
        *(f"{name}  {BASE}/{name.partition('.')[2].replace('.', '/')}.py" for name in builders.MODULES),
    ),
    check("find_spec", "pass", "all found, as one would type it over ssh"),
    check("shadow", "pass", "nothing shadows it"),
    check("nested", "pass", "no nested copy"),
    check("version", "pass", "0.5.13.post1, as installed"),
    check("record", "pass", "1,942 files as installed"),
    check("leftovers", "pass", "none"),
    check("bytecode", "pass", "none is stale"),
    check("links", "pass", "1,942 files with another name: hard links of uv's cache"),
    check("copy", "pass", "no copy was interrupted"),
    check("service sglang-dflash.service", "pass", "same origin"),
)


def but(*changed: Check) -> tuple[Check, ...]:
    """A good package's checks, these in place of those of the same name."""
    names = {item.name for item in changed}
    return in_order((*(item for item in GOOD if item.name not in names), *changed))


def ready(host: str = "ct129", venv: str = "/root/ml-env", *, age: float = 180.0) -> Verdict:
    """All is well."""
    return Verdict(host, venv, GOOD, at=WALL - age)


def not_ready(host: str = "ct200", venv: str = "/root/venv_sglang", *, age: float = 12.0) -> Verdict:
    """The modules are missing, the import raises, and a service starts another venv."""
    checks = but(
        check("modules", "fail", MISSING, *TRACE[:1]),
        check(
            "find_spec",
            "fail",
            "sglang itself does not import: ValueError: Either a revision or a version must be specified.",
            *TRACE,
        ),
        check("version", "warn", "tree 0.5.13.post1, dist-info 0.5.9: the tree was copied over"),
        check("record", "unknown", "RECORD is of 0.5.9 and can't vouch for a tree of 0.5.13.post1"),
        check("service sglang-dflash.service", "fail", "starts /root/venv, not this one"),
    )
    return Verdict(host, venv, checks, at=WALL - age)


def warned(host: str = "ct202", venv: str = "/opt/env") -> Verdict:
    """Ready, with something to look at."""
    checks = but(check("origin", "warn", "editable install from /root/src/sglang/python"))
    return Verdict(host, venv, checks, at=WALL - 4_000)


def verifying(host: str = "ct200", venv: str = "/root/venv_sglang") -> Verdict:
    """The fast answers are there."""
    return msgspec.structs.replace(
        ready(host, venv, age=0.3),
        checks=tuple(item for item in GOOD if item.name != "find_spec" and item.kind != "service"),
        waiting=("find_spec", "service"),
    )


def begun(host: str = "ct200", venv: str = "/root/venv_sglang") -> Verdict:
    """Nothing was answered yet."""
    return Verdict(host, venv, waiting=("files", "find_spec", "service"), at=WALL)


def stale(host: str = "ct129", venv: str = "/root/ml-env") -> Verdict:
    """It was ready."""
    return msgspec.structs.replace(ready(host, venv, age=300.0), stale="files of the package changed")


def deep(host: str = "ct129", venv: str = "/root/ml-env") -> Verdict:
    """Verified deeply, and the kernels do not fit."""
    checks = (
        check("requires", "warn", "19 of 113 pins are not met"),
        check("symbols", "fail", "sgl_kernel needs 7 symbols that torch 2.9.1+cu128 has not"),
        check("import sglang.srt.speculative.dflash_worker", "pass", "imported in 7.2 s"),
        check("cuda 0", "unknown", "in use by sglang-dflash: not disturbed"),
        check("cuda 1", "fail", "listed by NVML, not usable from CUDA: no device"),
    )
    return Verdict(host, venv, but(*checks), is_deep=True, at=WALL - 70)


def story() -> tuple[Verdict, ...]:
    """One verdict of each kind on the story's hosts."""
    return (
        ready(),
        not_ready(),
        msgspec.structs.replace(stale("ct200", "/root/venv"), checks=GOOD),
        begun("ct200", "/root/ml-env"),
    )


def crowded(count: int) -> tuple[tuple[HostView, ...], tuple[Verdict, ...]]:
    """A host with so many environments, every second one verified."""
    paths = [f"/srv/environments/venv-sglang-{number:02d}" for number in range(count)]
    picture = builders.snapshot(
        "crowd", venvs=[builders.venv(path, package=builders.package(path)) for path in paths]
    )
    verdicts = [
        ready("crowd", path) if number % 4 == 0 else not_ready("crowd", path)
        for number, path in enumerate(paths)
        if number % 2 == 0
    ]
    return (builders.view(HostConfig("crowd", address="10.1.2.50"), picture),), tuple(verdicts)


class StubVerdicts:
    """Stands for `Verdicts`: shows what the test gives it, and notes what it is asked."""

    def __init__(self, verdicts: Sequence[Verdict] = (), *, refusals: dict[str, str] | None = None) -> None:
        self.shown = list(verdicts)
        self.refusals = refusals or {}
        self.asked: list[tuple[str, str | None, bool]] = []

    def of(self, host: str) -> tuple[Verdict, ...]:
        """What the test set."""
        return tuple(verdict for verdict in self.shown if verdict.host == host)

    def ask(self, host: str, venv: str | None = None, *, is_deep: bool = False) -> str:
        """Noted, unless the test has it refused."""
        if host in self.refusals:
            return self.refusals[host]
        self.asked.append((host, venv, is_deep))
        return ""

    def refresh(self) -> None:
        """Nothing changes by itself."""

    def put(self, verdict: Verdict) -> None:
        """In place of the one on the same environment."""
        others = [(other.host, other.venv) for other in self.shown]
        key = (verdict.host, verdict.venv)
        if key in others:
            self.shown[others.index(key)] = verdict
        else:
            self.shown.append(verdict)
