"""What is missing is said exactly, and how to install it: by the doctor, and by a worker that then does not start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.compiles import environment

from graphcache_runtime.doctor import diagnosis
from graphcache_runtime.toolchains import rngd_vendor

NO_CROSS_COMPILER = "aarch64-linux-gnu-gcc is not on PATH: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
COMMAND = "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); from graphcache_client.cli.app import main; main()"


def graphcache(*arguments: str, packages: str | None = None, **more: str) -> tuple[int, str]:
    """Exit status and all output of the command line; with ``packages``, nothing else is installed."""
    alone = [] if packages is None else ["-S", "-E"]
    command = [sys.executable, *alone, "-c", COMMAND, packages or "", *arguments]
    done = subprocess.run(command, env=environment(**more), capture_output=True, text=True, check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def installed_without(names: str, folder: Path) -> str:
    """A path on which all is installed that is here, but for what begins with ``names``."""
    folder.mkdir()
    for entry in (entry for place in sys.path if place.endswith("site-packages") for entry in Path(place).iterdir()):
        link = folder / entry.name
        if not entry.name.startswith(names) and not link.exists():
            link.symlink_to(entry)
    root = Path(__file__).parents[2]
    return os.pathsep.join(map(str, (folder, *(root / part for part in ("client", "service", "runtime")))))


def test_nothing_is_missing_here():
    assert diagnosis("rngd").version == rngd_vendor.toolchain_version()


def test_a_missing_cross_compiler_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = diagnosis("rngd")
    assert found.missing == [NO_CROSS_COMPILER]
    assert found.loads


def test_a_worker_without_its_cross_compiler_does_not_start(tmp_path):
    status, said = graphcache("worker", "--toolchain", "rngd", "--url", "http://127.0.0.1:1", PATH=str(tmp_path))
    assert status == 1
    assert f"rngd cannot compile here: {NO_CROSS_COMPILER}" in said


def test_missing_headers_of_the_cross_compiler_are_named(monkeypatch, tmp_path):
    compiler = tmp_path / "aarch64-linux-gnu-gcc"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert diagnosis("rngd").missing == ["the C headers for arm64 are missing: apt-get install libc6-dev-arm64-cross"]


def test_a_missing_second_compiler_is_named_with_its_version(tmp_path):
    packages = installed_without("furiosa_tcc", tmp_path / "packages")
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if not (Path(p) / "furiosa-tcc").exists())
    status, said = graphcache("doctor", "rngd", packages=packages, PATH=path)
    assert status == 1
    assert "furiosa-tcc is neither installed nor on PATH: pip install furiosa-tcc==2026.4.0" in said


def test_the_wrong_torch_is_named_though_it_cannot_be_imported_with_the_vendors_package(tmp_path):
    newer = tmp_path / "torch-2.13.0.dist-info"
    newer.mkdir()
    (newer / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n")
    status, said = graphcache("doctor", "rngd", PYTHONPATH=str(tmp_path))
    assert status == 1
    assert "furiosa-torch 2026.4.0 needs torch 2.10.0, here is 2.13.0: pip install torch==2.10.0" in said


def test_without_the_drivers_library_no_device_is_asked_for_and_nothing_is_logged():
    if rngd_vendor.why_no_device() is None:
        pytest.skip("an RNGD answers here")
    status, said = graphcache("doctor", "rngd")
    assert status == 0
    assert "no RNGD answers here (librenegade.so: cannot open shared object file" in said
    assert "ERROR" not in said
