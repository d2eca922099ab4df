"""Rebuild: a database that was lost gets back the rows of what records and bytes are stored for.

What comes back are the graphs, with their producers, signatures and compile times. Manifests, tokens, counters and
failures were in the database alone.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from graphcache_service.core.failures import FAILURE_CLEARED
from graphcache_service.core.hedging import end_hedge_of
from graphcache_service.core.records import AT_ONCE, Record, read_records
from graphcache_service.core.services import Change, Services
from graphcache_service.core.waiters import key_topic
from graphcache_service.db import artifacts, attempts, blobs, compiles
from graphcache_service.db.compiles import Wish
from graphcache_service.db.models import CompileRow
from graphcache_wire import Published

THE_DATABASE_HAS_IT: Final = "the database has it"
ROWS_AT_ONCE: Final = 128
"""Records whose rows one transaction writes: a fifth of a second, in which a service that serves meanwhile waits."""


@dataclass(slots=True)
class Rebuilt:
    """How many graphs came back, and why others did not."""

    graphs: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


async def rebuild(services: Services, *, deep: bool = False) -> Rebuilt:
    """Insert the rows of all records whose graph has none. Safe to repeat, and while the service serves.

    Args:
        deep: hash the bytes too, not only compare their size.

    Raises:
        DatabaseUnavailable, BlobStoreUnavailable: what was rebuilt so far stays; repeat it.
    """
    rebuilt = Rebuilt()
    names = [name async for name in services.blobs.records.names()]
    batch: list[Record] = []
    async for _, record in read_records(services, names):
        if record is None:
            rebuilt.skipped["the record cannot be read"] += 1
        else:
            batch.append(record)
        if len(batch) == ROWS_AT_ONCE:
            await _rebuild_batch(services, batch, rebuilt, deep=deep)
            batch = []
    await _rebuild_batch(services, batch, rebuilt, deep=deep)
    return rebuilt


async def _rebuild_batch(services: Services, batch: Sequence[Record], rebuilt: Rebuilt, *, deep: bool) -> None:
    async with services.database.scan() as session:
        known = await compiles.ready_among(session, [record.artifact.key_digest for record in batch])
    missing = [record for record in batch if (record.namespace, record.artifact.key_digest) not in known]
    if len(missing) < len(batch):
        rebuilt.skipped[THE_DATABASE_HAS_IT] += len(batch) - len(missing)
    sound = []
    for first in range(0, len(missing), AT_ONCE):
        part = missing[first : first + AT_ONCE]
        faults = await asyncio.gather(*(_fault_of_bytes(services, record, deep=deep) for record in part))
        rebuilt.skipped.update(fault for fault in faults if fault is not None)
        sound += [record for record, fault in zip(part, faults, strict=True) if fault is None]
    reasons = []
    async with services.change() as change:
        # In the lock order of whoever changes many rows.
        sound.sort(key=lambda one: (one.namespace, one.artifact.key_digest))
        back = [record for record in sound if not await _was_retired(change, record)]
        await compiles.queue(change.session, [Wish(one.namespace, one.key, 0) for one in back], change.now)
        for record in back:
            reasons.append(await _insert(change, record))
    rebuilt.graphs += reasons.count(None)
    rebuilt.skipped.update(reason for reason in reasons if reason is not None)
    if len(back) < len(sound):
        rebuilt.skipped["it was evicted or quarantined"] += len(sound) - len(back)


async def _fault_of_bytes(services: Services, record: Record, *, deep: bool) -> str | None:
    size_bytes = await services.blobs.size(record.artifact.blob)
    if size_bytes is None:
        return "its bytes are gone"
    if size_bytes != record.artifact.size_bytes:
        return "its bytes have another size"
    if deep and not await services.blobs.verify(record.artifact.blob):
        return "its bytes do not have their digest"
    return None


async def _was_retired(change: Change, record: Record) -> bool:
    artifact = record.artifact
    return await artifacts.was_retired(change.session, record.namespace, artifact.key_digest, artifact.blob)


async def _insert(change: Change, record: Record) -> str | None:
    """Let the row of one record, which is there, lead to its graph; the reason where it is left."""
    key_digest = record.artifact.key_digest
    row = await compiles.lock_key(change.session, record.namespace, key_digest)
    if row is None:
        raise RuntimeError(f"the row of key {key_digest} is gone right after it was written")
    if row.state == "ready":
        return THE_DATABASE_HAS_IT
    if row.state == "leased":
        return "it is compiled just now"
    await _stand(change, row, record)
    return None


async def _stand(change: Change, row: CompileRow, record: Record) -> None:
    session, artifact = change.session, record.artifact
    created_at = artifact.created_at.timestamp()
    if row.generation:  # else nobody ever held a lease of it
        await end_hedge_of(change, row)
    row = await compiles.move(session, row, generation=row.generation + 1) or row
    await blobs.record_blob(session, artifact.blob, artifact.size_bytes, change.now)
    published = Published(
        blob=artifact.blob,
        size_bytes=artifact.size_bytes,
        toolchain=artifact.toolchain,
        compile_s=artifact.compile_s,
        signature=artifact.signature,
    )
    standing = await artifacts.insert_artifact(
        session, row, published, state="standing", holder=artifact.producer, owner=artifact.producer_id, now=created_at
    )
    await attempts.insert_published(session, standing)
    # When it was last used is lost: now, so that a quota does not evict first what was just brought back.
    values = FAILURE_CLEARED | {"state": "ready", "artifact_id": standing.id, "attempts": 0}
    await compiles.move(session, row, **values, last_used_at=change.now)
    change.wake(key_topic(row.namespace, row.key_digest))
