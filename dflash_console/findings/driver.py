"""The driver as a whole. While it is in trouble no GPU is judged for itself: one cause, one alarm."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from dflash_console.findings.picture import Picture
from dflash_console.model import Finding, GpuReport, Missing

__all__ = ["driver_trouble", "gpus_that_nvml_lacks", "versions_apart"]

RELOAD = "reboot the host, or reload the nvidia modules while nothing uses them"


def versions_apart(report: GpuReport) -> bool:
    """Whether the loaded driver and its library are of different versions."""
    if report.trouble is not None:
        return report.trouble.missing == "mismatch"
    driver, library = report.driver, report.library
    return isinstance(driver, str) and isinstance(library, str) and bool(library) and driver != library


def driver_trouble(picture: Picture) -> Iterator[Finding]:
    """The driver hangs, is not loaded, or is of another version than its library."""
    report = picture.snapshot.gpu
    if versions_apart(report):
        yield Finding("driver_mismatch", "critical", "driver", mismatch_text(report), RELOAD)
    elif report.trouble is None:
        return
    elif report.trouble.missing == "hung":
        since = ""
        if report.read_at is not None:
            since = f" since {datetime.fromtimestamp(report.read_at, UTC):%H:%M:%S} UTC"
        yield Finding(
            "driver_hung",
            "critical",
            "driver",
            f"the driver does not answer{since}{detail(report.trouble)}",
            "journalctl -k -g NVRM; a hung driver needs a reboot",
        )
    elif report.gpus or (isinstance(report.kernel_count, int) and report.kernel_count > 0):
        count = report.kernel_count if isinstance(report.kernel_count, int) else len(report.gpus)
        cards = "1 NVIDIA card is" if count == 1 else f"{count} NVIDIA cards are"
        yield Finding(
            "driver_down",
            "critical",
            "driver",
            f"{cards} there and the driver does not answer{detail(report.trouble)}",
            "modprobe nvidia; then journalctl -k -g NVRM",
        )


def mismatch_text(report: GpuReport) -> str:
    """Both versions, where they are known, and what the mismatch does."""
    versions = ""
    if isinstance(report.driver, str) and isinstance(report.library, str):
        versions = f" (driver {report.driver}, library {report.library})"
    elif isinstance(report.driver, str):
        versions = f" (driver {report.driver} is loaded)"
    return f"driver and library differ{versions}: running jobs go on, new ones fail"


def gpus_that_nvml_lacks(picture: Picture) -> Iterator[Finding]:
    """The PCI bus shows more cards than the driver does. A card that was seen before has a row of its own."""
    report = picture.snapshot.gpu
    if report.trouble is not None or not isinstance(report.kernel_count, int):
        return
    if report.source == "none" or report.kernel_count <= len(report.gpus):
        return
    yield Finding(
        "gpu_not_listed",
        "critical",
        "driver",
        f"the PCI bus has {report.kernel_count} NVIDIA cards, the driver lists {len(report.gpus)}",
        "journalctl -k -g NVRM; then power-cycle the host",
    )


def detail(trouble: Missing) -> str:
    """The driver's own words, to stand behind a sentence."""
    return f": {trouble.detail}" if trouble.detail else ""
