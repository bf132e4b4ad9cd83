"""Has the agent's part `cuda` judge the GPUs of this machine: as they are, hidden, with a node closed, and held by
another process. Prints one JSON object.

python3 tests/cuda_check.py [--exclusive]

Needs a checkout, Python, nvidia-smi and an idle GPU; as root for the closed node, with a C compiler for the held GPU.
No setting of a GPU is changed: what a held GPU answers comes from a libcuda.so.1 that forwards all else to the
driver's. `--exclusive` does it for real: it sets a GPU's compute mode and sets it back. Ends with 1 when an answer is
not the expected one, with 2 when there is nothing to ask.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dflash_console.agent.deep.cuda import work  # noqa: E402 - the checkout is not installed on such a machine

Checks = list[dict[str, Any]]
ABSENT = "GPU-00000000-0000-0000-0000-000000000000"
UVM = Path("/dev/nvidia-uvm")
SECONDS = 40

FORWARD = """
#define _GNU_SOURCE
#include <dlfcn.h>
static void *real(const char *name) {
    static void *library;
    if (!library) library = dlopen(REAL, RTLD_NOW);
    return library ? dlsym(library, name) : 0;
}
#define PASS(name, declared, ...) int name declared { return ((int (*) declared)real(#name))(__VA_ARGS__); }
PASS(cuDriverGetVersion, (int *a), a)
PASS(cuInit, (unsigned a), a)
PASS(cuDeviceGetCount, (int *a), a)
PASS(cuDeviceGet, (int *a, int b), a, b)
PASS(cuDeviceGetName, (char *a, int b, int c), a, b, c)
PASS(cuDeviceGetUuid_v2, (void *a, int b), a, b)
PASS(cuGetErrorName, (int a, const char **b), a, b)
int cuDeviceGetAttribute(int *a, int b, int c) {
    if (b == 20) { *a = 3; return 0; }
    return ((int (*)(int *, int, int))real("cuDeviceGetAttribute"))(a, b, c);
}
int cuDevicePrimaryCtxRetain(void **a, int b) { *a = 0; return 46; }
int cuDevicePrimaryCtxRelease_v2(int a) { return 0; }
"""
"""What the driver says when another process holds the GPU and its compute mode is EXCLUSIVE_PROCESS."""

HOLDER = """
import ctypes, sys
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
print(cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), flush=True)
sys.stdin.read()
"""


class Answer:
    """A channel that keeps what is sent."""

    def __init__(self) -> None:
        self.value: dict[str, Any] = {}

    def send(self, value: dict[str, Any]) -> None:
        """As child.Channel."""
        self.value = value


def smi(*words: str) -> list[list[str]]:
    """nvidia-smi's CSV, a list of cells a line."""
    done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, check=True, timeout=60)
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def ask(gpus: list[dict[str, Any]], driver: str, prefix: tuple[str, ...] = (), **variables: str) -> Checks:
    """The part's checks, asked in a process of its own with these variables."""
    message = {"gpus": gpus, "driver": {"version": driver}, "limit": SECONDS}
    command = [*prefix, sys.executable, str(Path(__file__).resolve()), "--ask", json.dumps(message)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS + 30,
        env={**os.environ, **variables},
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-500:] or f"exit {done.returncode}")
    checks: Checks = json.loads(done.stdout)
    return checks


def judge(checks: Checks, state: str, *words: str) -> dict[str, Any]:
    """Checks with whether each has the expected state and holds one of the expected words."""
    as_expected = bool(checks) and all(
        check["state"] == state and (not words or any(word in check["detail"] for word in words))
        for check in checks
    )
    return {"as_expected": as_expected, "expected": [state, *words], "checks": checks}


def skipped(why: str) -> dict[str, Any]:
    """A scenario that can't be had here."""
    return {"as_expected": None, "why_not": why}


def closed_node(gpu: dict[str, Any], driver: str) -> dict[str, Any]:
    """In a mount namespace of its own, a plain file lies over /dev/nvidia-uvm, as in a container that lacks it."""
    if not UVM.exists():
        return skipped(f"{UVM} is not there")
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return skipped("needs root and util-linux's unshare")
    with tempfile.NamedTemporaryFile() as plain:
        script = f'mount --bind "{plain.name}" {UVM} && exec "$@"'
        prefix = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh")
        try:
            checks = ask([gpu], driver, prefix)
        except RuntimeError as error:
            return skipped(str(error))
    return judge(checks, "fail", str(UVM))


