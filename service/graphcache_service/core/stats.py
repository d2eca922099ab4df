"""Statistics: what hit and missed, what it cost, what it saved, and what looks wrong."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.core.callers import Caller
from graphcache_service.core.flush import flush
from graphcache_service.core.outcomes import at
from graphcache_service.core.services import Services
from graphcache_service.core.stock import Stock
from graphcache_service.db import blobs, clock
from graphcache_service.db import stats as rows
from graphcache_service.db.stats import Filter
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
    events: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    saved_s: float = 0.0
    compiles: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    attempts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    spent_s: float = 0.0
    stored_bytes: int = 0
    waits: list[float] = field(default_factory=list)

    def row(self) -> StatsRow:
        hits = {tier: self.events[f"hit_{tier}"] for tier in TIERS}
        joined: dict[WaitOutcome, int] = {outcome: self.events[f"joined_{outcome}"] for outcome in WAIT_OUTCOMES}
        asked = sum(hits.values()) + self.events["miss"] + sum(joined.values())
        return StatsRow(
            hits=hits,
            misses=self.events["miss"],
            errors=self.events["error"],
            joined_waits=joined,
            hit_ratio=sum(hits.values()) / asked if asked else None,
            compiles={state: self.compiles[state] for state in STATES},
            attempts=dict(sorted(self.attempts.items())),
            compile_s_spent=self.spent_s,
            compile_s_saved=self.saved_s,
            stored_bytes=self.stored_bytes,
            wait=percentiles(self.waits),
        )

    def add(self, other: "_Group") -> None:
        counters = ((self.events, other.events), (self.compiles, other.compiles), (self.attempts, other.attempts))
        for mine, its in counters:
            for name, count in its.items():
                mine[name] += count
        self.saved_s += other.saved_s
        self.spent_s += other.spent_s
        self.stored_bytes += other.stored_bytes
        self.waits += other.waits


def _merged(groups: dict[rows.Group, _Group], position: int | None) -> dict[str, _Group]:
    """Groups by one of their columns alone; by none of them, all under "all"."""
    merged: dict[str, _Group] = defaultdict(_Group)
    for group, its in groups.items():
        merged["all" if position is None else group[position]].add(its)
    return merged


async def _gather(session: AsyncSession, which: Filter, stock: Stock) -> dict[rows.Group, _Group]:
    groups: dict[rows.Group, _Group] = defaultdict(_Group)
    for group, event, count, saved_s in await rows.usage_sums(session, which):
        groups[group].events[event] += count
        groups[group].saved_s += saved_s
    for group, state, count in stock.compiles:
        groups[group].compiles[state] += count
    for group, ended_as, count, spent_s in stock.attempts:
        groups[group].attempts[ended_as] += count
        groups[group].spent_s += spent_s
    for group, state, _, size_bytes in stock.artifacts:
        groups[group].stored_bytes += size_bytes if state == "standing" else 0
    for group, wait_s in await rows.waits(session, which):
        groups[group].waits.append(wait_s)
    return groups


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

    Of more than ``stock.ROWS_A_SECOND`` entries, the sums of what is stored and was compiled may be seconds old.

    Args:
        since: counts begin with the minute that holds this time; None for all that is kept.

    Raises:
        DatabaseUnavailable: nobody can say.
    """
    caller.require("read")
    await flush(services)
    since_s = 0.0 if since is None else since.timestamp() // 60 * 60
    namespaces = caller.readable()
    # Grouped as finely as anything below needs, so that each table is read once.
    columns = ("toolchain",) if group_by in (None, "toolchain") else ("toolchain", str(group_by))
    which = Filter(namespaces, since_s, columns)
    stock = await services.stocks.of(services.database, which)
    async with services.database.scan() as session:
        now = await clock.now(session)
        gathered = await _gather(session, which, stock)
        totals, by_toolchain, groups = (_merged(gathered, position) for position in (None, 0, len(columns) - 1))
        blob_count, blob_bytes = await blobs.stored(session)
        evicted, evicted_bytes, ages = await rows.evictions(session, namespaces, since_s)
        return Stats(
            at=at(now),
            since=since,
            group_by=group_by,
            totals=totals["all"].row(),
            groups=[]
            if group_by is None
            else [StatsGroup(group=name, row=group.row()) for name, group in sorted(groups.items(), key=_group_order)],
            blobs=blob_count,
            blob_bytes=blob_bytes,
            reserved_bytes=await rows.reserved_bytes(session),
            quota_bytes=services.settings.quota_bytes,
            evicted=evicted,
            evicted_bytes=evicted_bytes,
            evicted_age=percentiles(ages),
            quarantined=stock.quarantined(),
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
