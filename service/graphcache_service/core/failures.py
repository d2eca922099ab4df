"""What follows from a failed attempt: a pure decision, and the transition that carries it out."""

from dataclasses import dataclass
from typing import Any, Literal

from graphcache_service.core.services import Change
from graphcache_service.core.waiters import QUEUE, key_topic
from graphcache_service.db import attempts, compiles
from graphcache_service.db.models import CompileRow
from graphcache_service.settings import Settings
from graphcache_wire import Failure, FailureClass

NO_BACKOFF = frozenset({FailureClass.LOST, FailureClass.CANCELLED})
"""A lost holder has cost its lease time already, and one that gave its lease back did nothing wrong."""

LEASE_ENDED: dict[str, Any] = {
    "owner": None,
    "holder": None,
    "leased_at": None,
    "lease_expires_at": None,
    "heartbeat_at": None,
    "phase": None,
    "progress": None,
}
"""The columns of a lease, cleared."""

FAILURE_CLEARED: dict[str, Any] = {
    "failure_class": None,
    "failure_message": "",
    "failure_log_tail": "",
    "failed_until": None,
    "not_before": None,
}


@dataclass(frozen=True, slots=True)
class Next:
    """The state after a failed attempt. ``failed_until`` None with state failed: until somebody asks to retry."""

    state: Literal["queued", "failed"]
    attempts: int
    not_before: float | None = None
    failed_until: float | None = None


def after_failure(settings: Settings, failure_class: FailureClass, attempts_before: int, now: float) -> Next:
    """Whether a compile is tried again, and when."""
    if failure_class is FailureClass.CANCELLED:
        return Next("queued", attempts_before)
    tried = attempts_before + 1
    if failure_class is FailureClass.REJECTED:
        return Next("failed", tried, failed_until=now + settings.rejected_ttl_s)
    if tried >= settings.max_attempts:
        return Next("failed", tried)
    if failure_class in NO_BACKOFF:
        return Next("queued", tried)
    pause_s = min(settings.backoff_max_s, settings.backoff_base_s * 2.0 ** (tried - 1))
    return Next("queued", tried, not_before=now + pause_s)


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """What is recorded of it."""

    failure_class: FailureClass
    message: str
    log_tail: str = ""
    compile_s: float | None = None
    cpu_s: float | None = None
    peak_memory_bytes: int | None = None


async def end_failed_attempt(change: Change, compile_id: str, generation: int, failed: FailedAttempt) -> None:
    """Record an attempt, of a lease or of a hedge, as ended without a graph."""
    await attempts.end_attempt(
        change.session,
        compile_id,
        generation,
        outcome="failed",
        ended_at=change.now,
        failure_class=failed.failure_class,
        message=failed.message,
        log_tail=failed.log_tail,
        compile_s=failed.compile_s,
        cpu_s=failed.cpu_s,
        peak_memory_bytes=failed.peak_memory_bytes,
    )


async def end_as_failed(
    change: Change, row: CompileRow, failed: FailedAttempt, settings: Settings
) -> CompileRow | None:
    """End the attempt of a leased row and move it on; None where another was first."""
    following = after_failure(settings, failed.failure_class, row.attempts, change.now)
    values: dict[str, Any] = LEASE_ENDED | {
        "state": following.state,
        "attempts": following.attempts,
        "not_before": following.not_before,
        "failed_until": following.failed_until,
    }
    if following.state == "failed":
        values |= {
            "failure_class": failed.failure_class,
            "failure_message": failed.message,
            "failure_log_tail": failed.log_tail,
        }
    if failed.failure_class is FailureClass.OUT_OF_MEMORY:
        values |= {"retry_alone": True, "needed_memory_bytes": failed.peak_memory_bytes}
    moved = await compiles.move(change.session, row, **values)
    if moved is None:
        return None
    await end_failed_attempt(change, moved.id, moved.generation, failed)
    change.wake(key_topic(moved.namespace, moved.key_digest))
    change.wake(QUEUE)
    return moved


async def expire(change: Change, row: CompileRow, settings: Settings) -> CompileRow | None:
    """Take an expired lease from its holder."""
    silent_s = change.now - (row.heartbeat_at or change.now)
    message = f"no heartbeat from {row.holder} for {silent_s:.0f} s: the lease of generation {row.generation} ran out"
    return await end_as_failed(change, row, FailedAttempt(FailureClass.LOST, message), settings)


async def requeue(change: Change, row: CompileRow) -> CompileRow | None:
    """Compile a kept failure anew: its limit of attempts begins again."""
    moved = await compiles.move(
        change.session,
        row,
        **FAILURE_CLEARED,
        state="queued",
        attempts=0,
        queued_at=change.now,
        retry_alone=False,
        needed_memory_bytes=None,
    )
    if moved is not None:
        change.wake(key_topic(row.namespace, row.key_digest))
        change.wake(QUEUE)
    return moved


def as_failure(row: CompileRow) -> Failure:
    """What an asker is told of a failed compile."""
    return Failure(
        failure_class=FailureClass(row.failure_class or FailureClass.CRASHED),
        message=row.failure_message,
        log_tail=row.failure_log_tail,
        attempts=row.attempts,
    )
