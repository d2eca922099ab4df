"""Which device calls a forward makes, decided from counts alone: bucket, chunks, overflow, tiers, or the host.

Legend: slots of the hot set, in order; the rows of each; the busiest slot needs the largest bucket.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from graphcache_runtime.ladder import Ladder
from graphcache_runtime.planning.costs import Costs
from graphcache_runtime.routing import DeviceCall


class Policy(StrEnum):
    """What to do when a graph is not ready."""

    WAIT = "wait"
    """Wait for it: every step is as planned, the first may take as long as a compile."""
    HOST = "host"
    """Run on the host meanwhile."""
    READY_BUCKETS = "ready-buckets"
    """Use the buckets that are ready (a larger one, or chunks of a smaller) where that costs less than the host."""


class Overflow(StrEnum):
    """Which calls to make for rows of very different numbers."""

    BUCKET = "bucket"
    """One call whose bucket holds the busiest slot; chunks above the largest bucket. Every hot row runs hot."""
    COST = "cost"
    """The cheapest: a smaller bucket and the rest on the host, chunks, tiers, or all on the host."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The calls of a forward. ``way`` names how they were chosen; ``lacking`` what was not ready, empty if all was."""

    calls: tuple[DeviceCall, ...]
    way: str
    lacking: str = ""
    weighed: tuple[tuple[str, float], ...] = ()
    """Why: the ways that were weighed, and the expected seconds of the cheapest choice of each."""


HOST: Final = Choice((), "host")

IsThere = Callable[[int, int], bool]
"""``is_there(slots, bucket)``: whether all graphs of that size that the step needs are loaded."""


@dataclass(frozen=True, slots=True)
class Chooser:
    """A layer's way of choosing. ``tiers``: the groups that ``Overflow.COST`` may split a call into."""

    ladder: Ladder
    policy: Policy = Policy.WAIT
    overflow: Overflow = Overflow.BUCKET
    tiers: tuple[int, ...] = ()

    def choose(
        self,
        slot_rows: Sequence[int],
        ask: IsThere,
        is_there: IsThere,
        costs: Costs | None = None,
        cold_s: float | None = None,
    ) -> Choice:
        """The calls for slots with these rows. No rows: no call.

        Args:
            costs: what to weigh with; without them one bucket, or its chunks, holds all rows.
            cold_s: what the host takes for the cold experts while device calls run; None where they run first.
            ask: also has a missing graph fetched, and compiled if need be; only used for the calls that are wished.
            is_there: only looks, so that nothing is compiled that no step wishes for.
        """
        busiest = max(slot_rows, default=0)
        if busiest == 0:
            return Choice((), "no-hot-rows")
        wished = self._best(slot_rows, lambda slots, bucket: True, costs, cold_s)
        lacking = [call for call in _sizes(wished.calls) if self.policy is not Policy.WAIT and not ask(*call)]
        if not lacking:
            return wished
        reason = f"bucket {lacking[0][1]} not ready"
        if self.policy is Policy.HOST:
            return replace(HOST, lacking=reason)
        within = self._best(slot_rows, is_there, costs, cold_s)
        if costs and cost_s(within, slot_rows, costs, cold_s) > cost_s(HOST, slot_rows, costs, cold_s):
            within = HOST
        return replace(within, way=f"ready-{within.way}" if within.calls else "host", lacking=reason)

    def _best(self, slot_rows: Sequence[int], is_usable: IsThere, costs: Costs | None, cold_s: float | None) -> Choice:
        slots = len(slot_rows)
        rungs = tuple(rung for rung in self.ladder.rungs if is_usable(slots, rung))
        if self.overflow is Overflow.BUCKET or costs is None:
            return _whole(slots, Ladder(rungs), max(slot_rows)) if rungs else HOST
        choices = [HOST, *_candidates(slot_rows, rungs)]
        for groups in self.tiers:
            if slots % groups == 0 and (tiered := _tiered(slot_rows, groups, self.ladder, is_usable)):
                choices.append(tiered)
        priced = [(cost_s(choice, slot_rows, costs, cold_s), len(choice.calls), n) for n, choice in enumerate(choices)]
        cheapest_s: dict[str, float] = {}
        for seconds, _, n in sorted(priced):
            cheapest_s.setdefault(choices[n].way, seconds)
        return replace(choices[min(priced)[2]], weighed=tuple(cheapest_s.items()))


def cost_s(choice: Choice, slot_rows: Sequence[int], costs: Costs, cold_s: float | None = None) -> float:
    """What the calls cost, and on the host the rows that no call takes; with ``cold_s`` the longer of the two."""
    left = list(slot_rows)
    device_s = 0.0
    for call in choice.calls:
        device_s += costs.device_s(call.slots * call.bucket)
        for slot in range(call.first_slot, call.first_slot + call.slots):
            left[slot] -= max(0, min(slot_rows[slot] - call.first_row, call.bucket))
    host_s = costs.host_s(sum(rows > 0 for rows in left), sum(left))
    return device_s + host_s if cold_s is None else max(device_s, cold_s + host_s)


def _whole(slots: int, ladder: Ladder, busiest: int) -> Choice:
    calls = tuple(DeviceCall(0, slots, chunk.start, chunk.bucket) for chunk in ladder.chunks(busiest))
    return Choice(calls, "bucket" if len(calls) == 1 else "chunks")


def _candidates(slot_rows: Sequence[int], rungs: Iterable[int]) -> Iterable[Choice]:
    """For each bucket: one call, whose overflow the host runs; and as many calls as hold every row."""
    slots, busiest = len(slot_rows), max(slot_rows)
    for rung in rungs:
        yield Choice((DeviceCall(0, slots, 0, rung),), "bucket" if rung >= busiest else "overflow")
        if rung < busiest:
            yield Choice(_whole(slots, Ladder((rung,)), busiest).calls, "chunks")


def _tiered(slot_rows: Sequence[int], groups: int, ladder: Ladder, is_usable: IsThere) -> Choice | None:
    """One call for each group of slots, with the group's own bucket. None where a group has no graph that holds it."""
    size, calls = len(slot_rows) // groups, []
    for first in range(0, len(slot_rows), size):
        busiest = max(slot_rows[first : first + size])
        bucket = ladder.bucket_for(busiest) if busiest else 0
        if busiest > ladder.largest or (busiest and not is_usable(size, bucket)):
            return None
        if busiest:
            calls.append(DeviceCall(first, size, 0, bucket))
    return Choice(tuple(calls), "tiers")


def _sizes(calls: Iterable[DeviceCall]) -> list[tuple[int, int]]:
    return sorted({(call.slots, call.bucket) for call in calls})
