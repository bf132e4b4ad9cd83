"""The part `import`: every listed module imported for real by the environment's interpreter, with no GPU in sight.

One interpreter imports them all, so that sglang and torch are loaded once. After a crash or an error another one goes
on with the rest: what a failed import leaves behind makes the next one fail with other words.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time

from ..redact import redact_text
from ..verify.checks import check
from ..verify.program import Ended, run
from ..verify.question import UNHEARD, innermost
from .driver import driver_of
from .environment import Environment, find_environment, find_unit
from .import_program import PROGRAM

__all__ = ["work"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..child import Channel

    Answer = dict[str, Any]

SPARE = 3.0
"""Seconds of the limit that are left for the answer."""
PRINTED_LINES = 20
WHERE = signal.SIGUSR2
"""Asks an import that hangs for its stack."""
LIBCUDA = re.compile(r"libcuda\.so(\.1)?\b")


def work(channel: Channel, message: dict[str, Any]) -> None:
    """Sends a check `import MODULE` for each listed module, by the name of its first alternative; of the package
    itself when none is listed."""
    until = time.monotonic() + max(1.0, float(message["limit"]) - SPARE)
    modules = [[str(name) for name in alternatives] for alternatives in message["modules"]]
    modules = modules or [[str(message["package"])]]
    environment = find_environment(message)
    answers: list[Answer] = []
    if isinstance(environment, Environment):
        # As the unit that starts it would: PYTHONPATH and LD_LIBRARY_PATH decide over an import.
        unit = find_unit(environment, message)
        variables = {**os.environ, **unit.variables}
        while len(answers) < len(modules):
            rest = modules[len(answers) :]
            answers += _imported(environment.ground.python(), rest, variables, until - time.monotonic())
    else:
        answers = [{"unknown": environment}] * len(modules)
    driver = driver_of(message)
    checks = [_check(names[0], answer, driver) for names, answer in zip(modules, answers)]
    channel.send({"checks": checks, "facts": {}})


def _imported(python: str, modules: list[list[str]], variables: dict[str, str], limit: float) -> list[Answer]:
    """What became of the modules, in order, as far as one interpreter came; at least one answer."""
    if limit <= 0:
        return [{"unknown": "not reached: the time was over"}]
    # An empty value hides all GPUs. Nothing may be left behind in the environment.
    environment = {**variables, "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}
    script = f"SIGNAL, UNHEARD, MODULES = {int(WHERE)}, {UNHEARD}, {modules!a}\n{PROGRAM}"
    ended = run([python, "-"], script.encode("ascii"), limit, environment, lambda: os.chdir("/"), WHERE)
    found: list[Answer] = []
    stack: list[str] = []
    for line in ended.answers.decode("utf-8", "replace").split("\n"):
        if line.startswith("{"):
            found.append(json.loads(line))
        elif line.strip():
            stack.append(line.rstrip())
    if found and ("error" in found[-1] or len(found) == len(modules)):
        return found
    return [*found, _ended(ended, stack, limit)]


def _ended(ended: Ended, stack: list[str], limit: float) -> Answer:
    """Of the module at which an interpreter ended, or was ended."""
    printed = ended.output.decode("utf-8", "replace").strip().split("\n")[-PRINTED_LINES:]
    lines = [*stack, *([] if printed == [""] else ["it printed:", *printed])]
    place = innermost(stack)
    inside = f" in {place}" if place else ""
    if ended.problem:
        return {"error": f"the interpreter can't be started: {ended.problem}", "lines": lines}
    if ended.status is None:
        return {"unknown": f"not imported within {limit:.0f} s: it hangs{inside}", "lines": lines}
    if ended.status == UNHEARD:
        return {"unknown": "it closes files that are not its own while it is imported", "lines": lines}
    if ended.status >= 0:
        words = f"the interpreter ended with exit status {ended.status} in the middle of the import"
        return {"error": words, "lines": lines}
    try:
        name = signal.Signals(-ended.status).name
    except ValueError:
        name = f"signal {-ended.status}"
    hint = ", as when memory is short" if -ended.status == signal.SIGKILL else ""
    return {"error": f"the import crashed the interpreter: killed by {name}{hint}{inside}", "lines": lines}


def _check(name: str, answer: Answer, driver: str) -> dict[str, Any]:
    name = f"import {name}"
    lines = [redact_text(str(line)) for line in answer.get("lines", ())]
    if "origin" in answer:
        lines += [f"{answer['name']}: {answer['origin']}", "no GPU was visible to it"]
        return check(name, "pass", f"{answer['origin']} in {answer['seconds']:.1f} s", lines)
    if "unknown" in answer:
        return check(name, "unknown", str(answer["unknown"]), lines)
    error = redact_text(" ".join(str(answer["error"]).split()))
    if answer.get("wants_gpu"):
        return check(
            name, "unknown", f"it wants a GPU while it is imported, and was shown none: {error}", lines
        )
    if not driver and LIBCUDA.search(str(answer["error"])):
        words = "it needs libcuda.so.1 of the NVIDIA driver, which is not on this host"
        return check(name, "unknown", f"{words}: {error}", lines)
    where = answer.get("where")
    return check(name, "fail", f"{error}{f' ({where})' if where else ''}", lines)
