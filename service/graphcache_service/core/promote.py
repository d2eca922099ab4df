"""Promote: an administrator lets one namespace have what another compiled, without compiling it again."""

import structlog

from graphcache_service.core.callers import Caller
from graphcache_service.core.errors import InvalidRequest, NotFound
from graphcache_service.core.failures import FAILURE_CLEARED
from graphcache_service.core.hedging import end_hedge_of
from graphcache_service.core.records import settle
from graphcache_service.core.services import Change, Services
from graphcache_service.core.waiters import key_topic
from graphcache_service.db import artifacts, compiles
from graphcache_service.db.compiles import Wish
from graphcache_service.db.models import ArtifactRow, CompileRow

log = structlog.get_logger()


async def promote(services: Services, caller: Caller, key_digest: str, source: str, target: str) -> bool:
    """Let ``target`` have the graph of ``source``, with its producer and signature; False where it has one already.

    Raises:
        Forbidden: this is for administrators.
        NotFound: ``source`` has no such graph.
        InvalidRequest: ``target`` compiles it just now.
    """
    caller.require("admin")
    async with services.change() as change:
        found = (await compiles.standings(change.session, (source,), [key_digest])).get(key_digest)
        if found is None or found.artifact is None:
            raise NotFound(f"namespace {source} has no stored graph with key {key_digest}", field="key_digest")
        row = await _row_of(change, target, key_digest)
        if row.state == "leased":
            raise InvalidRequest(f"{row.holder} compiles this key for {target} just now: promote it later")
        if row.state == "ready":
            return False
        await _stand(change, row, found.artifact)
    await settle(services, change.records)
    log.info("promoted", key_digest=key_digest, source=source, target=target, token_id=caller.token_id)
    return True


async def _row_of(change: Change, namespace: str, key_digest: str) -> CompileRow:
    key = await compiles.key_of(change.session, key_digest)
    if key is not None:
        await compiles.queue(change.session, [Wish(namespace, key, 0)], change.now)
    row = await compiles.lock_key(change.session, namespace, key_digest)
    if row is None:
        raise RuntimeError(f"the row of key {key_digest} is gone right after it was written")
    return row


async def _stand(change: Change, row: CompileRow, original: ArtifactRow) -> None:
    await end_hedge_of(change, row)
    copy = await artifacts.insert_copy(change.session, original, row, change.now)
    values = FAILURE_CLEARED | {"state": "ready", "artifact_id": copy.id, "attempts": 0, "last_used_at": change.now}
    await compiles.move(change.session, row, **values)
    change.records.add((row.namespace, row.key_digest))
    change.wake(key_topic(row.namespace, row.key_digest))
