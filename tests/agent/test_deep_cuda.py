"""Whether CUDA can use a GPU that NVML lists, over a stand-in for the driver's library."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_console.agent.deep.cuda_codes import CODES, told
from dflash_console.agent.deep.cuda_probe import nodes_of
from dflash_console.verdict import Check
from tests.agent.deep_part import DRIVER, checks
from tests.cuda import ENVIRONMENT, build
from tests.waiting import until_sync

FIRST = "GPU-00000000-0000-4000-8000-00000000000a"
SECOND = "GPU-00000000-0000-4000-8000-00000000000b"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stand-in."""
    return build(tmp_path_factory.mktemp("cuda")).parent


class Card:
    """Asks the part about GPUs that the stand-in has."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.library = library
        self.folder = folder
        self.log = folder / "log"

    def ask(self, *lines: str, gpus: object = None, **fields: object) -> dict[str, Check]:
        """The checks, with these lines in the state file."""
        state = self.folder / "state"
        state.write_text("\n".join([f"log {self.log}", *lines]) + "\n")
        # What is loaded already serves by its name, in the children of this process too.
        ctypes.CDLL(str(self.library / "libcuda.so.1"))
        gpus = [{"index": 0, "uuid": FIRST, "busy": False}] if gpus is None else gpus
        variables = {ENVIRONMENT: str(state)}
        return checks("cuda", self.folder, variables, **{"driver": DRIVER, "gpus": gpus, **fields})

    def one(self, *lines: str, **fields: object) -> Check:
        """The check of the only GPU."""
        return self.ask(*lines, **fields)[f"cuda {FIRST}"]

    @property
    def calls(self) -> list[str]:
        """What was called."""
        return self.log.read_text().split()


@pytest.fixture
def card(library: Path, tmp_path: Path) -> Card:
    return Card(library, tmp_path)


def test_an_idle_gpu_opens_and_closes_a_context(card: Card) -> None:
    found = card.one(f"gpu {FIRST} NVIDIA RTX A6000")
    assert found.state == "pass"
    assert found.detail.startswith("NVIDIA RTX A6000: CUDA 13.0 opened and closed a context in ")
    assert card.calls[-2:] == ["cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"]


def test_a_gpu_in_use_is_not_disturbed_and_what_was_not_tested_is_said(card: Card) -> None:
    gpus = [{"index": 0, "uuid": FIRST, "busy": True}]
    found = card.one(f"gpu {FIRST}", "error cuDevicePrimaryCtxRetain 46", gpus=gpus)
    assert found.state == "pass"
    assert found.detail.startswith("in use, not disturbed: CUDA 13.0 lists NVIDIA RTX A6000")
    assert "not tested: whether a context can be opened" in found.detail
    assert not any("Ctx" in call for call in card.calls)


def test_a_gpu_in_use_is_opened_when_that_is_asked_for(card: Card) -> None:
    gpus = [{"index": 0, "uuid": FIRST, "busy": True}]
    found = card.one(f"gpu {FIRST}", "error cuDevicePrimaryCtxRetain 2", gpus=gpus, force=True)
    assert found.state == "warn"
    assert "error 2 OUT_OF_MEMORY, its memory is full: it is in use, not broken" in found.detail


@pytest.mark.parametrize(
    ("call", "number", "words"),
    [
        ("cuInit", 999, "mostly /dev/nvidia-uvm is missing"),
        ("cuInit", 3, "the driver could not be initialised"),
        ("cuInit", 802, "start nvidia-fabricmanager"),
        ("cuInit", 803, "of different versions"),
        ("cuInit", 100, "CUDA sees no GPU"),
        ("cuDevicePrimaryCtxRetain", 46, "busy or unavailable"),
        ("cuDevicePrimaryCtxRetain", 214, "uncorrectable memory error"),
        ("cuDeviceGet", 4711, "error 4711 NUMBER_4711"),
    ],
)
def test_an_error_is_told_by_its_number_with_what_to_do(
    card: Card, call: str, number: int, words: str
) -> None:
    found = card.one(f"gpu {FIRST}", f"error {call} {number}")
    assert found.state == "fail"
    assert f"{call}: error {number} " in found.detail
    assert words in found.detail


@pytest.mark.parametrize(
    ("mode", "words"),
    [(3, "held by another process: its compute mode is exclusive"), (2, "its compute mode is prohibited")],
)
def test_a_compute_mode_that_keeps_others_out_is_the_reason(card: Card, mode: int, words: str) -> None:
    found = card.one(f"gpu {FIRST}", f"mode {mode}", "error cuDevicePrimaryCtxRetain 46")
    assert found.state == "fail"
    assert found.detail.startswith(words)
    assert "46" in found.detail


def test_a_gpu_that_cuda_does_not_list_is_a_failure(card: Card) -> None:
    found = card.one(f"gpu {SECOND}")
    assert found.state == "fail"
    assert "cuInit: error 100 NO_DEVICE" in found.detail


def test_another_gpu_in_its_place_is_a_failure(card: Card) -> None:
    gpus = [{"index": 0, "uuid": None, "busy": False}]
    assert card.ask(f"gpu {SECOND}", gpus=gpus)["cuda 0"].state == "pass"
    found = card.one(f"gpu {FIRST}", "error cuDeviceGetUuid 1", f"mig {SECOND}")
    assert (found.state, found.detail) == (
        "fail",
        f"CUDA shows another GPU in its place: NVIDIA RTX A6000, {SECOND}",
    )


def test_a_mig_instance_is_known_by_the_gpus_uuid(card: Card) -> None:
    assert card.one(f"gpu {FIRST}", f"mig {SECOND}").state == "pass"


def test_each_gpu_is_asked_apart(card: Card) -> None:
    gpus = [
        {"index": 0, "uuid": FIRST, "busy": False},
        {"index": 1, "uuid": SECOND, "busy": False},
        {"index": 2, "uuid": None, "busy": False},
    ]
    third = SECOND[:-1] + "c"
    lines = (
        f"gpu {FIRST}",
        "crash cuInit",
        f"gpu {SECOND}",
        "hang cuDeviceGetCount",
        f"gpu {third} NVIDIA H200",
    )
    found = card.ask(*lines, gpus=gpus, limit=6)
    assert [check.state for check in found.values()] == ["fail", "fail", "pass"]
    crashed, hung, fine = found.values()
    assert crashed.detail == "libcuda.so.1 crashed in cuInit (signal 11)"
    assert hung.detail.startswith("hung: no answer to cuDeviceGetCount within 3 s")
    assert " in state D" in hung.detail
    assert fine.name == "cuda 2"
    assert fine.detail.startswith("NVIDIA H200: ")


@pytest.fixture
def stuck(library: Path, tmp_path: Path) -> Iterator[int]:
    """A probe of GPU 0 that an earlier verification left behind in a hung driver."""
    state = tmp_path / "hanging"
    state.write_text("hang cuInit\n")
    pid = os.fork()
    if pid == 0:
        os.environ[ENVIRONMENT] = str(state)
        ctypes.CDLL(None).prctl(15, b"dflash-cuda-0", 0, 0, 0)
        ctypes.CDLL(str(library / "libcuda.so.1")).cuInit(0)
        os._exit(0)
    until_sync(lambda: ") D " in Path(f"/proc/{pid}/stat").read_text(), 30, "it hangs")
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_no_second_process_is_sent_into_a_hung_driver(card: Card, stuck: int) -> None:
    found = card.one(f"gpu {FIRST}")
    assert found.state == "fail"
    assert found.detail.startswith(f"hung: an earlier try (process {stuck}) still hangs in the driver")
    assert not card.log.exists()


def test_the_words_for_every_number_end_in_what_to_do() -> None:
    assert told(999).startswith("error 999 UNKNOWN, unknown error: mostly ")
    assert told(12345, "CUDA_ERROR_NEW") == "error 12345 NEW"
    assert {46, 2, 3, 100, 999, 802, 803} <= CODES.keys()


def test_without_a_driver_nothing_is_known(card: Card) -> None:
    found = card.ask(gpus=[], driver={"version": None})
    assert {name: (check.state, check.detail) for name, check in found.items()} == {
        "cuda": ("unknown", "no NVIDIA driver on this host")
    }


def test_device_nodes_that_are_missing_closed_or_no_devices_are_named(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").write_text("")
    (tmp_path / "nvidia3").symlink_to("/dev/null")
    assert nodes_of(3, str(tmp_path)) == [
        f"{tmp_path}/nvidiactl is no device",
        f"{tmp_path}/nvidia-uvm is not there",
    ]
