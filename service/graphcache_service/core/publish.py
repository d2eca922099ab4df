"""Publish: a holder has uploaded the bytes and makes its key lead to them.

The bytes come first and are checked; then one transaction writes artifact, attempt and state; then the record that a
lost database is rebuilt from. Killed between the first two, what is left is a blob without a row, which the collector
removes; killed before the third, a start or fsck writes the record.
"""

from graphcache_service import metrics
from graphcache_service.core.callers import Caller
from graphcache_service.core.errors import BlobMissing, LeaseExpired, LengthMismatch, ToolchainMismatch
from graphcache_service.core.failures import FAILURE_CLEARED, LEASE_ENDED
from graphcache_service.core.hedging import end_hedge_of, win
from graphcache_service.core.leases import check_own, is_live, why_not_live
from graphcache_service.core.lost import drop_lost_blob
from graphcache_service.core.outcomes import as_artifact
from graphcache_service.core.records import settle
from graphcache_service.core.services import Change, Services
from graphcache_service.core.waiters import key_topic
from graphcache_service.db import artifacts, attempts, blobs, compiles, hedges
from graphcache_service.db.models import ArtifactRow, CompileRow, HedgeRow, LeasedRow
from graphcache_wire import CompleteRequest, CompleteResponse, Published


async def complete(services: Services, caller: Caller, compile_id: str, request: CompleteRequest) -> CompleteResponse:
    """Publish under a live lease. Safe to repeat: the same generation gets the same answer.

    Other bytes for a key that was published under this lease change nothing: the first stand, the second are recorded,
    and ``accepted`` is false.

    Raises:
        NotFound: no such compile.
        LeaseExpired: another generation, or nobody, holds the lease; nothing was changed.
        ToolchainMismatch: the key names another toolchain.
        BlobMissing, LengthMismatch: the bytes are not stored, or of another size.
        BlobStoreUnavailable, DatabaseUnavailable: nobody can say; repeat it.
    """
    caller.require("compile")
    await _check_blob(services, request.published)
    async with services.change() as change:
        response = await _complete(change, caller, compile_id, request)
    await settle(services, change.records)
    if await services.blobs.size(request.published.blob) is None:
        # The collector had marked the bytes, and removed them between the two looks.
        await drop_lost_blob(services, request.published.blob)
        raise BlobMissing(f"blob {request.published.blob} was removed meanwhile", field="published.blob")
    return response


async def _complete(change: Change, caller: Caller, compile_id: str, request: CompleteRequest) -> CompleteResponse:
    held = check_own(await compiles.lock_compile(change.session, compile_id), caller, compile_id)
    if is_live(held, request.generation, change.now):
        _check_toolchain(held, request.published)
        return await _accept(change, held, request.published)
    standing = await _published_by(change, held, request.generation)
    if standing is None:
        raise why_not_live(held, request.generation, change.now)
    return await _repeated(change, held, standing, request.published)


async def _check_blob(services: Services, published: Published) -> None:
    stored_bytes = await services.blobs.size(published.blob)
    if stored_bytes is None:
        raise BlobMissing(f"blob {published.blob} is not stored", field="published.blob")
    if stored_bytes != published.size_bytes:
        raise LengthMismatch(
            f"blob {published.blob} has {stored_bytes} bytes, not {published.size_bytes}", field="published.size_bytes"
        )


def _check_toolchain(row: LeasedRow, published: Published) -> None:
    if published.toolchain != row.toolchain:
        raise ToolchainMismatch(
            f"the key names toolchain {row.toolchain}, the graph was made by {published.toolchain}",
            field="published.toolchain",
        )


async def _accept(change: Change, held: LeasedRow, published: Published) -> CompleteResponse:
    session, now = change.session, change.now
    row = await _win(change, held)
    await blobs.record_blob(session, published.blob, published.size_bytes, now)
    artifact = await artifacts.insert_artifact(
        session, held, published, state="standing", holder=held.holder or "", owner=held.owner or "", now=now
    )
    await attempts.end_attempt(
        session,
        held.id,
        held.generation,
        outcome="ready",
        ended_at=now,
        compile_s=published.compile_s,
        cpu_s=published.cpu_s,
        peak_memory_bytes=published.peak_memory_bytes,
        log_tail=published.log_tail,
    )
    values = (
        LEASE_ENDED
        | FAILURE_CLEARED
        | {
            "state": "ready",
            "artifact_id": artifact.id,
            "attempts": 0,
            "last_used_at": now,
            "retry_alone": False,
            # Fences whoever holds the compile's own lease where a hedge has won.
            "generation": row.generation + (1 if isinstance(held, HedgeRow) else 0),
        }
    )
    if await compiles.move(session, row, **values) is None:
        raise why_not_live(row, row.generation, now)
    change.records.add((row.namespace, row.key_digest))
    change.wake(key_topic(row.namespace, row.key_digest))
    metrics.COMPILE_S.labels(toolchain=row.toolchain).observe(published.compile_s)
    return CompleteResponse(accepted=True, artifact=as_artifact(artifact))


async def _win(change: Change, held: LeasedRow) -> CompileRow:
    """The compile that is published, after the other attempt at it was ended where there is one."""
    if not isinstance(held, HedgeRow):
        await end_hedge_of(change, held)
        return held
    row = await hedges.compile_of(change.session, held)
    if row.state == "ready":
        raise LeaseExpired("a publication of this key stands already", field="generation")
    await win(change, row, held)
    return row


async def _published_by(change: Change, held: LeasedRow, generation: int) -> ArtifactRow | None:
    """The standing artifact, if this generation published it."""
    if held.state != "ready" or held.generation != generation:
        return None
    graph = await artifacts.standing_graph(change.session, held.namespace, held.key_digest)
    own = graph is not None and graph.artifact.compile_id == held.id
    return graph.artifact if graph is not None and (own or isinstance(held, CompileRow)) else None


async def _repeated(change: Change, row: LeasedRow, standing: ArtifactRow, published: Published) -> CompleteResponse:
    if standing.blob == published.blob:
        return CompleteResponse(accepted=True, artifact=as_artifact(standing))
    _check_toolchain(row, published)
    if not await artifacts.divergent(change.session, row.id, row.generation, published.blob):
        await artifacts.insert_artifact(
            change.session,
            row,
            published,
            state="divergent",
            holder=standing.producer,
            owner=standing.producer_id,
            now=change.now,
        )
    return CompleteResponse(accepted=False, artifact=as_artifact(standing))
