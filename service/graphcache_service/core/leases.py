"""Leases: the checks that fence, and what a holder may do with its lease beside publishing."""

from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.core.callers import Caller
from graphcache_service.core.errors import LeaseExpired, NotFound
from graphcache_service.core.services import Change, Services
from graphcache_service.core.waiters import key_topic
from graphcache_service.db import attempts, clock, compiles
from graphcache_service.db.models import CompileRow, HedgeRow, LeasedRow
from graphcache_wire import GraphKey, HeartbeatRequest, HeartbeatResponse, Lease


def is_live(row: LeasedRow, generation: int, now: float) -> bool:
    """Whether ``generation`` holds the lease of ``row`` at ``now``."""
    return (
        row.state == "leased"
        and row.generation == generation
        and row.lease_expires_at is not None
        and row.lease_expires_at > now
    )


HEDGE_ENDED = {
    "ready": "it was published",
    "failed": "its holder gave it up",
    "lost": "it ran out",
    "late": "another attempt published first",
}


def why_not_live(row: LeasedRow, generation: int, now: float) -> LeaseExpired:
    """The refusal of a late holder, with what became of its lease."""
    if isinstance(row, HedgeRow) and row.state != "leased":
        return LeaseExpired(f"the hedge of generation {generation} ended: {HEDGE_ENDED[row.state]}", field="generation")
    if row.generation != generation:
        return LeaseExpired(f"generation {generation} was followed by generation {row.generation}", field="generation")
    if row.state == "leased":
        late_s = now - (row.lease_expires_at or now)
        return LeaseExpired(f"the lease of generation {generation} ran out {late_s:.1f} s ago", field="generation")
    return LeaseExpired(f"the lease of generation {generation} ended: the compile is {row.state}", field="generation")


def check_own(row: LeasedRow | None, caller: Caller, compile_id: str) -> LeasedRow:
    """The row, if it exists in the caller's own namespace.

    Raises:
        NotFound: it does not, or somebody else's is named.
    """
    if row is None or row.namespace != caller.namespace:
        raise NotFound(f"no compile {compile_id} in namespace {caller.namespace}", field="compile_id")
    return row


async def check_live(session: AsyncSession, compile_id: str, generation: int, *, caller: Caller) -> LeasedRow:
    """What the live lease of ``generation`` was granted on; its row is locked where the session writes on PostgreSQL.

    Raises:
        NotFound: no such compile in the caller's namespace.
        LeaseExpired: it ran out, ended, or another generation holds it.
    """
    row = check_own(await compiles.lock_compile(session, compile_id), caller, compile_id)
    now = await clock.now(session)
    if not is_live(row, generation, now):
        raise why_not_live(row, generation, now)
    return row


async def grant(change: Change, row: CompileRow, key: GraphKey, owner: str, holder: str, ttl_s: float) -> Lease | None:
    """Lease a queued row; None where somebody else was first."""
    leased = await compiles.move(
        change.session,
        row,
        state="leased",
        generation=row.generation + 1,
        owner=owner,
        holder=holder,
        leased_at=change.now,
        heartbeat_at=change.now,
        lease_expires_at=change.now + ttl_s,
        phase="starting",
        progress=None,
        not_before=None,
    )
    if leased is None:
        return None
    await attempts.begin_attempt(change.session, leased)
    change.wake(key_topic(row.namespace, row.key_digest))
    return as_lease(leased, key, change.now, ttl_s, attempt=leased.attempts + 1)


def as_lease(row: LeasedRow, key: GraphKey, now: float, ttl_s: float, *, attempt: int) -> Lease:
    """What its holder is told. ``attempt`` counts from 1 since the last publication or explicit retry."""
    return Lease(
        compile_id=row.id,
        generation=row.generation,
        key=key,
        owner=row.owner or "",
        ttl_s=ttl_s,
        expires_in_s=max(0.0, (row.lease_expires_at or now) - now),
        attempt=attempt,
    )


async def heartbeat(
    services: Services, caller: Caller, compile_id: str, request: HeartbeatRequest
) -> HeartbeatResponse:
    """Renew a live lease, and tell waiters of phase and progress.

    Raises:
        NotFound: no such compile.
        LeaseExpired: stop compiling; nothing was changed.
    """
    caller.require("compile")
    ttl_s = services.settings.lease_ttl_s
    async with services.change() as change:
        row = await check_live(change.session, compile_id, request.generation, caller=caller)
        await compiles.move(
            change.session,
            row,
            heartbeat_at=change.now,
            lease_expires_at=change.now + ttl_s,
            phase=request.phase,
            progress=request.progress,
        )
    waiting = services.waiters.waiting_for(key_topic(row.namespace, row.key_digest))
    return HeartbeatResponse(expires_in_s=ttl_s, waiters=waiting)
