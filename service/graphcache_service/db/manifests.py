"""SQL on manifests."""

from collections.abc import Sequence

from sqlalchemy import delete as sql_delete
from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import GraphKeyRow, ManifestKeyRow, ManifestRow
from graphcache_service.db.upsert import upsert
from graphcache_wire import GraphKey


async def put(session: AsyncSession, row: ManifestRow, key_digests: Sequence[str]) -> None:
    """Store a manifest, or change priority and pin of the one with this id; older ones of its name lose their pins."""
    await session.execute(
        update(ManifestRow)
        .where(ManifestRow.namespace == row.namespace, ManifestRow.name == row.name, ManifestRow.id != row.id)
        .values(pin=False)
        .execution_options(synchronize_session=False)
    )
    await session.execute(
        upsert(session, ManifestRow)
        .values(
            id=row.id,
            namespace=row.namespace,
            name=row.name,
            priority=row.priority,
            pin=row.pin,
            created_at=row.created_at,
        )
        .on_conflict_do_update(index_elements=[ManifestRow.id], set_={"priority": row.priority, "pin": row.pin})
    )
    await session.execute(sql_delete(ManifestKeyRow).where(ManifestKeyRow.manifest_id == row.id))
    await session.execute(
        insert(ManifestKeyRow),
        [{"manifest_id": row.id, "position": i, "key_digest": digest} for i, digest in enumerate(key_digests)],
    )


async def manifest(session: AsyncSession, identity: str) -> ManifestRow | None:
    """One manifest."""
    return await session.scalar(select(ManifestRow).where(ManifestRow.id == identity))


async def keys(session: AsyncSession, identity: str) -> list[GraphKey]:
    """A manifest's keys, in the order given."""
    rows = await session.scalars(
        select(GraphKeyRow.key_json)
        .join(ManifestKeyRow, ManifestKeyRow.key_digest == GraphKeyRow.key_digest)
        .where(ManifestKeyRow.manifest_id == identity)
        .order_by(ManifestKeyRow.position)
    )
    return [GraphKey.model_validate_json(text) for text in rows]


async def delete(session: AsyncSession, identity: str) -> None:
    """Remove a manifest with its keys."""
    await session.execute(sql_delete(ManifestKeyRow).where(ManifestKeyRow.manifest_id == identity))
    await session.execute(sql_delete(ManifestRow).where(ManifestRow.id == identity))


async def pinned_by(session: AsyncSession, namespace: str, key_digest: str) -> list[str]:
    """Names of the manifests that keep a graph from eviction."""
    rows = await session.scalars(
        select(ManifestRow.name)
        .join(ManifestKeyRow, ManifestKeyRow.manifest_id == ManifestRow.id)
        .where(ManifestRow.namespace == namespace, ManifestRow.pin, ManifestKeyRow.key_digest == key_digest)
        .order_by(ManifestRow.name)
    )
    return list(dict.fromkeys(rows))
