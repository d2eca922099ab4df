"""Reports: a client could not use a graph. Bad bytes go at once; good ones that nobody can load after two reports."""

from dataclasses import dataclass
from typing import Final

import structlog

from graphcache_service.core.callers import Caller
from graphcache_service.core.errors import NotFound
from graphcache_service.core.records import settle
from graphcache_service.core.services import Change, Services
from graphcache_service.core.waiters import QUEUE, key_topic
from graphcache_service.db import artifacts, blobs, compiles
from graphcache_service.db import reports as rows
from graphcache_service.db.models import ArtifactRow
from graphcache_service.settings import Settings
from graphcache_wire import FailureClass
from graphcache_wire.graphs import ReportRequest, ReportResponse

log = structlog.get_logger()

REPORTS_NEEDED: Final = 2
"""One node may be broken; two that cannot use the same graph are the graph's fault."""
RECOMPILES: Final = 1
"""A graph that is unusable again after this many compiles is a failure with a reason, not another compile."""
SUSPECTS_AT_ONCE: Final = 100
"""Graphs that one transaction quarantines, so that it stays short."""
UNUSABLE: Final = "reported unusable"
BAD_BYTES: Final = "its bytes do not have its digest"
ABOUT_BYTES: Final = frozenset({"bad_digest", "bad_size"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of an artifact."""

    quarantine: bool
    fail: bool = False


def judge(*, bytes_good: bool, about_bytes: bool, reports: int, quarantined_before: int) -> Verdict:
    """Bad bytes are compiled anew. Good bytes stay, unless enough askers cannot use them, and then only once anew.

    Args:
        about_bytes: the client says that the bytes were bad; if they are good here, its way to us was bad.
        quarantined_before: publications of the key that were reported unusable earlier.
    """
    if not bytes_good:
        return Verdict(quarantine=True)
    if about_bytes or reports < REPORTS_NEEDED:
        return Verdict(quarantine=False)
    return Verdict(quarantine=True, fail=quarantined_before >= RECOMPILES)


async def report(services: Services, caller: Caller, key_digest: str, request: ReportRequest) -> ReportResponse:
    """Take note, read the bytes again, and quarantine what is bad. An owner counts once for an artifact.

    A report about bytes that the key led to earlier harms nothing.

    Raises:
        NotFound: no such graph in a namespace that the caller may read.
        BlobStoreUnavailable, DatabaseUnavailable: nobody can say whether the bytes are good; nothing was changed.
    """
    caller.require("read")
    async with services.database.read() as session:
        found = (await compiles.standings(session, caller.readable(), [key_digest])).get(key_digest)
    if found is None:
        raise NotFound(f"no graph with key {key_digest}", field="key_digest")
    bytes_good = await services.blobs.verify(request.blob)
    standing = found.artifact
    if standing is None or standing.blob != request.blob:
        return ReportResponse(bytes_good=bytes_good, quarantined=False, reports=0)
    about_bytes = request.reason in ABOUT_BYTES
    async with services.change() as change:
        if not about_bytes:
            await rows.record(change.session, standing.id, request, change.now)
        reports = await rows.count(change.session, standing.id)
        before = await rows.unusable_before(change.session, standing.namespace, key_digest)
        verdict = judge(bytes_good=bytes_good, about_bytes=about_bytes, reports=reports, quarantined_before=before)
        quarantined = verdict.quarantine and await _carry_out(change, services.settings, standing, verdict, bytes_good)
    await settle(services, change.records)
    if quarantined and not bytes_good:
        await services.blobs.delete(request.blob)
    return ReportResponse(bytes_good=bytes_good, quarantined=quarantined, reports=reports)


async def _carry_out(
    change: Change, settings: Settings, standing: ArtifactRow, verdict: Verdict, bytes_good: bool
) -> bool:
    if not bytes_good:
        await blobs.forget_blob(change.session, standing.blob)
        alike = await artifacts.standing_of_blob(change.session, standing.blob)
        return any([await quarantine(change, one, BAD_BYTES) for one in alike])
    return await quarantine(change, standing, UNUSABLE, settings if verdict.fail else None)


async def quarantine(change: Change, artifact: ArtifactRow, reason: str, fail_by: Settings | None = None) -> bool:
    """Take an artifact out of service, and compile its key anew; False where it stood no longer.

    Args:
        fail_by: keep the key as failed instead, for the time that these settings keep a refusal.
    """
    row = await compiles.lock_key(change.session, artifact.namespace, artifact.key_digest)
    if row is None or row.artifact_id != artifact.id:
        return False
    values = (
        {"state": "queued", "queued_at": change.now, "not_before": None}
        if fail_by is None
        else {
            "state": "failed",
            "failure_class": FailureClass.REJECTED,
            "failed_until": change.now + fail_by.rejected_ttl_s,
            "failure_message": f"compiled {RECOMPILES + 1} times, and {UNUSABLE} each time: "
            "see its quarantined artifacts",
        }
    )
    await compiles.move(change.session, row, artifact_id=None, attempts=0, **values)
    await artifacts.retire(change.session, artifact.id, state="quarantined", reason=reason, now=change.now)
    change.records.add((row.namespace, row.key_digest))
    change.wake(key_topic(row.namespace, row.key_digest))
    change.wake(QUEUE)
    return True


async def quarantine_producer(services: Services, caller: Caller, producer: str, since: float) -> int:
    """Quarantine all that one producer published since a time (seconds since 1970); returns how many graphs.

    Raises:
        Forbidden: this is for administrators.
        DatabaseUnavailable: some of it is quarantined; repeat it.
    """
    caller.require("admin")
    quarantined = last = 0
    while True:
        async with services.change() as change:
            suspects = await artifacts.standing_of_producer(change.session, producer, since, last, SUSPECTS_AT_ONCE)
            # In the lock order of whoever changes many rows.
            for one in sorted(suspects, key=lambda one: (one.namespace, one.key_digest)):
                quarantined += await quarantine(change, one, f"everything of producer {producer} is suspect")
        await settle(services, change.records)
        if len(suspects) < SUSPECTS_AT_ONCE:
            break
        last = suspects[-1].id
    log.info("quarantined", producer=producer, since=since, graphs=quarantined, token_id=caller.token_id)
    return quarantined