def held_as_told(gpu: dict[str, Any], driver: str) -> dict[str, Any]:
    """Another process seems to hold the GPU exclusively."""
    real = library_path()
    if real is None or not shutil.which("cc"):
        return skipped("needs a C compiler and the driver's libcuda.so.1")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "libcuda.so.1"
        command = ["cc", "-shared", "-fPIC", f'-DREAL="{real}"', "-x", "c", "-", "-o", str(target), "-ldl"]
        subprocess.run(command, input=FORWARD, text=True, check=True, capture_output=True)
        path = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}".strip(":")
        checks = ask([gpu], driver, LD_LIBRARY_PATH=path)
    return judge(checks, "fail", "held by another process: its compute mode is exclusive")


def library_path() -> str | None:
    """The file that the loader takes for libcuda.so.1."""
    script = (
        "import ctypes; ctypes.CDLL('libcuda.so.1');"
        "print(next(line.split()[-1] for line in open('/proc/self/maps') if 'libcuda.so' in line))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout.strip() or None


@contextmanager
def exclusive(uuid: str, mode: str) -> Iterator[None]:
    """Sets a GPU's compute mode, and back."""
    smi("-i", uuid, "-c", "EXCLUSIVE_PROCESS")
    try:
        yield
    finally:
        smi("-i", uuid, "-c", mode.upper().replace(" ", "_"))


def held_for_real(gpu: dict[str, Any], mode: str, driver: str) -> dict[str, Any]:
    """Another process does hold the GPU, whose compute mode is EXCLUSIVE_PROCESS for the while."""
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu["uuid"]}
    command = [sys.executable, "-c", HOLDER]
    with (
        exclusive(gpu["uuid"], mode),
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
        ) as holder,
    ):
        assert holder.stdout is not None
        assert holder.stdin is not None
        status = holder.stdout.readline().strip()
        try:
            if status != "0":
                return skipped(f"the holder got error {status}")
            return judge(ask([gpu], driver), "fail", "held by another process: its compute mode is exclusive")
        finally:
            holder.stdin.close()


def scenarios(
    gpus: list[dict[str, Any]], modes: Mapping[str, str], driver: str, is_real: bool
) -> dict[str, Any]:
    """All that is asked, by name."""
    idle = next((gpu for gpu in gpus if not gpu["busy"]), None)
    found: dict[str, Any] = {"as they are": judge(ask(gpus, driver), "pass")}
    in_use = [{**gpu, "busy": True} for gpu in gpus]
    found["in use"] = judge(ask(in_use, driver), "pass", "in use, not disturbed")
    found["hidden from the login"] = judge(ask(gpus, driver, CUDA_VISIBLE_DEVICES=""), "pass")
    absent = [{"index": 0, "uuid": ABSENT, "busy": False}]
    found["not seen by CUDA"] = judge(ask(absent, driver), "fail", "error 100 NO_DEVICE")
    if idle is None:
        return found
    found["node closed"] = closed_node(idle, driver)
    found["held, as the driver tells it"] = held_as_told(idle, driver)
    if is_real:
        found["held for real"] = held_for_real(idle, modes[idle["uuid"]], driver)
    return found


def main() -> int:
    """Runs it; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--exclusive", action="store_true", help="set a GPU's compute mode for a moment")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        answer = Answer()
        work(answer, json.loads(options.ask))  # type: ignore[arg-type]
        print(json.dumps(answer.value["checks"]))  # noqa: T201
        return 0
    try:
        rows = smi("--query-gpu=index,uuid,compute_mode,driver_version", "--format=csv,noheader")
        users = {row[0] for row in smi("--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader")}
    except (OSError, subprocess.SubprocessError) as error:
        print(json.dumps({"ok": None, "why_not": f"nvidia-smi does not answer: {error}"}))  # noqa: T201
        return 2
    gpus = [{"index": int(row[0]), "uuid": row[1], "busy": row[1] in users} for row in rows]
    if not gpus:
        print(json.dumps({"ok": None, "why_not": "nvidia-smi lists no GPU"}))  # noqa: T201
        return 2
    found = scenarios(gpus, {row[1]: row[2] for row in rows}, rows[0][3], options.exclusive)
    is_well = all(scenario["as_expected"] is not False for scenario in found.values())
    print(json.dumps({"ok": is_well, "driver": rows[0][3], "gpus": gpus, "scenarios": found}, indent=1))  # noqa: T201
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
