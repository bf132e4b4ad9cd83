"""The kernel's own list of GPUs, from trees as /sys and /proc have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_console.agent.gpu.kernel import Kernel, driver_version, normal_bus


class Tree:
    """A root with the files that the kernel would have."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def device(
        self, bus: str, vendor: str = "0x10de", kind: str = "0x030200", driver: str | None = "nvidia"
    ) -> None:
        folder = self.root / "sys/bus/pci/devices" / bus
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(kind + "\n")
        if driver is not None:
            home = self.root / "sys/bus/pci/drivers" / driver
            home.mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(home)

    def information(self, bus: str, minor: int, uuid: str = "GPU-1", has_node: bool = True) -> None:
        folder = self.root / "proc/driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        lines = ["Model: \t\t NVIDIA RTX A6000", f"GPU UUID: \t {uuid}", f"Device Minor: \t {minor}"]
        (folder / "information").write_text("\n".join(lines) + "\n")
        (self.root / "dev").mkdir(exist_ok=True)
        if has_node:
            (self.root / f"dev/nvidia{minor}").touch()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def buses(tree: Tree) -> list[str]:
    return Kernel(str(tree.root)).view().buses


def test_a_machine_without_pci_has_no_gpus(tree: Tree) -> None:
    view = Kernel(str(tree.root)).view()
    assert (view.driver, view.gpus, view.passed_through) == (None, [], [])


def test_only_display_controllers_of_nvidia_count(tree: Tree) -> None:
    tree.device("0000:41:00.0", driver=None)
    tree.device("0000:01:00.0", kind="0x030000", driver="nouveau")
    tree.device("0000:01:00.1", kind="0x040300", driver="snd_hda_intel")
    tree.device("0000:02:00.0", vendor="0x1002")
    tree.device("0000:03:00.0", kind="0x068000")
    assert buses(tree) == ["0000:01:00.0", "0000:41:00.0"]


def test_a_gpu_of_a_virtual_machine_is_counted_apart(tree: Tree) -> None:
    tree.device("0000:01:00.0", driver="vfio-pci")
    tree.device("0000:02:00.0", driver=None)
    view = Kernel(str(tree.root)).view()
    assert (view.buses, view.passed_through) == (["0000:02:00.0"], ["0000:01:00.0"])


def test_name_and_uuid_come_from_the_driver_s_own_files(tree: Tree) -> None:
    for place in (1, 2):
        tree.device(f"0000:0{place}:00.0")
    tree.information("0000:01:00.0", 0)
    tree.information("0000:02:00.0", 1, uuid="GPU-????????-????-????-????-????????????")
    gpus = Kernel(str(tree.root)).view().gpus
    assert [(gpu.name, gpu.uuid) for gpu in gpus] == [
        ("NVIDIA RTX A6000", "GPU-1"),
        ("NVIDIA RTX A6000", None),
    ]


def test_a_container_counts_only_the_gpus_that_it_may_use(tree: Tree) -> None:
    """The PCI bus is the host's; what the container was given shows by the driver's files and the device
    nodes."""
    for place in (1, 2, 3):
        tree.device(f"0000:0{place}:00.0")
    tree.information("0000:01:00.0", 0)
    tree.information("0000:02:00.0", 1, has_node=False)
    assert buses(tree) == ["0000:01:00.0"]


def test_without_any_device_node_nothing_is_taken_for_another_s(tree: Tree) -> None:
    tree.device("0000:01:00.0")
    tree.information("0000:01:00.0", 0, has_node=False)
    (tree.root / "dev/nvidiactl").touch()
    assert buses(tree) == ["0000:01:00.0"]


def test_a_gpu_that_leaves_or_comes_is_seen_by_the_next_look(tree: Tree) -> None:
    tree.device("0000:01:00.0", driver=None)
    kernel = Kernel(str(tree.root))
    assert kernel.view().buses == ["0000:01:00.0"]
    (tree.root / "sys/bus/pci/devices/0000:01:00.0").rename(tree.root / "gone")
    tree.device("0000:02:00.0", driver=None)
    assert kernel.view().buses == ["0000:02:00.0"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024",
            "535.183.01",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build",
            "580.95.05",
        ),
        ("", None),
    ],
)
def test_the_module_s_version_is_read_of_both_kinds(text: str, version: str | None) -> None:
    assert driver_version(text) == version


@pytest.mark.parametrize(
    ("text", "bus"),
    [
        ("00000000:C9:00.0", "0000:c9:00.0"),
        ("0000:c9:00.0", "0000:c9:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("odd", "odd"),
    ],
)
def test_buses_are_written_as_sysfs_does(text: str, bus: str) -> None:
    assert normal_bus(text) == bus
