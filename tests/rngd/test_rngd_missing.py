"""What is missing is said exactly, and how to install it."""

import torch

from graphcache_runtime.doctor import diagnosis
from graphcache_runtime.toolchains import rngd_vendor


def only_path(monkeypatch, folder) -> None:
    monkeypatch.setenv("PATH", str(folder))


def test_nothing_is_missing_here():
    assert diagnosis("rngd").version == rngd_vendor.toolchain_version()


def test_a_missing_cross_compiler_is_named(monkeypatch, tmp_path):
    only_path(monkeypatch, tmp_path)
    assert diagnosis("rngd").missing == [
        "aarch64-linux-gnu-gcc is not on PATH: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    ]


def test_missing_headers_of_the_cross_compiler_are_named(monkeypatch, tmp_path):
    compiler = tmp_path / "aarch64-linux-gnu-gcc"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    only_path(monkeypatch, tmp_path)
    assert diagnosis("rngd").missing == ["the C headers for arm64 are missing: apt-get install libc6-dev-arm64-cross"]


def test_the_wrong_torch_is_named_with_the_right_one(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    (said,) = rngd_vendor.missing_pieces()
    assert "needs torch 2.10.0, here is 2.13.0+cpu" in said


def test_a_missing_second_compiler_is_named_with_its_version(monkeypatch):
    monkeypatch.setattr(rngd_vendor, "_binary", lambda: None)
    (said,) = rngd_vendor.missing_pieces()
    assert said == "furiosa-tcc is neither installed nor on PATH: pip install furiosa-tcc==2026.4.0"
