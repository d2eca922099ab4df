"""Lost blobs: artifacts name bytes that the store holds no more. The entry is dropped, and the graph compiled anew."""

from graphcache_service.core.records import settle
from graphcache_service.core.services import Change, Services
from graphcache_service.core.waiters import QUEUE, key_topic
from graphcache_service.db import artifacts, blobs, compiles
from graphcache_service.db.models import ArtifactRow


async def drop_lost_blob(services: Services, digest: str) -> int:
    """Queues every graph that had these bytes; returns how many. Safe to repeat.

    Raises:
        DatabaseUnavailable: nothing was changed.
    """
    async with services.change() as change:
        await blobs.forget_blob(change.session, digest)
        standing = await artifacts.standing_of_blob(change.session, digest)
        for artifact in standing:
            await _queue_again(change, artifact)
    await settle(services, change.records)
    return len(standing)


async def _queue_again(change: Change, artifact: ArtifactRow) -> None:
    row = await compiles.lock_key(change.session, artifact.namespace, artifact.key_digest)
    if row is None or row.artifact_id != artifact.id:
        return
    await compiles.move(change.session, row, state="queued", artifact_id=None, queued_at=change.now, not_before=None)
    await artifacts.retire(
        change.session, artifact.id, state="lost", reason="the store has lost its bytes", now=change.now
    )
    change.records.add((row.namespace, row.key_digest))
    change.wake(key_topic(row.namespace, row.key_digest))
    change.wake(QUEUE)
