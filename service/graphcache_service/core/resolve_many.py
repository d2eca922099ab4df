"""Resolve many keys in one round trip: what stands is said, what is missing is queued; nothing waits or is granted."""

from graphcache_service.core.callers import Caller
from graphcache_service.core.failures import requeue
from graphcache_service.core.outcomes import as_failed, as_pending, as_ready
from graphcache_service.core.resolve import PRIORITIES, has_lapsed
from graphcache_service.core.services import Change, Services
from graphcache_service.core.usage import Usage
from graphcache_service.core.waiters import QUEUE, key_topic
from graphcache_service.db import compiles
from graphcache_service.db.compiles import Standing, Wish
from graphcache_wire import GraphKey, ResolveManyRequest, ResolveManyResponse
from graphcache_wire.resolve import Absent, ManyOutcome


async def resolve_many(services: Services, caller: Caller, request: ResolveManyRequest) -> ResolveManyResponse:
    """One outcome a key, in the order asked. With ``enqueue`` false it only looks.

    Raises:
        DatabaseUnavailable: nobody can say; nothing is "absent" then.
    """
    caller.require("read")
    digests = list({key.digest: None for key in request.keys})
    async with services.database.read() as session:
        found = await compiles.standings(session, caller.readable(), digests)
    missed: set[str] = set()
    if request.enqueue:
        wanting = [key for key in request.keys if is_wanting(found.get(key.digest), PRIORITIES[request.purpose])]
        if wanting:
            missed = await enqueue(services, caller, wanting, PRIORITIES[request.purpose])
            async with services.database.read() as session:
                found = await compiles.standings(session, caller.readable(), digests)
    for digest in digests:
        _count(services.usage, request.owner, found.get(digest), digest in missed)
    return ResolveManyResponse(outcomes=[_outcome(key, found.get(key.digest)) for key in request.keys])


def is_wanting(standing: Standing | None, priority: int) -> bool:
    """Whether a key must be queued, queued again, or raised."""
    if standing is None:
        return True
    row = standing.compile
    return has_lapsed(row, standing.now) or (row.state in ("queued", "leased") and row.priority < priority)


async def enqueue(
    services: Services, caller: Caller, keys: list[GraphKey], priority: int, *, retry_failed: bool = False
) -> set[str]:
    """Queue keys, raise those that are queued lower, and queue forgotten failures again.

    Args:
        retry_failed: queue kept failures again too.

    Returns:
        Digests of the keys whose compile begins by this.
    """
    async with services.change() as change:
        return await enqueue_in(change, caller, keys, priority, retry_failed=retry_failed)


async def enqueue_in(
    change: Change, caller: Caller, keys: list[GraphKey], priority: int, *, retry_failed: bool = False
) -> set[str]:
    """:func:`enqueue` inside a transaction under way."""
    namespace = caller.namespace
    before = await compiles.standings(change.session, (namespace,), [key.digest for key in keys])
    absent = [key for key in keys if key.digest not in before]
    await compiles.queue(change.session, [Wish(namespace, key, priority) for key in absent], change.now)
    begun = {key.digest for key in absent}
    await compiles.raise_priority(change.session, namespace, [key.digest for key in keys], priority)
    for digest in sorted(before):
        row = before[digest].compile
        if row.state == "failed" and (retry_failed or has_lapsed(row, change.now)):
            await requeue(change, row)
            begun.add(digest)
    for digest in begun:
        change.wake(key_topic(namespace, digest))
    change.wake(QUEUE)
    return begun


def _outcome(key: GraphKey, standing: Standing | None) -> ManyOutcome:
    if standing is None:
        return Absent(key_digest=key.digest)
    if standing.compile.state == "ready":
        return as_ready(standing)
    if standing.compile.state == "failed":
        return as_failed(standing.compile, standing.now)
    return as_pending(standing)


def _count(usage: Usage, owner: str, standing: Standing | None, missed: bool) -> None:
    if standing is None:
        return
    row = standing.compile
    key_id = (row.namespace, row.key_digest)
    if row.state == "ready":
        usage.answered_ready(key_id, owner, as_ready(standing).artifact.compile_s, standing.now)
    elif row.state == "failed":
        usage.answered_failed(key_id, owner, standing.now)
    elif missed:
        usage.missed(key_id, owner, standing.now)
    else:
        usage.waits(key_id, owner, standing.now)
