"""A node without a compiler asks for a version that others compile with, if its graphs load there."""

import pytest

from graphcache_runtime.toolchains.base import ToolchainUnavailable
from graphcache_runtime.toolchains.inductor import InductorToolchain
from graphcache_runtime.toolchains.offered import version_to_ask_for

OTHER_GCC = InductorToolchain().version().replace("gcc", "gcc99.")
OTHER_TORCH = "inductor-1.0.0.gcc12.2.0.x86-64-v3.r4"
RNGD = "furiosa-torch-2026.4.0+fc43f6a779"


def test_with_a_compiler_its_own_version_is_asked_for():
    toolchain = InductorToolchain()
    assert version_to_ask_for(toolchain, [OTHER_GCC]) == toolchain.version()


def test_without_one_the_first_known_version_that_loads_here(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    older = OTHER_GCC.replace("gcc99.", "gcc98.")
    assert version_to_ask_for(InductorToolchain(), [RNGD, OTHER_TORCH, OTHER_GCC, older]) == OTHER_GCC


def test_without_any_that_loads_it_says_what_is_missing(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ToolchainUnavailable, match=r"no C\+\+ compiler .* no version of inductor is known whose"):
        version_to_ask_for(InductorToolchain(), [OTHER_TORCH, RNGD])
