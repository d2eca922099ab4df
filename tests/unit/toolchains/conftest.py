"""The stub toolchain is installed, as a plug-in would be, for these tests and the processes they start."""

import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[2] / "fakes" / "plugin"


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN))
    monkeypatch.syspath_prepend(PLUGIN)
    return PLUGIN


@pytest.fixture
def no_plugin(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(plugin)])
