"""Fail and release: a holder ends its lease without a graph."""

from typing import Literal

from graphcache_service.core.callers import Caller
from graphcache_service.core.failures import FailedAttempt, end_as_failed
from graphcache_service.core.hedging import end_hedge
from graphcache_service.core.leases import check_own, is_live, why_not_live
from graphcache_service.core.services import Change, Services
from graphcache_service.db import attempts, compiles, hedges
from graphcache_service.db.models import CompileRow, HedgeRow, LeasedRow
from graphcache_wire import FailRequest, FailResponse, FailureClass, ReleaseRequest


async def fail(services: Services, caller: Caller, compile_id: str, request: FailRequest) -> FailResponse:
    """A holder tells that its compile gave no graph. Safe to repeat. A hedge that fails leaves the compile as it is.

    Raises:
        NotFound: no such compile.
        LeaseExpired: another generation, or nobody, holds the lease; nothing was changed.
    """
    caller.require("compile")
    async with services.change() as change:
        row = check_own(await compiles.lock_compile(change.session, compile_id), caller, compile_id)
        if not is_live(row, request.generation, change.now):
            if not await _was_told(change, row, request):
                raise why_not_live(row, request.generation, change.now)
            return _answer(await _compile_of(change, row), change.now)
        failed = FailedAttempt(
            request.failure_class,
            request.message,
            request.log_tail,
            request.compile_s,
            request.cpu_s,
            request.peak_memory_bytes,
        )
        if isinstance(row, HedgeRow):
            await end_hedge(change, row, "failed", failed)
        else:
            row = await end_as_failed(change, row, failed, services.settings) or row
        return _answer(await _compile_of(change, row), change.now)


async def release(services: Services, caller: Caller, compile_id: str, request: ReleaseRequest) -> FailResponse:
    """A holder gives its lease back; this does not count against the limit. Safe to repeat.

    Raises:
        NotFound, LeaseExpired: as for :func:`fail`.
    """
    message = request.reason or "the holder gave the lease back"
    given_up = FailRequest(generation=request.generation, failure_class=FailureClass.CANCELLED, message=message)
    return await fail(services, caller, compile_id, given_up)


async def _compile_of(change: Change, row: LeasedRow) -> CompileRow:
    return await hedges.compile_of(change.session, row) if isinstance(row, HedgeRow) else row


async def _was_told(change: Change, row: LeasedRow, request: FailRequest) -> bool:
    """Whether this very failure was recorded before and its answer was lost."""
    if isinstance(row, HedgeRow) and row.state != "failed":
        return False
    attempt = await attempts.attempt(change.session, row.id, request.generation)
    return (
        row.generation == request.generation
        and attempt is not None
        and attempt.outcome == "failed"
        and attempt.failure_class == request.failure_class
    )


def _answer(row: CompileRow, now: float) -> FailResponse:
    state: Literal["queued", "failed", "ready"] = (
        "failed" if row.state == "failed" else "ready" if row.state == "ready" else "queued"
    )
    again_at = row.failed_until if state == "failed" else row.not_before
    return FailResponse(state=state, retry_after_s=None if again_at is None else max(0.0, again_at - now))
