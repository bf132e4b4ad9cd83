"""Asks for parts of a verification as the agent's main loop does, without a link."""

from __future__ import annotations

import json
import select
import time
from pathlib import Path
from typing import Any

import msgspec

from dflash_console.agent import verify
from dflash_console.agent.jobs import Job, Jobs
from dflash_console.verdict import Check, PartAnswer
from tests.agent.driver import PATIENCE
from tests.agent.environments import SPEC

__all__ = ["checks", "fingerprint", "part", "run_job", "states"]

LIMIT = 60.0


def part(name: str, venv: Path, **fields: Any) -> tuple[dict[str, Check], dict[str, Any]]:
    """The checks by name, validated as the console does, and the facts."""
    message = {"part": name, "venv": str(venv), "limit": LIMIT, "units": [], **SPEC, **fields}
    answer = run_job(verify.job(message))
    text = json.dumps(answer)
    decoded = msgspec.json.decode(text, type=PartAnswer)
    assert all("\n" not in line for check in decoded.checks for line in (check.detail, *check.evidence))
    assert all(len(check.detail) <= 300 and len(check.evidence) <= 200 for check in decoded.checks)
    names = [check.name for check in decoded.checks]
    assert len(set(names)) == len(names)
    return {check.name: check for check in decoded.checks}, answer["facts"]


def checks(venv: Path, **fields: Any) -> dict[str, Check]:
    """The checks of the part `files`."""
    return part("files", venv, **fields)[0]


def states(found: dict[str, Check]) -> dict[str, str]:
    """The checks that do not pass, by name."""
    return {name: check.state for name, check in found.items() if check.state != "pass"}


def fingerprint(venv: Path | str) -> str:
    """The answer to a request for it."""
    answer = run_job(verify.fingerprint_job({"venv": str(venv), "package": "sglang"}))
    return str(answer["fingerprint"])


def run_job(job: Job) -> Any:
    """Does a job to its end; raises AssertionError with the answer's error."""
    answers: list[tuple[object, str]] = []
    jobs = Jobs(lambda number, ok, error: answers.append((ok, error)))
    jobs.add(1, job, time.monotonic())
    deadline = time.monotonic() + job.deadline + PATIENCE
    while not answers:
        assert time.monotonic() < deadline, "the job has no answer"
        for fd in select.select(jobs.fds(), [], [], 0.02)[0]:
            if fd in jobs.fds():
                jobs.ready(fd, time.monotonic())
        jobs.tick(time.monotonic())
    jobs.close()
    ok, error = answers[0]
    assert not error, error
    return ok
