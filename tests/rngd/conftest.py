"""Tests with the vendor's compiler: marked, and skipped as a whole where it is not installed."""

from importlib.util import find_spec
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures" / "rngd"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.rngd)
        if find_spec("furiosa") is None:
            item.add_marker(pytest.mark.skip(reason="furiosa-torch is not installed: run scripts/test_rngd.sh"))


@pytest.fixture(scope="session")
def fixtures() -> Path:
    return FIXTURES
