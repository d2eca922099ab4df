"""Which device calls a forward makes, decided from counts alone: bucket, chunks, what to do without a graph.

Legend: slots of the hot set; the rows of each; the busiest slot decides the bucket.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from graphcache_runtime.ladder import Chunk, Ladder
from graphcache_runtime.routing import DeviceCall


class Policy(StrEnum):
    """What to do when a graph is not ready."""

    WAIT = "wait"
    """Wait for it: every step is as planned, the first may take as long as a compile."""
    HOST = "host"
    """Run on the host meanwhile."""
    READY_BUCKETS = "ready-buckets"
    """Use the buckets that are ready (a larger one, or chunks of a smaller); without any, the host."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The calls of a forward. ``way`` names how they were chosen; ``lacking`` what was not ready, empty if all was."""

    calls: tuple[DeviceCall, ...]
    way: str
    lacking: str = ""


IsReady = Callable[[int], bool]
"""Whether every graph of this bucket that the step needs is loaded."""


def choose_calls(slot_rows: Sequence[int], ladder: Ladder, policy: Policy, is_ready: IsReady) -> Choice:
    """The calls for slots with these rows. No rows: no call."""
    busiest = max(slot_rows, default=0)
    if busiest == 0:
        return Choice((), "no-hot-rows")
    wished = ladder.chunks(busiest)
    if policy is Policy.WAIT or not _missing(wished, is_ready):
        return Choice(_calls(len(slot_rows), ladder, busiest), "bucket" if len(wished) == 1 else "chunks")
    lacking = f"bucket {wished[0].bucket} not ready"
    ready = tuple(rung for rung in ladder.rungs if is_ready(rung)) if policy is Policy.READY_BUCKETS else ()
    if not ready:
        return Choice((), "host", lacking)
    return Choice(_calls(len(slot_rows), Ladder(ready), busiest), "ready-buckets", lacking)


def _missing(wished: Sequence[Chunk], is_ready: IsReady) -> list[int]:
    """Asks for every bucket, so that all that are missing are fetched at the same time."""
    return [bucket for bucket in sorted({chunk.bucket for chunk in wished}) if not is_ready(bucket)]


def _calls(slots: int, ladder: Ladder, busiest: int) -> tuple[DeviceCall, ...]:
    return tuple(DeviceCall(0, slots, chunk.start, chunk.bucket) for chunk in ladder.chunks(busiest))
