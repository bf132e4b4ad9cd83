"""What the package asks of other distributions, read from real metadata and real trees."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from dflash_console.agent.deep.environment import Environment, Unit
from dflash_console.agent.deep.minimums import check_minimums, read_minimums
from dflash_console.agent.verify.ground import Ground
from dflash_console.verdict import Check
from tests.agent.deep_part import answer, one
from tests.agent.deep_venvs import add, healthy, metadata, remove, tree_of, write_torch
from tests.agent.environments import make_venv
from tests.wheels import lay


def requires(venv: Path, **fields: object) -> Check:
    return one("pins", "requires", venv, {}, **fields)


def minimum_check(venv: Path, arguments: tuple[str, ...] = (), **variables: str) -> dict[str, object]:
    """The check for a unit with these variables and this command line."""
    environment = Environment(Ground(str(venv), "sglang"))
    unit = Unit("sglang.service", variables, list(arguments))
    found: dict[str, object] = check_minimums(environment, unit, read_minimums(environment.tree))
    return found


# ---- requires


@pytest.mark.parametrize("version", ["0.5.9", "0.5.13.post1"])
def test_a_healthy_install_has_all_it_asks_for(tmp_path: Path, version: str) -> None:
    healthy(tmp_path / "venv", version)
    found = requires(tmp_path / "venv")
    assert (found.state, found.detail.split(" ", 1)[1]) == ("pass", "requirements met")
    assert int(found.detail.split()[0]) > 50


def test_each_requirement_that_is_not_met_is_a_line_with_what_is_there(tmp_path: Path) -> None:
    site = healthy(tmp_path / "venv")
    remove(site, "transformers")
    add(site, "transformers", "4.57.1")
    remove(site, "modelscope")
    found = requires(tmp_path / "venv")
    assert found.state == "warn"
    assert {"needs transformers==5.8.1, has 4.57.1", "needs modelscope, which is not installed"} <= {
        *found.evidence
    }
    assert found.detail.startswith("2 of ")
    assert "1 not installed" in found.detail


@pytest.mark.parametrize(
    ("name", "has", "state"),
    [
        ("torch", "2.11.0+cu130", "pass"),
        ("torch", "2.11.1", "warn"),
        ("torch", "2.9.1+cu128", "fail"),
        ("torch", "2.12.0", "fail"),
        ("torch", None, "fail"),
        # sglang itself asks for 0.4.3 at least.
        ("sglang-kernel", "0.4.2.post2", "fail"),
        ("sglang-kernel", "0.4.4", "warn"),
        ("sglang-kernel", None, "fail"),
        # A local version and a release candidate that the pin admits.
        ("flashinfer-python", "0.6.12+cu130", "pass"),
        ("anthropic", "0.99.0rc1", "pass"),
        ("numpy", "not a version", "pass"),
    ],
)
def test_a_pin_weighs_by_what_breaks_without_it(
    tmp_path: Path, name: str, has: str | None, state: str
) -> None:
    site = healthy(tmp_path / "venv")
    remove(site, name)
    if has is not None:
        add(site, name, has, f"{name.replace('-', '_')}-9.dist-info")
    found = requires(tmp_path / "venv")
    assert (found.state, found.evidence) == (state, found.evidence)


def test_the_kernel_package_under_its_old_name_is_named(tmp_path: Path) -> None:
    site = healthy(tmp_path / "venv")
    remove(site, "sglang-kernel")
    add(site, "sgl-kernel", "0.3.21")
    found = requires(tmp_path / "venv")
    assert found.state == "fail"
    assert "sglang-kernel: but there is sgl-kernel 0.3.21" in found.evidence


def test_what_a_failed_upgrade_left_twice_is_named(tmp_path: Path) -> None:
    site = healthy(tmp_path / "venv")
    add(site, "transformers", "4.57.1")
    found = requires(tmp_path / "venv")
    assert found.state == "warn"
    assert any(line.startswith("transformers: 2 dist-infos at once: ") for line in found.evidence)


def test_a_copied_tree_is_measured_by_the_metadata_of_its_source(tmp_path: Path) -> None:
    site = healthy(tmp_path / "venv", "0.5.9")
    tree_of(site, "0.5.13.post1")
    source = {"host": "ct129", "venv": "/root/ml-env"}
    found = requires(tmp_path / "venv", source_metadata=metadata("0.5.13.post1"), source=source)
    assert found.state == "fail"
    assert "needs torch==2.11.0, has 2.9.1" in found.evidence
    assert "needs sglang-kernel==0.4.3, which is not installed" in found.evidence
    assert found.evidence[-1] == "read from the dist-info on ct129:/root/ml-env, 0.5.13.post1"


@pytest.mark.parametrize("here", ["0.5.9", None])
def test_before_a_copy_the_requirements_are_those_of_what_would_come(
    tmp_path: Path, here: str | None
) -> None:
    site = healthy(tmp_path / "venv", "0.5.9")
    if here is None:
        shutil.rmtree(site / "sglang")
        shutil.rmtree(site / "sglang-0.5.9.dist-info")
    source = {"host": "ct129", "venv": "/root/ml-env"}
    fields = {"is_planned": True, "source": source}
    found = requires(tmp_path / "venv", source_metadata=metadata("0.5.13.post1"), **fields)
    assert found.state == "fail"
    assert found.evidence[-1] == "read from the dist-info on ct129:/root/ml-env, 0.5.13.post1"
    assert requires(tmp_path / "venv", source_problem="it hangs", **fields).detail == "it hangs"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "the metadata of where it comes from is not at hand"),
        ({"source_problem": "ct129 could not be asked: timeout"}, "ct129 could not be asked: timeout"),
        ({"source_metadata": "Version: 0.5.23\n\n"}, "and the dist-info on the source host 0.5.23"),
    ],
)
def test_without_metadata_of_its_version_a_copied_tree_is_not_judged(
    tmp_path: Path, fields: dict[str, object], words: str
) -> None:
    site = healthy(tmp_path / "venv", "0.5.9")
    tree_of(site, "0.5.13.post1")
    found = requires(tmp_path / "venv", **fields)
    assert found.state == "unknown"
    assert found.detail.startswith("the tree is 0.5.13.post1, the dist-info here 0.5.9")
    assert words in found.detail


def test_markers_are_those_of_the_environment_not_of_the_agent(tmp_path: Path) -> None:
    site = healthy(tmp_path / "venv")
    config = tmp_path / "venv" / "pyvenv.cfg"
    config.write_text(config.read_text().replace("version = 3.11", "version = 3.9"))
    info = site / "sglang-0.5.13.post1.dist-info" / "METADATA"
    text = (
        "Name: sglang\nVersion: 0.5.13.post1\n"
        'Requires-Dist: never-a; python_version < "3.9"\nRequires-Dist: never-b; extra == "all"\n'
        'Requires-Dist: never-c; sys_platform == "win32"\nRequires-Dist: broken ==\n'
        "Requires-Dist: torch @ https://example.invalid/torch.whl\n\nRequires-Dist: of-the-description\n"
    )
    info.unlink()
    info.write_text(text)
    found = requires(tmp_path / "venv")
    assert (found.state, found.detail) == ("pass", "1 requirement met")
    assert "can't be read: broken ==" in found.evidence


# ---- minimums


@pytest.mark.parametrize(
    ("version", "floors"),
    [
        ("0.5.9", {"sgl-kernel": "0.3.21", "flashinfer_python": "0.6.3"}),
        ("0.5.13.post1", {"sglang-kernel": "0.4.3", "flashinfer_python": "0.6.12"}),
        ("0.5.23", {"sglang-kernel": "0.4.9", "flashinfer_python": "0.7.2"}),
    ],
)
def test_the_minimums_of_real_trees_are_read(tmp_path: Path, version: str, floors: dict[str, str]) -> None:
    lay(version, tmp_path)
    found = read_minimums(str(tmp_path / "sglang"))
    assert {minimum.name: minimum.version for minimum in found} == floors
    conditions = {minimum.name: minimum.conditions[1] for minimum in found}
    assert "flashinfer" in conditions.pop("flashinfer_python")
    assert set(conditions.values()) == {"_is_cuda"}


def test_what_is_below_is_told_in_sglangs_own_words(tmp_path: Path) -> None:
    site = healthy(tmp_path / "venv", "0.5.9")
    tree_of(site, "0.5.13.post1")
    found = one("pins", "minimums", tmp_path / "venv")
    assert found.state == "fail"
    assert found.detail.startswith(
        "sglang-kernel with minimum required version 0.4.3 is not installed (checked at the start)"
    )
    assert any(
        line.startswith(
            "flashinfer_python is installed with version 0.6.3, which is less than the minimum required version "
            "0.6.12. Please uninstall the old version"
        )
        for line in found.evidence
    )


@pytest.mark.parametrize(
    ("arguments", "state"),
    [
        ((), "warn"),
        (("--attention-backend", "flashinfer"), "fail"),
        (("--attention-backend=flashinfer",), "fail"),
        (("--attention-backend", "fa3", "--decode-attention-backend", "flashinfer"), "fail"),
        (("--attention-backend", "triton"), "pass"),
    ],
)
def test_flashinfer_counts_when_it_is_the_attention_backend(
    tmp_path: Path, arguments: tuple[str, ...], state: str
) -> None:
    site = healthy(tmp_path / "venv")
    remove(site, "flashinfer-python")
    assert minimum_check(tmp_path / "venv", arguments)["state"] == state


@pytest.mark.parametrize(("value", "state"), [("1", "warn"), ("True", "warn"), ("0", "fail")])
def test_a_unit_that_skips_the_check_is_only_warned_of(tmp_path: Path, value: str, state: str) -> None:
    site = healthy(tmp_path / "venv")
    remove(site, "sglang-kernel")
    found = minimum_check(tmp_path / "venv", SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK=value)
    assert found["state"] == state


def test_a_torch_without_cuda_is_not_asked_for_kernels(tmp_path: Path) -> None:
    site = healthy(tmp_path / "venv")
    remove(site, "sglang-kernel")
    write_torch(site, "2.11.0+cpu", None)
    assert minimum_check(tmp_path / "venv")["state"] == "warn"


def test_a_tree_for_a_newer_python_than_the_agents_is_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    text = (
        'def assert_pkg_version(a, b): ...\nassert_pkg_version(\n    "x",\n    "1.2",\n)\nthis is no Python\n'
    )
    (tmp_path / "sglang" / "engine.py").write_text(text)
    (found,) = read_minimums(str(tmp_path / "sglang"))
    assert (found.name, found.version, found.where) == ("x", "1.2", "sglang/engine.py:2")


def test_reading_the_conditions_costs_no_more_than_reading_the_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # ast.get_source_segment splits the whole source each time: for every `if` of sglang it takes twelve seconds.
    lay("0.5.13.post1", tmp_path)
    asked: list[ast.AST] = []
    segment = ast.get_source_segment

    def counting(source: str, node: ast.AST) -> str | None:
        asked.append(node)
        return segment(source, node)

    monkeypatch.setattr(ast, "get_source_segment", counting)
    read_minimums(str(tmp_path / "sglang"))
    assert len(asked) < 10


def test_an_environment_that_is_not_there_is_not_judged(tmp_path: Path) -> None:
    found = answer("pins", tmp_path / "none")
    assert {(check.name, check.state, check.detail) for check in found.checks} == {
        ("requires", "unknown", "no such folder"),
        ("minimums", "unknown", "no such folder"),
    }


# ---- metadata


def test_another_hosts_verification_is_told_the_metadata_of_what_lies_here(tmp_path: Path) -> None:
    site = healthy(tmp_path / "venv")
    told = answer("metadata", tmp_path / "venv").facts.metadata
    assert {"Name: sglang", "Version: 0.5.13.post1", "Requires-Dist: torch==2.11.0"} <= {*told}
    remote = requires(tmp_path / "venv", source_metadata="\n".join(told))
    assert remote.state == "pass"
    tree_of(site, "0.5.9")
    assert answer("metadata", tmp_path / "venv").facts.metadata == ()
    shutil.rmtree(site / "sglang")
    make_venv(tmp_path / "empty")
    assert answer("metadata", tmp_path / "empty").facts.metadata == ()
