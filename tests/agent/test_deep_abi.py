"""Compiled files against the interpreter, torch and CUDA: real wheels of torch and of the kernel package, which fit
or do not, and small libraries made for what real ones rarely have."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dflash_console.agent.deep import driver, python_abi
from dflash_console.agent.deep.compiled import find_compiled
from dflash_console.agent.deep.elf import Broken, Library
from dflash_console.agent.deep.environment import Environment
from dflash_console.agent.glibc import host_glibc
from dflash_console.agent.verify.ground import Ground
from dflash_console.verdict import Check
from tests.agent.deep_part import DRIVER, checks, one
from tests.agent.deep_venvs import add, healthy, write_torch
from tests.agent.environments import make_venv
from tests.compiled import FITTING, OLDER, TORCH, lay_real, library, real

pytestmark = pytest.mark.timeout(900)

NVIDIA = (
    *(
        "libcudart.so.13",
        "libcublas.so.13",
        "libcublasLt.so.13",
        "libnvrtc.so.13",
        "libcupti.so.13",
        "libcusparse.so.12",
    ),
    *("libcufft.so.12", "libcufile.so.0", "libcurand.so.10"),
)
"""What the nvidia packages put into the folder `nvidia/cu13/lib`, where torch looks for it."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An environment with sglang's tree and a real torch built for CUDA 13."""
    site = healthy(tmp_path / "venv")
    shutil.rmtree(site / "torch")
    lay_real(TORCH, site)
    return site


def abi(site: Path, **fields: object) -> dict[str, Check]:
    return checks("abi", site.parents[2], {}, **fields)


def in_process(site: Path) -> Environment:
    return Environment(Ground(str(site.parents[2]), "sglang"))


def install_nvidia(site: Path, *names: str) -> None:
    for name in names:
        library(site / "nvidia/cu13/lib" / name, soname=name)


# ---- symbols


def test_a_kernel_package_made_for_this_torch_finds_all_its_symbols(site: Path) -> None:
    lay_real(FITTING, site)
    found = abi(site)["symbols"]
    assert found.state == "pass"
    assert found.detail.startswith("torch 2.13.0+cu130 defines all ")
    assert int(found.detail.split()[4]) > 100


def test_a_kernel_package_made_for_another_torch_names_the_missing_symbols(site: Path) -> None:
    lay_real(OLDER, site)
    found = abi(site)["symbols"]
    assert found.state == "fail"
    assert found.detail.startswith(
        "torch 2.13.0+cu130 lacks 7 symbols, needed by sgl_kernel/sm100/common_ops.abi3.so"
    )
    assert "at::cuda::getCurrentCUDABlasHandle()" in found.detail
    missing = [line.partition(" is ")[0] for line in found.evidence if " is " in line]
    assert missing == sorted(missing, key=missing.index)
    assert {*missing} == {
        "_ZN2at4cuda24getCurrentCUDABlasHandleEv",
        "_ZN3c1013MessageLoggerC1EPKcii",
        "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib",
        "_ZN3c104impl3cow23materialize_cow_storageERNS_11StorageImplE",
        "_ZNK2at10TensorBase14const_data_ptrIiLi0EEEPKT_v",
        "_ZNR5torch7Library4_defEON3c1014FunctionSchemaEPNS1_12OperatorNameERKSt6vectorIN2at3TagESaIS8_EENS_17_RegisterOrVerifyE",
        "_ZNR5torch7Library4_defEOSt7variantIJN3c1012OperatorNameENS2_14FunctionSchemaEEEONS_11CppFunctionERKSt6vectorIN2at3TagESaISB_EE",
    }
    line = "sgl_kernel/sm90/common_ops.abi3.so: undefined symbol: _ZN3c1013MessageLoggerC1EPKcii"
    assert line in found.evidence


