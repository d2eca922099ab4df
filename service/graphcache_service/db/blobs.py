"""SQL on blobs: the record of bytes that the store holds whole and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

from sqlalchemy import ColumnElement, Select, Table, and_, bindparam, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import ArtifactRow, BlobRow, TotalsRow
from graphcache_service.db.plain import Ask, asking
from graphcache_service.db.upsert import upsert

DIGESTS_A_QUERY: Final = 500

_BLOBS: Final = cast(Table, BlobRow.__table__)
_TOTALS: Final = cast(Table, TotalsRow.__table__)
_REVIVE: Final = (
    update(_BLOBS)
    .where(_BLOBS.c.digest == bindparam("of_digest"))
    .values(doomed_at=None, last_fetched_at=bindparam("now"))
)
_NAMES: Final = ("digest", "size_bytes", "created_at", "last_fetched_at")
_ADD_TO_TOTALS: Final = update(_TOTALS).values(
    blobs=_TOTALS.c.blobs + bindparam("more_blobs"), blob_bytes=_TOTALS.c.blob_bytes + bindparam("more_bytes")
)
_STORED: Final = select(_TOTALS.c.blobs, _TOTALS.c.blob_bytes)
"""What each upload asks is built once, and of tables: building it, and the session's entities, cost more than that."""


async def blob(session: AsyncSession, digest: str) -> BlobRow | None:
    """The row of a blob."""
    return await session.scalar(
        select(BlobRow).where(BlobRow.digest == digest).execution_options(populate_existing=True)
    )


@lru_cache(maxsize=2)
def _record(dialect: str) -> Any:
    values = {name: bindparam(f"new_{name}", type_=_BLOBS.c[name].type) for name in _NAMES}
    return upsert(dialect, _BLOBS).values(values).on_conflict_do_nothing().returning(_BLOBS.c.digest)


async def record_blob(session: AsyncSession, digest: str, size_bytes: int, now: float) -> None:
    """See ``record_blobs``."""
    await record_blobs(asking(session), session.get_bind().dialect.name, {digest: size_bytes}, now)


async def record_blobs(ask: Ask, dialect: str, sizes: Mapping[str, int], now: float) -> None:
    """Record bytes that were stored and checked; clears the collector's mark where it is set. Safe to repeat.

    Args:
        sizes: bytes by digest.
    """
    new_bytes: list[int] = []
    for digest in sorted(sizes):  # the lock order of whoever records many
        values = (digest, sizes[digest], now, now)
        if await ask(_record(dialect), {f"new_{name}": value for name, value in zip(_NAMES, values, strict=True)}):
            new_bytes.append(sizes[digest])
        else:
            await ask(_REVIVE, {"of_digest": digest, "now": now})
    if new_bytes:
        await ask(_ADD_TO_TOTALS, {"more_blobs": len(new_bytes), "more_bytes": sum(new_bytes)})


async def forget_blob(session: AsyncSession, digest: str, *, doomed_only: bool = False) -> bool:
    """Remove the row of bytes that are gone, or are about to go; False where there was none.

    Args:
        doomed_only: leave a row that an upload revived meanwhile.
    """
    statement = delete(BlobRow).where(BlobRow.digest == digest)
    if doomed_only:
        statement = statement.where(BlobRow.doomed_at.is_not(None))
    size_bytes = await session.scalar(
        statement.returning(BlobRow.size_bytes).execution_options(synchronize_session=False)
    )
    if size_bytes is not None:
        await _add_to_totals(session, -1, -size_bytes)
    return size_bytes is not None


async def _add_to_totals(session: AsyncSession, blobs: int, size_bytes: int) -> None:
    await session.execute(_ADD_TO_TOTALS, {"more_blobs": blobs, "more_bytes": size_bytes})


async def stored(session: AsyncSession) -> tuple[int, int]:
    """How many blobs are recorded, and their bytes. Does not take longer the more there are."""
    row = (await session.execute(_STORED)).one()
    return int(row.blobs), int(row.blob_bytes)


