"""Every state of a GPU is told for what it is, on the next sample, while the agent keeps running."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_console.model import Gpu, GpuProcess, gpu_key
from tests.hosts.fleet import Fleet
from tests.hosts.gpus import driver, install_library
from tests.hosts.watching import Watching, config_file, is_reason, watching
from tests.nvml import build

LOST = 15
RESET_REQUIRED = 16
NOT_SUPPORTED = 3
NO_PERMISSION = 4
UNKNOWN = 999
RECOVERY_ACTION = 230


@pytest.fixture
def config(tmp_path: Path, hosts: Fleet) -> Path:
    return config_file(tmp_path, hosts, {"ct129": {}})


def is_busy(gpu: Gpu) -> bool:
    return (gpu.utilization, gpu.temperature, gpu.power, gpu.memory_used) == (97, 71, 288.5, 40 << 30)


def is_unsupported(gpu: Gpu) -> bool:
    return is_reason(gpu.temperature, "unsupported") and gpu.health == "ok" and gpu.utilization == 0


def is_forbidden(gpu: Gpu) -> bool:
    return is_reason(gpu.power, "permission")


def is_lost(gpu: Gpu) -> bool:
    return gpu.health == "lost" and is_reason(gpu.utilization, "lost") and is_named(gpu)


def wants_reset(gpu: Gpu) -> bool:
    return gpu.health == "reset_required" and is_reason(gpu.temperature, "reset_required") and is_named(gpu)


def is_without_handle(gpu: Gpu) -> bool:
    return gpu.health == "lost" and is_named(gpu) and gpu.good_at is not None


def is_in_mig_mode(gpu: Gpu) -> bool:
    return gpu.mig is True and is_reason(gpu.utilization, "unsupported") and gpu.memory_used == 0


def is_named(gpu: Gpu) -> bool:
    return gpu.uuid == "GPU-a6000001-0000-4000-8000-000000000001" and gpu.name == "NVIDIA RTX A6000"


STATES: dict[str, tuple[dict[str, object], Callable[[Gpu], bool]]] = {
    "busy": (
        {"utilization": 97, "temperature": 71, "power": 288.5, "memory_used": 40 << 30},
        is_busy,
    ),
    "not supported": (
        {"errors": {"GetTemperature": NOT_SUPPORTED, "GetTemperatureV": NOT_SUPPORTED}},
        is_unsupported,
    ),
    "no permission": ({"errors": {"GetPowerUsage": NO_PERMISSION}}, is_forbidden),
    "lost": ({"errors": {"*": LOST}}, is_lost),
    "reset required": ({"errors": {"*": RESET_REQUIRED}}, wants_reset),
    "MIG": ({"mig": True, "errors": {"GetUtilizationRates": NOT_SUPPORTED}}, is_in_mig_mode),
}


async def test_each_state_shows_on_the_next_sample_and_passes(
    hosts: Fleet, config: Path, figures: list[str]
) -> None:
    cards = driver(hosts["ct129"])
    well = cards.gpus
    async with watching(config) as watch:
        await watch.until_whole("ct129")
        assert watch.gpu("ct129", 1).health == "ok"
        for name, (changes, is_seen) in STATES.items():
            cards.set(1, **changes)
            seen = await watch.seen("ct129", lambda: is_seen(watch.gpu("ct129", 1)), f"GPU 1 is {name}")  # noqa: B023
            assert seen.samples <= 2, f"{name} took {seen.samples} samples"
            assert watch.gpu("ct129", 0).health == "ok", "its neighbour is untouched"
            figures.append(f"GPU {name}: on the screen after {seen.samples} sample(s), {seen.seconds:.2f} s")
            cards.gpus = well
            cards.write()
            await watch.until(lambda: watch.gpu("ct129", 1).health == "ok", f"GPU 1 is well after {name}")
            await watch.until(lambda: watch.gpu("ct129", 1).utilization == 0, f"GPU 1 is idle after {name}")


async def test_a_gpu_without_a_handle_keeps_its_row_and_its_name(hosts: Fleet, config: Path) -> None:
    cards = driver(hosts["ct129"])
    async with watching(config) as watch:
        await watch.until_whole("ct129")
        cards.set(1, errors={"GetHandleByIndex": UNKNOWN, "*": UNKNOWN})
        await watch.until(lambda: is_without_handle(watch.gpu("ct129", 1)), "GPU 1 is lost, and named")


async def test_a_gpu_that_is_listed_no_more_keeps_its_row(hosts: Fleet, config: Path) -> None:
    cards = driver(hosts["ct129"])
    async with watching(config) as watch:
        await watch.until_whole("ct129")
        cards.gpus = cards.gpus[:1]
        cards.write()
        watch.fleet.refresh("ct129")
        await watch.until(lambda: is_lost(watch.gpu("ct129", 1)), "GPU 1 is lost, and named")


async def test_what_the_driver_asks_for_is_told(hosts: Fleet, config: Path) -> None:
    async with watching(config) as watch:
        await watch.until_whole("ct129")
        driver(hosts["ct129"]).set(0, lines=(f"field {RECOVERY_ACTION} uint 1",), remap=(0, 2, 1, 0))
        watch.fleet.refresh("ct129")
        gpu = await watch.until(lambda: attention(watch.gpu("ct129", 0)), "GPU 0 asks for attention")
        assert gpu.recovery_action == "reset"
        assert gpu.remap_pending is True


def attention(gpu: Gpu) -> Gpu | None:
    return gpu if gpu.health == "attention" else None


async def test_a_hung_driver_takes_only_its_own_panel(
    tmp_path: Path, hosts: Fleet, figures: list[str]
) -> None:
    config = config_file(tmp_path, hosts, {"ct129": {}, "ct200": {}})
    cards = driver(hosts["ct200"])
    async with watching(config) as watch:
        await watch.until_whole("ct129", "ct200")
        async with watch.undisturbed("ct129", "ct200"):
            cards.set(3, hangs=("*",))
            seen = await watch.seen("ct200", lambda: hung(watch, "ct200", 3), "GPU 3 hangs", within=120)
            figures.append(f"hung driver: called so after {seen.seconds:.0f} s; the host's link stayed up")
            trouble = watch.report("ct200").trouble
            assert trouble is not None
            assert trouble.missing == "hung"
            readers = [
                process for process in hosts["ct200"].processes() if "exec(sys.stdin" in process.command
            ]
            assert len(readers) <= 3, f"no second reader beside the one that hangs: {readers}"
        cards.gpus = driver(hosts["ct200"]).gpus
        cards.write()
        await watch.until(lambda: watch.gpu("ct200", 3).health == "ok", "GPU 3 answers again")


def hung(watch: Watching, host: str, index: int) -> bool:
    gpu = watch.gpu(host, index)
    assert gpu.health == "hung", f"{gpu.health}: {gpu.health_detail}"
    return is_reason(gpu.utilization, "hung") and isinstance(gpu.uuid, str)


async def test_a_driver_from_before_some_functions_is_read_all_the_same(
    tmp_path: Path, hosts: Fleet, config: Path
) -> None:
    host = hosts["ct129"]
    new = build(tmp_path / "new")
    install_library(host, build(tmp_path / "old", is_old=True))
    driver(host).set(0, utilization=55)
    try:
        async with watching(config) as watch:
            await watch.until_whole("ct129")
            gpu = watch.gpu("ct129", 0)
            assert (gpu.health, gpu.utilization, gpu.temperature) == ("ok", 55, 31)
            assert gpu.memory_total == 49140 << 20
            assert is_named(watch.gpu("ct129", 1))
    finally:
        install_library(host, new)


async def test_a_host_whose_library_does_not_match_its_driver_says_so(hosts: Fleet, config: Path) -> None:
    cards = driver(hosts["ct129"])
    cards.errors = {"InitWithFlags": 18, "Init_v2": 18}
    cards.write()
    async with watching(config) as watch:
        await watch.until_whole("ct129")
        trouble = watch.report("ct129").trouble
        assert trouble is not None
        assert trouble.missing == "mismatch"
        cards.errors = {}
        cards.write()
        await watch.until(lambda: watch.report("ct129").trouble is None, "the driver answers again")
        assert len(watch.report("ct129").gpus) == 2


async def test_cards_that_two_hosts_show_are_named_on_both(tmp_path: Path, hosts: Fleet) -> None:
    config = config_file(tmp_path, hosts, {"ct129": {}, "ct200": {}, "kpro6": {}})
    async with watching(config) as watch:
        await watch.until_whole("ct129", "ct200", "kpro6")
        card = gpu_key(watch.gpu("ct200", 7))
        await watch.until(
            lambda: watch.view("ct200").shared.get(card) == ("kpro6",), "ct200 shares with kpro6"
        )
        await watch.until(
            lambda: watch.view("kpro6").shared.get(card) == ("ct200",), "kpro6 shares with ct200"
        )
        assert watch.view("ct129").shared == {}


async def test_a_process_on_a_gpu_has_user_command_venv_and_unit(hosts: Fleet, config: Path) -> None:
    host = hosts["ct129"]
    host.run("systemctl start sglang-dflash.service")
    pid = int(host.run("systemctl show --property=MainPID --value sglang-dflash.service"))
    driver(host).set(0, memory_used=30 << 30, utilization=80, processes=((pid, 29 << 30),))
    try:
        async with watching(config) as watch:
            await watch.until_whole("ct129")

            def settled() -> GpuProcess | None:
                """A process that has just been started may be read while systemd still sets it up."""
                processes = watch.gpu("ct129", 0).processes
                assert isinstance(processes, list)
                (process,) = processes
                assert (process.venv, process.unit) == ("/root/ml-env", "sglang-dflash.service")
                return process

            process = await watch.until(settled, "the process has its venv and unit")
            assert (process.pid, process.memory, process.user) == (pid, 29 << 30, "root")
            assert isinstance(process.command, str)
            assert "launch_server.py --port 30000" in process.command
            assert "not-for-the-screen" not in process.command
    finally:
        host.run("systemctl stop sglang-dflash.service")


async def test_the_story_s_dead_card_is_seen_while_its_neighbour_works(hosts: Fleet, config: Path) -> None:
    """GPU 1 of ct129 stays listed and is unusable, as after the failed Triton launches."""
    driver(hosts["ct129"]).set(
        1,
        errors={
            "GetUtilizationRates": RESET_REQUIRED,
            "GetPowerUsage": RESET_REQUIRED,
            "GetTemperature": RESET_REQUIRED,
        },
        memory_used=1 << 30,
    )
    async with watching(config) as watch:
        await watch.until_whole("ct129")
        gpu = watch.gpu("ct129", 1)
        assert gpu.health == "reset_required"
        assert gpu.memory_used == 1 << 30
        assert watch.gpu("ct129", 0).health == "ok"


def test_the_stand_in_is_what_the_hosts_load(hosts: Fleet) -> None:
    script = "import ctypes; print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"
    assert hosts["ct129"].ssh(f'python3 -c "{script}"').strip() == "0"
