"""inductor: what its version names, and what it refuses to load."""

import re
from pathlib import Path

import pytest
import torch

from graphcache_runtime.toolchains.base import LoadFailed, ToolchainUnavailable
from graphcache_runtime.toolchains.cpu import LEVELS, cpu_features, lacking
from graphcache_runtime.toolchains.inductor import SETTINGS, InductorToolchain
from graphcache_wire import GraphKey

V3 = LEVELS["x86-64-v3"]


def key_of(version: str) -> GraphKey:
    return GraphKey(kind="moe-experts-fwd", e_hot=2, h=64, f=32, bucket=8, toolchain=version)


def test_the_version_names_torch_compiler_cpu_level_and_revision():
    version = InductorToolchain(V3).version()
    assert re.fullmatch(r"inductor-.+\.(gcc|clang)[0-9.]+\.x86-64-v3\.r[0-9]+", version)
    assert version.startswith(f"inductor-{torch.__version__}.")


def test_a_newer_cpu_makes_the_same_version():
    assert InductorToolchain(LEVELS["x86-64-v4"]).version() == InductorToolchain(V3).version()


def test_a_cpu_with_bf16_arithmetic_makes_graphs_that_only_such_cpus_load(tmp_path: Path):
    version = InductorToolchain(LEVELS["x86-64-v4-bf16"]).version()
    assert version == InductorToolchain(V3).version().replace("x86-64-v3", "x86-64-v4-bf16")
    with pytest.raises(LoadFailed, match="lacks avx512_bf16"):
        InductorToolchain(LEVELS["x86-64-v4"]).load(tmp_path, key_of(version))


def test_a_cpu_without_the_features_neither_compiles_nor_loads_and_names_them(tmp_path: Path):
    version = InductorToolchain(V3).version()
    older = InductorToolchain(V3 - {"avx2", "fma"})
    with pytest.raises(ToolchainUnavailable, match="lacks avx2, fma"):
        older.version()
    with pytest.raises(LoadFailed, match="lacks avx2, fma"):
        older.load(tmp_path, key_of(version))


def test_a_torch_without_one_of_its_settings_cannot_compile_and_is_named(monkeypatch):
    monkeypatch.setitem(SETTINGS, "cpp.no_such_setting", True)
    (said,) = InductorToolchain(V3).missing()
    assert said.startswith(f"inductor of torch {torch.__version__} has no cpp.no_such_setting: install torch")


def test_graphs_for_a_level_above_this_cpu_are_refused(tmp_path: Path):
    version = InductorToolchain(V3).version().replace("x86-64-v3", "x86-64-v4")
    with pytest.raises(LoadFailed, match="avx512f"):
        InductorToolchain(V3).load(tmp_path, key_of(version))


@pytest.mark.parametrize("version", ["inductor-1.0.0.gcc12.2.0.x86-64-v3.r1", "inductor-x", "stub-1.0"])
def test_graphs_of_another_torch_or_an_unknown_version_are_refused(tmp_path: Path, version):
    with pytest.raises(LoadFailed, match=re.escape(version) if "gcc" not in version else "torch 1.0.0"):
        InductorToolchain(V3).load(tmp_path, key_of(version))


def test_features_are_read_in_the_words_of_proc_cpuinfo(tmp_path: Path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx2 fma\n\nprocessor\t: 1\nflags\t\t: other\n")
    assert cpu_features(tmp_path / "cpuinfo") == {"fpu", "avx2", "fma"}
    assert cpu_features(tmp_path / "absent") == frozenset()
    assert "avx512f" in lacking("x86-64-v4", V3)