async def recount(session: AsyncSession, *, mend: bool) -> bool:
    """Whether the totals are wrong; counts all blobs, and writes what it counted where it is to mend."""
    before = (await session.execute(select(TotalsRow.blobs, TotalsRow.blob_bytes).with_for_update())).one()
    row = (await session.execute(select(func.count(), func.coalesce(func.sum(BlobRow.size_bytes), 0)))).one()
    counted = (int(row[0]), int(row[1]))
    if mend:
        await session.execute(
            update(TotalsRow)
            .values(blobs=counted[0], blob_bytes=counted[1])
            .execution_options(synchronize_session=False)
        )
    return (before.blobs, before.blob_bytes) != counted


async def doomed(session: AsyncSession, limit: int) -> list[str]:
    """Blobs that the collector marked, oldest first."""
    rows = await session.scalars(
        select(BlobRow.digest).where(BlobRow.doomed_at.is_not(None)).order_by(BlobRow.doomed_at).limit(limit)
    )
    return list(rows)


async def doom(session: AsyncSession, digests: Sequence[str], unused_since: float, now: float) -> set[str]:
    """Mark blobs that nobody fetched since ``unused_since``; returns those that were marked."""
    rows = await session.scalars(
        update(BlobRow)
        .where(
            BlobRow.digest.in_(digests),
            BlobRow.doomed_at.is_(None),
            func.coalesce(BlobRow.last_fetched_at, BlobRow.created_at) <= unused_since,
        )
        .values(doomed_at=now)
        .returning(BlobRow.digest)
        .execution_options(synchronize_session=False)
    )
    return set(rows)


@dataclass(frozen=True, slots=True)
class Page:
    """Some blobs in the order of their digests."""

    looked_at: int
    last: str
    unnamed: list[str]


def _unnamed(unused_since: float) -> ColumnElement[bool]:
    """Whether no standing artifact names a blob and nobody touched it lately: an upload that was never published."""
    named = select(ArtifactRow.id).where(ArtifactRow.blob == BlobRow.digest, ArtifactRow.state == "standing").exists()
    touched = func.coalesce(BlobRow.last_fetched_at, BlobRow.created_at)
    return and_(~named, BlobRow.doomed_at.is_(None), touched <= unused_since)


def unnamed_statement(digest: str, unused_since: float, limit: int) -> Select[str, bool]:
    """The blobs behind ``digest``, each with whether it may go."""
    unnamed = _unnamed(unused_since)
    return select(BlobRow.digest, unnamed).where(BlobRow.digest > digest).order_by(BlobRow.digest).limit(limit)


async def unnamed_after(session: AsyncSession, digest: str, unused_since: float, limit: int) -> Page:
    """Look at up to ``limit`` blobs behind ``digest``."""
    rows = (await session.execute(unnamed_statement(digest, unused_since, limit))).all()
    return Page(len(rows), rows[-1][0] if rows else "", [row[0] for row in rows if row[1]])


async def doom_orphans(session: AsyncSession, digests: Sequence[str], unused_since: float, now: float) -> int:
    """Mark those of some blobs that still nothing names and nobody touched; returns how many."""
    marked = 0
    for first in range(0, len(digests), DIGESTS_A_QUERY):
        orphans = await session.scalars(
            update(BlobRow)
            .where(BlobRow.digest.in_(digests[first : first + DIGESTS_A_QUERY]), _unnamed(unused_since))
            .values(doomed_at=now)
            .returning(BlobRow.digest)
            .execution_options(synchronize_session=False)
        )
        marked += len(orphans.all())
    return marked


async def recorded_after(session: AsyncSession, digest: str, limit: int) -> list[BlobRow]:
    """Rows in order of their digests, behind ``digest``."""
    rows = select(BlobRow).where(BlobRow.digest > digest).order_by(BlobRow.digest).limit(limit)
    return list(await session.scalars(rows))


async def newest(session: AsyncSession, limit: int) -> list[BlobRow]:
    """The rows written last: what a crash may have hurt."""
    return list(await session.scalars(select(BlobRow).order_by(BlobRow.created_at.desc()).limit(limit)))


async def unrecorded(session: AsyncSession, digests: Sequence[str]) -> set[str]:
    """Which of these digests have no row."""
    known = set(await session.scalars(select(BlobRow.digest).where(BlobRow.digest.in_(digests))))
    return set(digests) - known