def test_a_torch_without_cuda_lacks_what_kernels_want_of_it(site: Path) -> None:
    lay_real(FITTING, site)
    for name in ("libc10_cuda.so", "libtorch_cuda.so", "libtorch_cuda_linalg.so"):
        (site / "torch/lib" / name).unlink()
    found = abi(site)["symbols"]
    assert found.state == "fail"
    assert "c10" in found.detail


def test_weak_symbols_and_those_of_other_libraries_are_no_fault(site: Path) -> None:
    source = """
    extern int _ZN3c103absEv(void) __attribute__((weak));
    extern int _ZN5other5thingEv(void), PyLong_AsLong(void), cuInit(void), _ZN3c104hereEv(void);
    int one(void) { return (_ZN3c103absEv ? _ZN3c103absEv() : 0) + _ZN5other5thingEv() + PyLong_AsLong(); }
    int two(void) { return cuInit() + _ZN3c104hereEv(); }
    """
    library(site / "sgl_kernel/uses.abi3.so", source=source)
    library(site / "sgl_kernel/libhelp.so", source="int _ZN3c104hereEv(void) { return 1; }")
    assert abi(site)["symbols"].state == "pass"


def test_a_missing_symbol_of_what_the_kernel_package_brings_besides_is_a_warning(site: Path) -> None:
    library(
        site / "deep_gemm/deep_gemm_cpp.abi3.so",
        source="extern int _ZN2at4goneEv(void); int f(void) { return _ZN2at4goneEv(); }",
    )
    info = site / "sglang_kernel-0.4.3.dist-info"
    (info / "RECORD").write_text(
        "deep_gemm/deep_gemm_cpp.abi3.so,sha256=x,1\n../../../bin/x.so,,\n/etc/y.so,,\n"
    )
    found = abi(site)["symbols"]
    assert (found.state, found.detail) == (
        "warn",
        "torch 2.13.0+cu130 lacks 1 symbol, needed by deep_gemm/deep_gemm_cpp.abi3.so: at::gone()",
    )


def test_without_compiled_files_that_use_torch_nothing_is_missing(site: Path) -> None:
    assert abi(site)["symbols"].state == "pass"


def test_a_stable_c_function_that_an_older_torch_lacks_is_missing(site: Path) -> None:
    source = "extern int aoti_torch_of_the_future(void); int f(void) { return aoti_torch_of_the_future(); }"
    library(site / "sgl_kernel/common_ops.abi3.so", source=source)
    assert "aoti_torch_of_the_future" in abi(site)["symbols"].detail


# ---- python_abi


def test_a_healthy_tree_and_kernel_fit(site: Path) -> None:
    lay_real(FITTING, site)
    found = abi(site)["python_abi"]
    assert found.state == "pass"
    # It is in every installation of this kernel package, and no Python but 3.10 could load it.
    name = "sgl_kernel/infllm_ops.cpython-310-x86_64-linux-gnu.so"
    assert f"{name}: no file for Python 3.11; the wheel has none" in found.evidence


def test_a_tree_from_another_python_is_a_failure(site: Path) -> None:
    compiled = site / "sglang/srt/grpc/_core.cpython-311-x86_64-linux-gnu.so"
    other = compiled.with_name("_core.cpython-312-x86_64-linux-gnu.so")
    shutil.copy(compiled, other)
    assert abi(site)["python_abi"].state == "pass"
    compiled.unlink()
    found = abi(site)["python_abi"]
    assert found.state == "fail"
    assert found.detail == f"sglang/srt/grpc/{other.name} is for Python 3.12, the environment is 3.11"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "zero bytes"),
        (b"\x7fELF", "no valid ELF file"),
        (b"MZ" + b"\0" * 200, "no valid ELF file"),
        (None, "cut off: 5,000 of "),
    ],
)
def test_a_damaged_compiled_file_is_a_failure(site: Path, data: bytes | None, words: str) -> None:
    compiled = site / "sglang/srt/grpc/_core.cpython-311-x86_64-linux-gnu.so"
    whole = compiled.read_bytes()
    compiled.write_bytes(whole[:5000] if data is None else data)
    found = abi(site)
    assert found["python_abi"].state == "fail"
    assert words in found["python_abi"].detail
    assert {found[name].state for name in ("symbols", "libraries")} == {"pass"}


