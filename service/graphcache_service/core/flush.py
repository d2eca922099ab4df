"""Writing what was counted, and counting what clients report of their own hits."""

from collections.abc import Mapping

from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service import metrics
from graphcache_service.core.callers import Caller
from graphcache_service.core.errors import ServiceError
from graphcache_service.core.services import Services
from graphcache_service.core.usage import HITS, Batch, Event, KeyId
from graphcache_service.db import clock, tallies
from graphcache_service.db import usage as rows
from graphcache_service.db.engine import Database
from graphcache_wire import UsageRequest
from graphcache_wire.stats import UsageResponse


async def flush(services: Services) -> None:
    """Write the counters of this process. What cannot be written is kept for the next time.

    Raises:
        DatabaseUnavailable: nothing is lost.
    """
    batch = services.usage.take()
    if not batch:
        return
    try:
        await _write(services.database, batch)
        _observe(batch)
    except ServiceError:
        services.usage.put_back(batch)
        raise


def _observe(batch: Batch) -> None:
    for (_, event), tally in batch.events.items():
        metrics.EVENTS.labels(event=event).inc(tally.count)
    for wait in batch.waits:
        metrics.WAIT_S.labels(outcome=wait.outcome).observe(wait.wait_s)


async def _write(database: Database, batch: Batch) -> None:
    async with database.write() as session:
        now = await clock.now(session)
        await _write_counts(session, batch, now)
        await rows.mark_fetched(session, batch.fetched, now)
        await rows.add_waits(
            session,
            [
                {
                    "namespace": wait.key[0],
                    "key_digest": wait.key[1],
                    "ended_at": now,
                    "wait_s": wait.wait_s,
                    "outcome": wait.outcome,
                }
                for wait in batch.waits
            ],
        )
        await rows.mark_offers(
            session,
            [
                {"owner": owner, "toolchain": toolchain, "namespace": namespace, "holder": holder, "last_claim_at": now}
                for (owner, toolchain), (namespace, holder) in batch.offers.items()
            ],
        )


async def _write_counts(session: AsyncSession, batch: Batch, now: float) -> None:
    hits: dict[KeyId, int] = {}
    for (key, event), tally in batch.events.items():
        if event in HITS:
            hits[key] = hits.get(key, 0) + tally.count
    counts = [(*key, event, tally.count, tally.saved_s) for (key, event), tally in batch.events.items()]
    await tallies.append_usage(session, counts, now)
    await rows.mark_used(session, batch.used | hits.keys(), hits, now)


async def record_usage(services: Services, caller: Caller, request: UsageRequest) -> UsageResponse:
    """Count hits that a client served from its memory and disk. Safe to repeat: a batch counts once.

    Keys that were never published here are left out: what they saved cannot be told.

    Raises:
        DatabaseUnavailable: nothing was counted.
    """
    caller.require("read")
    async with services.database.write() as session:
        now = await clock.now(session)
        if not await rows.is_new_batch(session, request.batch, request.owner, now):
            return UsageResponse(accepted=False)
        known = await rows.known_compile_s(session, caller.readable(), {hit.key_digest for hit in request.hits})
        await _write_counts(session, _as_batch(request, known), now)
    return UsageResponse(accepted=True)


def _as_batch(request: UsageRequest, known: Mapping[str, tuple[str, float]]) -> Batch:
    """A hit of memory saves no compile: the process had the graph, and what that saved was counted when it came."""
    batch = Batch()
    for hit in request.hits:
        if hit.key_digest in known:
            namespace, compile_s = known[hit.key_digest]
            event: Event = "hit_memory" if hit.tier == "memory" else "hit_disk"
            tally = batch.events[(namespace, hit.key_digest), event]
            tally.count += hit.count
            if hit.tier == "disk":
                tally.saved_s += hit.count * compile_s
    return batch
