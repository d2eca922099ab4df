"""Claim: a worker takes the most urgent compile that its toolchains can do."""

import asyncio

from graphcache_service.core.callers import Caller
from graphcache_service.core.fail import release
from graphcache_service.core.hedging import hedge_overdue
from graphcache_service.core.leases import grant
from graphcache_service.core.services import Change, Services
from graphcache_service.core.sweeper import expire_leases
from graphcache_service.core.waiters import QUEUE, Topic
from graphcache_service.db import compiles, queue
from graphcache_wire import ClaimRequest, ClaimResponse, Lease, ReleaseRequest


async def claim(services: Services, caller: Caller, request: ClaimRequest, gone: asyncio.Future[None]) -> ClaimResponse:
    """A lease on the most urgent compile, or null after ``wait_s`` without one.

    ``gone`` is done when the worker is not there any more: then it is granted nothing, or what it was granted is queued
    again at once, since nobody would know of the lease.
    Where nothing is queued it may be a hedge of a compile that is overdue, if the settings say so.
    Compiles whose weights only their asker has are never offered.

    Raises:
        Forbidden: the token lacks the scope compile.
        Busy: too many requests are held open.
    """
    caller.require("compile")
    services.usage.offered(request.owner, request.holder, caller.namespace, request.toolchains)
    deadline = asyncio.get_running_loop().time() + request.wait_s
    with services.waiters.sit(QUEUE) as topic:
        while not gone.done():
            version = topic.version
            async with topic.lock:
                response = await _try(services, caller, request)
            if response.lease is not None and gone.done():
                await _give_back(services, caller, response.lease)
                break
            left_s = deadline - asyncio.get_running_loop().time()
            if response.lease is not None or left_s <= 0 or services.waiters.closed:
                return response
            await _changed_or_gone(topic, version, left_s, gone)
    return ClaimResponse(lease=None, queued=0)


async def _changed_or_gone(topic: Topic, version: int, timeout_s: float, gone: asyncio.Future[None]) -> None:
    changed = asyncio.ensure_future(topic.changed(version, timeout_s))
    try:
        await asyncio.wait((changed, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        changed.cancel()


async def _give_back(services: Services, caller: Caller, lease: Lease) -> None:
    reason = "the worker went away before it was told"
    await release(services, caller, lease.compile_id, ReleaseRequest(generation=lease.generation, reason=reason))


async def _try(services: Services, caller: Caller, request: ClaimRequest) -> ClaimResponse:
    async with services.change() as change:
        await expire_leases(change, services.settings)
        lease = await _lease_most_urgent(change, caller, request, services.settings.lease_ttl_s)
        queued = await queue.count_queued(change.session, caller.namespace, request.toolchains)
    return ClaimResponse(lease=lease or await hedge_overdue(services, caller, request), queued=queued)


async def _lease_most_urgent(change: Change, caller: Caller, request: ClaimRequest, ttl_s: float) -> Lease | None:
    row = await queue.most_urgent(
        change.session,
        caller.namespace,
        request.toolchains,
        change.now,
        alone=request.alone,
        memory_bytes=request.max_memory_bytes,
    )
    if row is None:
        return None
    key = await compiles.key_of(change.session, row.key_digest)
    if key is None:
        raise RuntimeError(f"compile {row.id} has no key, which its foreign key forbids")
    return await grant(change, row, key, request.owner, request.holder, ttl_s)
