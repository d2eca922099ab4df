"""Rows shaped into what an asker is told."""

from datetime import UTC, datetime
from typing import Literal, cast

from graphcache_service.core.failures import as_failure
from graphcache_service.db.compiles import Standing
from graphcache_service.db.models import ArtifactRow, AttemptRow, CompileRow
from graphcache_service.db.plain import PlainRow
from graphcache_wire import Artifact, Attempt, Failed, FailureClass, Pending, Ready, Signature
from graphcache_wire.lease import Phase


def at(seconds: float) -> datetime:
    """A time of the database as UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def as_artifact(row: ArtifactRow | PlainRow) -> Artifact:
    """A publication, as clients check it."""
    signature = None
    if row.signature is not None and row.public_key is not None:
        signature = Signature(algorithm="ed25519", public_key=row.public_key, value=row.signature)
    return Artifact(
        key_digest=row.key_digest,
        blob=row.blob,
        size_bytes=row.size_bytes,
        toolchain=row.toolchain,
        compile_s=row.compile_s,
        producer=row.producer,
        producer_id=row.producer_id,
        created_at=at(row.created_at),
        signature=signature,
    )


def as_ready(standing: Standing) -> Ready:
    """A stored graph."""
    if standing.artifact is None:
        raise RuntimeError(f"compile {standing.compile.id} is ready without an artifact, which its CHECK forbids")
    return Ready(artifact=as_artifact(standing.artifact))


def as_failed(row: CompileRow, now: float) -> Failed:
    """A kept failure."""
    until = row.failed_until
    return Failed(
        key_digest=row.key_digest,
        failure=as_failure(row),
        retry_after_s=None if until is None else max(0.0, until - now),
    )


def eta_s(row: CompileRow, now: float, expected: float | None) -> float | None:
    """What is left of the expected time: from the lease's begin, or all of it while queued."""
    if expected is None:
        return None
    return expected if row.leased_at is None else max(0.0, expected - (now - row.leased_at))


def as_pending(
    standing: Standing, *, waiters: int = 0, queued_before: int = 0, expected: float | None = None
) -> Pending:
    """A compile that is under way, or waits for a worker."""
    row, now = standing.compile, standing.now
    state: Literal["queued", "leased"] = "leased" if row.state == "leased" else "queued"
    return Pending(
        key_digest=row.key_digest,
        compile_state=state,
        holder=row.holder,
        phase=cast(Phase | None, row.phase),
        progress=row.progress,
        heartbeat_age_s=None if row.heartbeat_at is None else max(0.0, now - row.heartbeat_at),
        waiters=waiters,
        queued_before=queued_before,
        attempt=row.attempts + (1 if state == "leased" else 0),
        eta_s=eta_s(row, now, expected),
    )


def as_attempt(row: AttemptRow) -> Attempt:
    """One try, for the record."""
    return Attempt(
        compile_id=row.compile_id,
        generation=row.generation,
        holder=row.holder,
        toolchain=row.toolchain,
        started_at=at(row.started_at),
        ended_at=None if row.ended_at is None else at(row.ended_at),
        outcome=cast(Literal["running", "ready", "failed"], row.outcome),
        failure_class=None if row.failure_class is None else FailureClass(row.failure_class),
        message=row.message,
        compile_s=row.compile_s,
        cpu_s=row.cpu_s,
        peak_memory_bytes=row.peak_memory_bytes,
        log_tail=row.log_tail,
    )
