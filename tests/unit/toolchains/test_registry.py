"""Toolchains are found by entry point, built-in ones and plug-ins alike."""

import subprocess
import sys

import pytest
from fakes.compiles import environment

from graphcache_runtime.doctor import diagnoses, diagnosis
from graphcache_runtime.toolchains.inductor import InductorToolchain
from graphcache_runtime.toolchains.registry import UnknownToolchain, toolchain_named, toolchain_names, toolchain_of


def test_built_in_toolchains_and_plug_ins_are_registered():
    assert {"atom", "inductor", "rngd", "stub"} <= set(toolchain_names())
    assert toolchain_named("stub").version() == "stub-1.0"


def test_a_version_finds_the_toolchain_that_makes_such_graphs():
    assert isinstance(toolchain_of("inductor-2.99.0.gcc15.1.0.x86-64-v3.r9"), InductorToolchain)
    assert toolchain_of("furiosa-torch-2026.4.0+fc43f6a779").name == "rngd"
    assert toolchain_of("rebel-compiler-1.2.3").name == "atom"


@pytest.mark.usefixtures("no_plugin")
def test_an_unknown_name_lists_what_there_is_and_why_each_is_not_usable():
    with pytest.raises(UnknownToolchain) as caught:
        toolchain_named("stub")
    said = str(caught.value)
    assert "no toolchain is named 'stub'" in said
    assert "rebel-compiler is not installed" in said
    assert InductorToolchain().version() in said


def test_a_version_that_nothing_makes_lists_what_there_is():
    with pytest.raises(UnknownToolchain, match=r"other-1\.0.*stub-1\.0"):
        toolchain_of("other-1.0")


def test_a_plug_in_that_cannot_be_imported_is_said_and_spares_the_others():
    with pytest.raises(UnknownToolchain, match="graphcache_stub_without_module"):
        toolchain_named("broken")
    assert toolchain_of("stub-1.0").name == "stub"
    found = {one.name: one for one in diagnoses([])}
    assert not found["broken"].usable
    assert found["stub"].usable


def test_the_doctor_says_what_is_missing_and_how_to_get_it(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    found = diagnosis("inductor")
    assert not found.usable
    assert found.loads
    assert found.runs_on == "host CPU"
    assert "'no-such-compiler'" in found.missing[0]
    assert "apt-get install g++" in found.missing[0]


def test_a_worker_without_a_compiler_does_not_start_and_says_what_is_missing():
    command = [sys.executable, "-m", "graphcache_client", "worker", "--url", "http://127.0.0.1:1"]
    variables = environment(CXX="no-such-compiler")
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "inductor cannot compile here: no C++ compiler 'no-such-compiler' on PATH" in done.stderr


def test_atom_says_that_its_compiler_is_missing():
    assert diagnosis("atom").missing == [
        "rebel-compiler is not installed: Rebellions gives it to its customers; see their documentation"
    ]
