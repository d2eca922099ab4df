"""What a test process starts once, whichever folder of tests asks first, and ends when it ends."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import pytest

Thing = TypeVar("Thing")

_STARTED = pytest.StashKey[dict[str, object]]()


def started_once(config: pytest.Config, name: str, start: Callable[[], AbstractContextManager[Thing]]) -> Thing:
    """The thing of this name; started by the first call. A session's fixture would be started by each conftest."""
    started = config.stash.setdefault(_STARTED, {})
    if name not in started:
        manager = start()
        started[name] = manager.__enter__()
        config.add_cleanup(lambda: manager.__exit__(None, None, None))
    return started[name]  # type: ignore[return-value]
