"""SQL of the listing of graphs."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import case, func, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import ArtifactRow, CompileRow, GraphKeyRow
from graphcache_wire import GraphKey


@dataclass(frozen=True, slots=True)
class GraphFilter:
    """Which graphs are listed; None for any."""

    namespaces: Sequence[str]
    kind: str | None = None
    toolchain: str | None = None
    state: str | None = None
    e_hot: int | None = None
    h: int | None = None
    f: int | None = None
    bucket: int | None = None


GraphRow = tuple[CompileRow, GraphKeyRow, ArtifactRow | None]


async def graphs(
    session: AsyncSession, which: GraphFilter, after: tuple[str, str] | None, limit: int
) -> Sequence[GraphRow]:
    """A page of graphs, by digest and namespace, behind ``after``."""
    statement = (
        select(CompileRow, GraphKeyRow, ArtifactRow)
        .join(GraphKeyRow, GraphKeyRow.key_digest == CompileRow.key_digest)
        .outerjoin(ArtifactRow, ArtifactRow.id == CompileRow.artifact_id)
        .where(CompileRow.namespace.in_(which.namespaces))
    )
    for column, value in (
        (GraphKeyRow.kind, which.kind),
        (GraphKeyRow.toolchain, which.toolchain),
        (CompileRow.state, which.state),
        (GraphKeyRow.e_hot, which.e_hot),
        (GraphKeyRow.h, which.h),
        (GraphKeyRow.f, which.f),
        (GraphKeyRow.bucket, which.bucket),
    ):
        if value is not None:
            statement = statement.where(column == value)
    if after is not None:
        statement = statement.where(tuple_(CompileRow.key_digest, CompileRow.namespace) > tuple_(*after))
    ordered = statement.order_by(CompileRow.key_digest, CompileRow.namespace).limit(limit)
    return [(row[0], row[1], row[2]) for row in await session.execute(ordered)]


async def quarantined_count(session: AsyncSession, namespace: str, key_digest: str) -> int:
    """Publications of one key that were found bad."""
    statement = (
        select(func.count())
        .select_from(ArtifactRow)
        .where(
            ArtifactRow.namespace == namespace, ArtifactRow.key_digest == key_digest, ArtifactRow.state == "quarantined"
        )
    )
    return int(await session.scalar(statement) or 0)


SIMILAR_ROWS = 100


async def similar(session: AsyncSession, namespaces: Sequence[str], key: GraphKey) -> list[GraphKey]:
    """Stored keys that share the most of the six fields with ``key``."""
    fields = {
        GraphKeyRow.kind: str(key.kind),
        GraphKeyRow.e_hot: key.e_hot,
        GraphKeyRow.h: key.h,
        GraphKeyRow.f: key.f,
        GraphKeyRow.bucket: key.bucket,
        GraphKeyRow.toolchain: key.toolchain,
    }
    shared = sum((case((column == value, 1), else_=0) for column, value in fields.items()), start=literal(0))
    rows = await session.scalars(
        select(GraphKeyRow.key_json)
        .join(CompileRow, CompileRow.key_digest == GraphKeyRow.key_digest)
        .where(CompileRow.namespace.in_(namespaces), CompileRow.state == "ready")
        .order_by(shared.desc(), GraphKeyRow.key_digest)
        .limit(SIMILAR_ROWS)
    )
    return [GraphKey.model_validate_json(text) for text in dict.fromkeys(rows)]
