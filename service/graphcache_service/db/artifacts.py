"""SQL on artifacts."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import ArtifactRow, CompileRow, GraphKeyRow, LeasedRow
from graphcache_wire import Published


@dataclass(frozen=True, slots=True)
class StandingGraph:
    """An artifact that its key leads to, and that key."""

    artifact: ArtifactRow
    key_json: str


async def insert_artifact(
    session: AsyncSession, row: LeasedRow, published: Published, *, state: str, holder: str, owner: str, now: float
) -> ArtifactRow:
    """Record a publication under the lease of ``row``."""
    signature = published.signature
    values: dict[str, Any] = {
        "namespace": row.namespace,
        "key_digest": row.key_digest,
        "compile_id": row.id,
        "generation": row.generation,
        "state": state,
        "blob": published.blob,
        "size_bytes": published.size_bytes,
        "toolchain": published.toolchain,
        "compile_s": published.compile_s,
        "producer": holder,
        "producer_id": owner,
        "created_at": now,
        "public_key": signature.public_key if signature else None,
        "signature": signature.value if signature else None,
    }
    return (await session.scalars(insert(ArtifactRow).values(values).returning(ArtifactRow))).one()


async def artifact(session: AsyncSession, artifact_id: int) -> ArtifactRow | None:
    """One artifact."""
    return await session.scalar(
        select(ArtifactRow).where(ArtifactRow.id == artifact_id).execution_options(populate_existing=True)
    )


async def divergent(session: AsyncSession, compile_id: str, generation: int, blob: str) -> bool:
    """Whether this second publication is on record already."""
    found = await session.scalar(
        select(ArtifactRow.id).where(
            ArtifactRow.compile_id == compile_id,
            ArtifactRow.generation == generation,
            ArtifactRow.blob == blob,
            ArtifactRow.state == "divergent",
        )
    )
    return found is not None


async def retire(session: AsyncSession, artifact_id: int, *, state: str, reason: str, now: float) -> None:
    """Take a standing artifact out of service; its row stays for the record."""
    await session.execute(
        update(ArtifactRow)
        .where(ArtifactRow.id == artifact_id, ArtifactRow.state == "standing")
        .values(state=state, reason=reason, ended_at=now)
        .execution_options(synchronize_session=False)
    )


async def standing_of_blob(session: AsyncSession, blob: str) -> list[ArtifactRow]:
    """Every standing artifact with these bytes: two keys may share one blob."""
    rows = await session.scalars(
        select(ArtifactRow)
        .where(ArtifactRow.blob == blob, ArtifactRow.state == "standing")
        .order_by(ArtifactRow.namespace, ArtifactRow.key_digest)
    )
    return list(rows)


async def standing_of_producer(
    session: AsyncSession, producer: str, since: float, after_id: int, limit: int
) -> list[ArtifactRow]:
    """What one producer published since a time and still stands, in the order of publication, behind ``after_id``."""
    rows = await session.scalars(
        select(ArtifactRow)
        .where(
            ArtifactRow.producer == producer,
            ArtifactRow.created_at >= since,
            ArtifactRow.state == "standing",
            ArtifactRow.id > after_id,
        )
        .order_by(ArtifactRow.id)
        .limit(limit)
    )
    return list(rows)


async def insert_copy(session: AsyncSession, original: ArtifactRow, row: CompileRow, now: float) -> ArtifactRow:
    """The same publication for the compile of another namespace."""
    values: dict[str, Any] = {
        "namespace": row.namespace,
        "key_digest": row.key_digest,
        "compile_id": row.id,
        "generation": row.generation,
        "state": "standing",
        "blob": original.blob,
        "size_bytes": original.size_bytes,
        "toolchain": original.toolchain,
        "compile_s": original.compile_s,
        "producer": original.producer,
        "producer_id": original.producer_id,
        "created_at": now,
        "public_key": original.public_key,
        "signature": original.signature,
        "reason": f"promoted from {original.namespace}",
    }
    return (await session.scalars(insert(ArtifactRow).values(values).returning(ArtifactRow))).one()


def _standing() -> Select[ArtifactRow, str]:
    return (
        select(ArtifactRow, GraphKeyRow.key_json)
        .join(GraphKeyRow, GraphKeyRow.key_digest == ArtifactRow.key_digest)
        .where(ArtifactRow.state == "standing")
        .execution_options(populate_existing=True)
    )


async def standing_graph(session: AsyncSession, namespace: str, key_digest: str) -> StandingGraph | None:
    """What a key leads to."""
    own = (ArtifactRow.namespace == namespace, ArtifactRow.key_digest == key_digest)
    row = (await session.execute(_standing().where(*own))).one_or_none()
    return None if row is None else StandingGraph(row[0], row[1])


async def standing_after(session: AsyncSession, artifact_id: int, limit: int) -> list[StandingGraph]:
    """Standing artifacts in the order of their publication, behind one of them."""
    rows = await session.execute(_standing().where(ArtifactRow.id > artifact_id).order_by(ArtifactRow.id).limit(limit))
    return [StandingGraph(row[0], row[1]) for row in rows]


async def newest_standing(session: AsyncSession, limit: int) -> list[StandingGraph]:
    """The publications that were recorded last: those whose record a crash may have prevented."""
    rows = await session.execute(_standing().order_by(ArtifactRow.id.desc()).limit(limit))
    return [StandingGraph(row[0], row[1]) for row in rows]


async def was_retired(session: AsyncSession, namespace: str, key_digest: str, blob: str) -> bool:
    """Whether the database knows this publication as one that was taken out of service, and of no newer one."""
    newest = await session.scalar(
        select(ArtifactRow.state)
        .where(
            ArtifactRow.namespace == namespace,
            ArtifactRow.key_digest == key_digest,
            ArtifactRow.blob == blob,
            ArtifactRow.state != "divergent",
        )
        .order_by(ArtifactRow.id.desc())
        .limit(1)
    )
    return newest is not None and newest != "standing"
