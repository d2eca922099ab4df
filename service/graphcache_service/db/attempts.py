"""SQL on attempts: the record of every try, and the history that expected times come from."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import ArtifactRow, AttemptRow, GraphKeyRow, LeasedRow


async def begin_attempt(session: AsyncSession, row: LeasedRow) -> None:
    """Record that the holder of a lease just granted began."""
    await session.execute(
        insert(AttemptRow).values(
            compile_id=row.id,
            generation=row.generation,
            namespace=row.namespace,
            key_digest=row.key_digest,
            owner=row.owner,
            holder=row.holder,
            toolchain=row.toolchain,
            started_at=row.leased_at,
            outcome="running",
        )
    )


async def insert_published(session: AsyncSession, artifact: ArtifactRow) -> None:
    """Record the attempt that a publication tells of: all that is left of it where the database was lost."""
    await session.execute(
        insert(AttemptRow).values(
            compile_id=artifact.compile_id,
            generation=artifact.generation,
            namespace=artifact.namespace,
            key_digest=artifact.key_digest,
            owner=artifact.producer_id,
            holder=artifact.producer,
            toolchain=artifact.toolchain,
            started_at=artifact.created_at - artifact.compile_s,
            ended_at=artifact.created_at,
            outcome="ready",
            compile_s=artifact.compile_s,
        )
    )


async def end_attempt(session: AsyncSession, compile_id: str, generation: int, **values: Any) -> None:
    """Record how an attempt ended; one that has ended already stays as it is."""
    await session.execute(
        update(AttemptRow)
        .where(
            AttemptRow.compile_id == compile_id, AttemptRow.generation == generation, AttemptRow.outcome == "running"
        )
        .values(**values)
        .execution_options(synchronize_session=False)
    )


async def attempt(session: AsyncSession, compile_id: str, generation: int) -> AttemptRow | None:
    """One attempt."""
    return await session.scalar(
        select(AttemptRow)
        .where(AttemptRow.compile_id == compile_id, AttemptRow.generation == generation)
        .execution_options(populate_existing=True)
    )


async def attempts_of(session: AsyncSession, namespace: str, key_digest: str, limit: int) -> Sequence[AttemptRow]:
    """The newest attempts of a key, oldest first."""
    rows = await session.scalars(
        select(AttemptRow)
        .where(AttemptRow.namespace == namespace, AttemptRow.key_digest == key_digest)
        .order_by(AttemptRow.id.desc())
        .limit(limit)
    )
    return list(reversed(rows.all()))


async def compile_times(session: AsyncSession, kind: str, limit: int) -> list[tuple[float, float]]:
    """The newest good compiles of one kind: products of the graph's size (E H F bucket), and seconds."""
    size = GraphKeyRow.e_hot * 1.0 * GraphKeyRow.h * GraphKeyRow.f * GraphKeyRow.bucket
    rows = await session.execute(
        select(size, AttemptRow.compile_s)
        .join(GraphKeyRow, GraphKeyRow.key_digest == AttemptRow.key_digest)
        .where(AttemptRow.outcome == "ready", GraphKeyRow.kind == kind, AttemptRow.compile_s.is_not(None))
        .order_by(AttemptRow.ended_at.desc())
        .limit(limit)
    )
    return [(float(row[0]), float(row[1] or 0.0)) for row in rows]


def old_statement(before: float, limit: int) -> Select[int]:
    """Attempts that ended before a time, but those that published what still stands."""
    standing = (
        select(ArtifactRow.id)
        .where(
            ArtifactRow.namespace == AttemptRow.namespace,
            ArtifactRow.key_digest == AttemptRow.key_digest,
            ArtifactRow.compile_id == AttemptRow.compile_id,
            ArtifactRow.generation == AttemptRow.generation,
            ArtifactRow.state == "standing",
        )
        .correlate(AttemptRow)
        .exists()
    )
    ended = AttemptRow.outcome.in_(("ready", "failed"))  # named, so that the index leads to them
    return select(AttemptRow.id).where(ended, AttemptRow.ended_at < before, ~standing).limit(limit)


async def old(session: AsyncSession, before: float, limit: int) -> list[int]:
    """Ids of attempts that may be forgotten."""
    return list(await session.scalars(old_statement(before, limit)))


async def forget(session: AsyncSession, ids: Sequence[int]) -> None:
    """Remove attempts."""
    await session.execute(delete(AttemptRow).where(AttemptRow.id.in_(ids)).execution_options(synchronize_session=False))
