"""The pauses between tries while the service is away."""

from collections.abc import Iterator
from typing import Final

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0


def growing_pauses() -> Iterator[float]:
    """Seconds, without end: each twice the one before, up to the longest."""
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
