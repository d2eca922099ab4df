"""Statistics: what hit and missed, what it cost, what it saved, and what looks wrong."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.core.callers import Caller
from graphcache_service.core.errors import StoreFull
from graphcache_service.core.flush import flush
from graphcache_service.core.outcomes import at
from graphcache_service.core.services import Services
from graphcache_service.db import blobs, clock, tallies
from graphcache_service.db import stats as rows
from graphcache_service.db.tallies import Filter, Group, Sum
from graphcache_wire import Stats, StatsRow
from graphcache_wire.graphs import CompileState
from graphcache_wire.stats import Alarm, GroupBy, Percentiles, StatsGroup, Tier, ToolchainSeen

TIERS: Final[tuple[Tier, ...]] = ("memory", "disk", "service")
WaitOutcome = Literal["ready", "failed", "timed_out"]
WAIT_OUTCOMES: Final[tuple[WaitOutcome, ...]] = ("ready", "failed", "timed_out")
STATES: Final[tuple[CompileState, ...]] = ("queued", "leased", "ready", "failed")
FEW_ASKS: Final = 10
"""Below this many resolves a toolchain's hit ratio says nothing."""


def percentiles(seconds: Sequence[float]) -> Percentiles:
    """By the nearest rank: a value that was really measured."""
    ordered = sorted(seconds)

    def rank(share: float) -> float | None:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None

    return Percentiles(count=len(ordered), p50_s=rank(0.50), p95_s=rank(0.95), p99_s=rank(0.99))


@dataclass(slots=True)
class _Group:
    """Totals by what was counted, and the waits."""

    sums: dict[str, Sum] = field(default_factory=lambda: defaultdict(Sum))
    waits: list[float] = field(default_factory=list)

    def count(self, what: str) -> int:
        return self.sums[what].number if what in self.sums else 0

    def seconds(self, events: Iterable[str]) -> float:
        # Many sums of numbers with a fraction may come to less than none.
        return max(0.0, sum(self.sums[what].amount for what in events if what in self.sums))

    def row(self) -> StatsRow:
        hits = {tier: self.count(f"hit_{tier}") for tier in TIERS}
        joined: dict[WaitOutcome, int] = {outcome: self.count(f"joined_{outcome}") for outcome in WAIT_OUTCOMES}
        asked = sum(hits.values()) + self.count("miss") + sum(joined.values())
        attempts = sorted(what for what in self.sums if what.startswith("attempt_"))
        return StatsRow(
            hits=hits,
            misses=self.count("miss"),
            errors=self.count("error"),
            joined_waits=joined,
            hit_ratio=sum(hits.values()) / asked if asked else None,
            compiles={state: self.count(f"compile_{state}") for state in STATES},
            attempts={what.removeprefix("attempt_"): self.count(what) for what in attempts},
            compile_s_spent=self.seconds(attempts),
            compile_s_saved=self.seconds(what for what in self.sums if what.startswith(("hit_", "joined_"))),
            stored_bytes=self.size_bytes("artifact_standing"),
            wait=percentiles(self.waits),
        )

    def size_bytes(self, what: str) -> int:
        return round(self.sums[what].amount) if what in self.sums else 0

    def add(self, other: "_Group") -> None:
        for what, one in other.sums.items():
            self.sums[what].add(one.number, one.amount)
        self.waits += other.waits


def _merged(groups: dict[Group, _Group], position: int | None) -> dict[str, _Group]:
    """Groups by one of their columns alone; by none of them, all under "all"."""
    merged: dict[str, _Group] = defaultdict(_Group)
    for group, its in groups.items():
        merged["all" if position is None else group[position]].add(its)
    return merged


async def _gather(session: AsyncSession, which: Filter) -> dict[Group, _Group]:
    groups: dict[Group, _Group] = defaultdict(_Group)
    for group, what, number, amount in await tallies.sums(session, which):
        if number or amount:
            groups[group].sums[what].add(number, amount)
    for group, wait_s in await rows.waits(session, which):
        groups[group].waits.append(wait_s)
    return groups


def first_period(since: float, now: float, minutes_days: float) -> int:
    """Where counts since a time begin: with its minute, or with its day where days are all that is kept of it."""
    minutes_from = tallies.day_of(now - minutes_days * tallies.DAY_S)
    return tallies.period_of(since) if since >= minutes_from else tallies.day_of(since)


def toolchain_alarms(groups: dict[str, StatsRow]) -> list[Alarm]:
    """A toolchain that is asked for and never hits, while another has graphs: most likely it was changed."""
    alarms = []
    for name, row in sorted(groups.items()):
        asked = sum(row.hits.values()) + row.misses + sum(row.joined_waits.values())
        others = [other for other, its in groups.items() if other != name and its.compiles["ready"] > 0]
        if asked >= FEW_ASKS and sum(row.hits.values()) == 0 and row.compiles["ready"] == 0 and others:
            alarms.append(
                Alarm(
                    code="no_hits_after_toolchain_change",
                    message=f"nothing hits for toolchain {name}: {asked} resolves, no graph stored; "
                    f"graphs are stored for {', '.join(others[:3])}. If the toolchain was changed, prewarm its "
                    "manifest",
                )
            )
    return alarms


async def stats(services: Services, caller: Caller, since: datetime | None, group_by: GroupBy | None) -> Stats:
    """All counters of the namespaces that the caller may read, up to this moment as far as this replica knows.

    Args:
        since: counts begin as :func:`first_period` says; None for all time. How many there are is always now.

    Raises:
        DatabaseUnavailable: nobody can say.
    """
    caller.require("read")
    with suppress(StoreFull):  # what cannot be written now counts later; what is stored can be read
        await flush(services)
    namespaces = caller.readable()
    # Grouped as finely as anything below needs, so that the totals are read once.
    columns = ("toolchain",) if group_by in (None, "toolchain") else ("toolchain", str(group_by))
    async with services.database.scan() as session:
        now = await clock.now(session)
        first = None if since is None else first_period(since.timestamp(), now, services.settings.usage_minutes_days)
        gathered = await _gather(session, Filter(namespaces, first, columns))
        totals, by_toolchain, groups = (_merged(gathered, position) for position in (None, 0, len(columns) - 1))
        every = totals["all"]
        blob_count, blob_bytes = await blobs.stored(session)
        return Stats(
            at=at(now),
            since=since,
            group_by=group_by,
            totals=every.row(),
            groups=[]
            if group_by is None
            else [StatsGroup(group=name, row=group.row()) for name, group in sorted(groups.items(), key=_group_order)],
            blobs=blob_count,
            blob_bytes=blob_bytes,
            reserved_bytes=await rows.reserved_bytes(session),
            quota_bytes=services.settings.quota_bytes,
            evicted=every.count("evicted"),
            evicted_bytes=every.size_bytes("evicted"),
            evicted_age=percentiles(await rows.evicted_ages(session, namespaces, first or 0)),
            quarantined=every.count("artifact_quarantined"),
            waiters=services.waiters.held,
            toolchains=[
                ToolchainSeen(toolchain=name, workers=workers, last_claim_age_s=max(0.0, now - last))
                for name, workers, last in await rows.toolchains_seen(session, namespaces)
            ],
            alarms=toolchain_alarms({name: group.row() for name, group in by_toolchain.items()}),
        )


def _group_order(item: tuple[str, _Group]) -> tuple[int, str]:
    """Buckets by number, other groups by name."""
    return (int(item[0]) if item[0].isdigit() else 0, item[0])