def test_bytes_at_random_break_no_check(site: Path) -> None:
    compiled = site / "sglang/srt/grpc/_core.cpython-311-x86_64-linux-gnu.so"
    whole = bytearray(library(site / "small.so", source="int f(void) { return 1; }").read_bytes())
    for place in range(0, 1024, 3):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        compiled.write_bytes(damaged)
        try:
            made = Library(str(compiled))
            assert isinstance(made.undefined(), list)
            made.defines("f")
            assert isinstance(made.glibc(), tuple)
        except Broken:
            continue


def test_a_file_for_another_processor_is_a_failure(site: Path) -> None:
    compiled = site / "sglang/srt/grpc/_core.cpython-311-x86_64-linux-gnu.so"
    data = bytearray(compiled.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")
    compiled.write_bytes(data)
    assert (
        "is for aarch64 (64 bit), the interpreter here is for x86_64 (64 bit)"
        in abi(site)["python_abi"].detail
    )


def test_a_newer_glibc_than_the_hosts_is_a_failure(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_abi, "host_glibc", lambda: (2, 31))
    environment = in_process(site)
    found = python_abi.check_python_abi(environment, find_compiled(environment))
    assert (found["state"], found["detail"]) == (
        "fail",
        "sglang/srt/grpc/_core.cpython-311-x86_64-linux-gnu.so needs glibc 2.34, this host has 2.31",
    )
    monkeypatch.setattr(python_abi, "host_glibc", lambda: ())
    found = python_abi.check_python_abi(environment, find_compiled(environment))
    assert found["detail"].endswith("needs glibc 2.34, this host has no glibc")


def test_a_wheel_for_a_newer_glibc_whose_files_need_less_is_a_warning(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library(
        site / "sglang/srt/grpc/_core.cpython-311-x86_64-linux-gnu.so", source="int f(void) { return 1; }"
    )
    monkeypatch.setattr(python_abi, "host_glibc", lambda: (2, 31))
    environment = in_process(site)
    found = python_abi.check_python_abi(environment, find_compiled(environment))
    assert found["state"] == "warn"
    assert found["detail"].startswith("the wheel is made for glibc 2.34, this host has 2.31")


def test_the_hosts_glibc_is_told() -> None:
    assert host_glibc() > (2, 17)


# ---- libraries


def test_what_torch_has_loaded_serves_the_kernel_package(site: Path) -> None:
    lay_real(FITTING, site)
    install_nvidia(site, *NVIDIA)
    found = abi(site)["libraries"]
    assert found.state == "pass", found
    assert "libcuda.so.1 comes with the NVIDIA driver, which is not on this host" in found.detail
    assert "libcublas.so.13 => nvidia/cu13/lib/libcublas.so.13" in found.evidence


def test_a_library_in_a_folder_that_nothing_looks_into_is_not_found(site: Path) -> None:
    lay_real(FITTING, site)
    install_nvidia(site, *NVIDIA)
    (site / "nvidia/other/lib").mkdir(parents=True)
    (site / "nvidia/cu13/lib/libnvrtc.so.13").rename(site / "nvidia/other/lib/libnvrtc.so.13")
    found = abi(site)["libraries"]
    assert found.state == "fail"
    assert found.detail.startswith("libnvrtc.so.13 not found, needed by sgl_kernel/")


def test_a_kernel_package_for_another_cuda_names_what_it_needs_and_what_torch_brings(site: Path) -> None:
    lay_real(OLDER, site)
    install_nvidia(site, *NVIDIA)
    found = abi(site)["libraries"]
    assert found.state == "fail"
    missing = {line.split(":")[0] for line in found.evidence if ": needed by " in line}
    assert {"libcudart.so.12", "libnvrtc.so.12", "libcublas.so.12", "libcublasLt.so.12"} <= missing
    assert "torch brings lib" in found.detail
    assert ".so.13" in found.detail


def test_a_driver_whose_library_is_not_in_the_container_is_a_failure(site: Path) -> None:
    lay_real(FITTING, site)
    install_nvidia(site, *NVIDIA)
    found = abi(site, driver=DRIVER)["libraries"]
    assert found.state == "fail"
    assert found.detail.startswith("libcuda.so.1 is not found, though the driver 580.95.05 is there")


@pytest.mark.parametrize("how", ["RUNPATH", "RPATH", "LD_LIBRARY_PATH", "nowhere"])
def test_libraries_are_looked_for_where_the_loader_looks(site: Path, how: str) -> None:
    wanted = library(site / "elsewhere/libwanted.so.3", soname="libwanted.so.3")
    tags = {"RUNPATH": "--enable-new-dtags", "RPATH": "--disable-new-dtags"}.get(how)
    options = [f"-Wl,{tags},-rpath,$ORIGIN/../elsewhere"] if tags else []
    library(site / "sgl_kernel/uses.abi3.so", needed=[wanted], options=options)
    variables = {"LD_LIBRARY_PATH": str(wanted.parent)} if how == "LD_LIBRARY_PATH" else {}
    found = one("abi", "libraries", site.parents[2], variables)
    assert found.state == ("fail" if how == "nowhere" else "pass"), found


def test_a_folder_that_a_link_leads_to_is_left_by_the_name_it_was_entered_by(
    site: Path, tmp_path: Path
) -> None:
    # As the loader does; uv installs links to its cache when it is told to.
    wanted = library(site / "elsewhere/libwanted.so.3", soname="libwanted.so.3")
    (site / "sgl_kernel").mkdir()
    options = ["-Wl,-rpath,$ORIGIN/../elsewhere"]
    away = library(tmp_path / "cache/uses.abi3.so", needed=[wanted], options=options)
    (site / "sgl_kernel/uses.abi3.so").symlink_to(away)
    assert abi(site)["libraries"].state == "pass"


def test_what_is_optional_and_not_of_cuda_may_be_missing(site: Path) -> None:
    numa = library(site / "elsewhere/libnobody.so.1", soname="libnobody.so.1")
    cuda = library(site / "elsewhere/libcudart.so.99", soname="libcudart.so.99")
    info = add(site, "sgl-kernel", "0.3.21")
    library(site / "_mscclpp.abi3.so", needed=[numa])
    (info / "RECORD").write_text("_mscclpp.abi3.so,,\n")
    found = abi(site)["libraries"]
    assert found.state == "pass"
    assert "libnobody.so.1: needed by _mscclpp.abi3.so" in found.evidence
    library(site / "_mscclpp.abi3.so", needed=[numa, cuda])
    found = abi(site)["libraries"]
    assert (found.state, found.detail.split(", ")[0]) == ("warn", "libcudart.so.99 not found")


# ---- torch


@pytest.mark.parametrize(
    ("there", "state"),
    [
        ("2.11.0+cu130", "pass"),
        ("2.11.1+cu129", "warn"),
        ("2.11.1+cu130", "pass"),
        ("2.9.1+cu128", "warn"),
        (None, "pass"),
    ],
)
def test_another_torch_than_the_sources_is_told(tmp_path: Path, there: str | None, state: str) -> None:
    site = healthy(tmp_path / "venv")
    found = abi(site, source={"host": "ct129", "torch": there, "python": "3.11.7"})["torch"]
    assert found.state == state
    assert found.detail.startswith("torch 2.11.0+cu130")


def test_another_torch_than_a_compiled_file_of_the_tree_was_linked_against_is_a_failure(
    tmp_path: Path,
) -> None:
    site = healthy(tmp_path / "venv")
    torch = library(site / "elsewhere/libtorch_cpu.so", soname="libtorch_cpu.so")
    library(site / "sglang/srt/mem_cache.cpython-311-x86_64-linux-gnu.so", needed=[torch])
    found = abi(site, source={"torch": "2.14.1+cu130"})["torch"]
    assert found.state == "fail"
    assert (
        "it brings sglang/srt/mem_cache.cpython-311-x86_64-linux-gnu.so, linked against torch" in found.detail
    )
    assert abi(site, source={"torch": "2.11.0+cu128"})["torch"].state == "warn"


def test_no_torch_is_a_failure(tmp_path: Path) -> None:
    site = healthy(tmp_path / "venv")
    shutil.rmtree(site / "torch")
    found = abi(site)
    assert found["torch"].state == "fail"
    assert {found[name].state for name in ("symbols", "libraries", "driver")} == {"unknown"}


# ---- driver


@pytest.mark.parametrize(
    ("torch", "cuda", "told", "state"),
    [
        ("2.11.0+cu130", "13.0", {"version": "580.95.05", "cuda": "13.0"}, "pass"),
        ("2.11.0+cu130", "13.0", {"version": "580.95.05", "cuda": None}, "pass"),
        ("2.11.0+cu130", "13.0", {"version": "570.133.20", "cuda": "12.8"}, "fail"),
        ("2.11.0+cu130", "13.0", {"version": "575.57.08", "cuda": None}, "fail"),
        # The cuda-compat package stands in for a newer driver.
        ("2.11.0+cu130", "13.0", {"version": "570.133.20", "cuda": "13.0"}, "pass"),
        ("2.9.1+cu129", "12.9", {"version": "535.104.05", "cuda": "12.2"}, "pass"),
        ("2.9.1+cu128", "12.8", {"version": "580.95.05", "cuda": "13.0"}, "pass"),
        ("2.9.1+cu128", "12.8", {"version": "470.57.02", "cuda": "11.4"}, "fail"),
        ("2.13.0+cpu", None, {"version": "580.95.05", "cuda": "13.0"}, "fail"),
        ("2.30.0+cu140", "14.0", {"version": "580.95.05", "cuda": None}, "unknown"),
        ("2.30.0+cu140", "14.0", {"version": "580.95.05", "cuda": "13.1"}, "fail"),
    ],
)
def test_a_driver_runs_the_cuda_of_its_major_version_and_older(
    tmp_path: Path, torch: str, cuda: str | None, told: dict[str, str | None], state: str
) -> None:
    site = make_venv(tmp_path / "venv")
    (site / "torch").mkdir()
    (site / "torch/__init__.py").write_text("")
    write_torch(site, torch, cuda)
    assert one("abi", "driver", tmp_path / "venv", driver=told).state == state


def test_without_a_driver_it_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = healthy(tmp_path / "venv")
    monkeypatch.setattr(driver, "VERSION_FILE", str(tmp_path / "none"))
    found = driver.check_driver(in_process(site), {})
    assert (found["state"], found["detail"]) == (
        "unknown",
        "no NVIDIA driver on this host; torch 2.11.0+cu130 is built for CUDA 13.0",
    )


def test_the_kernel_modules_own_words_tell_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
    (tmp_path / "version").write_text(words)
    monkeypatch.setattr(driver, "VERSION_FILE", str(tmp_path / "version"))
    assert driver.driver_of({"driver": {"version": None}}) == "580.95.05"


# ---- the reading itself


def test_only_what_is_looked_at_is_read(tmp_path: Path) -> None:
    path = real(TORCH) / "torch/lib/libtorch_cpu.so"
    assert path.stat().st_size > 400 << 20
    assert path.stat().st_blocks * 512 < 64 << 20
    found = Library(str(path))
    assert found.soname == "libtorch_cpu.so"
    assert "libc10.so" in found.needed
    assert found.defines("_ZN2at10TensorBase14const_data_ptrIiLi0EEEPKT_v") is False
    base = Library(str(path.with_name("libc10.so")))
    assert base.defines("_ZN3c1019UndefinedTensorImpl10_singletonE")
    # Wanted by it, not given.
    assert not base.defines("strlen")
    assert ("strlen", "libc.so.6") in base.undefined()
    assert base.glibc() >= (2, 17)
