"""Waiting out an outage of the service: the pauses between tries, and how long a finished compile is worth them."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from graphcache_client.errors import ServiceUnavailable

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0

Done = TypeVar("Done")
logger = logging.getLogger(__name__)


def growing_pauses() -> Iterator[float]:
    """Seconds, without end: each twice the one before, up to the longest."""
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def keep_trying(
    publish: Callable[[], Done],
    *,
    give_up: Callable[[], bool],
    pause: Callable[[float], None],
    for_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> Done | None:
    """Call ``publish`` until it succeeds, with growing pauses; None when there is no more point in it.

    Raises:
        LeaseLost, RequestRefused: a later try would be answered the same.
    """
    deadline = clock() + for_s
    pauses = growing_pauses()
    while True:
        try:
            return publish()
        except ServiceUnavailable as error:
            logger.warning("not published yet: %s", error)
        if clock() >= deadline:
            return None
        pause(min(next(pauses), deadline - clock()))
        if give_up():
            return None
