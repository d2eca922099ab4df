"""SQL on uploads: bytes reserved against the quota before a body is read."""

from dataclasses import dataclass
from typing import Any, Final, cast

from sqlalchemy import FromClause, Select, Table, bindparam, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.clock import database_now
from graphcache_service.db.engine import Database
from graphcache_service.db.models import BlobRow, CompileRow, HedgeRow, LeasedRow, UploadRow
from graphcache_service.db.plain import Ask

_BLOB: Final = BlobRow.__table__.c


def _gate_of(leased: FromClause) -> Select[Any]:
    return (
        select(
            *leased.c,
            _BLOB.size_bytes.label("blob_bytes"),
            _BLOB.doomed_at.label("blob_doomed_at"),
            database_now().label("now"),
        )
        .join_from(leased, BlobRow.__table__, _BLOB.digest == bindparam("digest"), isouter=True)
        .where(leased.c.id == bindparam("compile_id"))
    )


_GATE: Final = _gate_of(CompileRow.__table__)
_HEDGE_GATE: Final = _gate_of(HedgeRow.__table__)
_UPLOADS: Final = cast(Table, UploadRow.__table__)
_RESERVE: Final = insert(_UPLOADS)
_RELEASE: Final = delete(_UPLOADS).where(_UPLOADS.c.id == bindparam("upload_id"))
_RELEASE_EXPIRED: Final = delete(_UPLOADS).where(_UPLOADS.c.expires_at <= bindparam("now"))
_RESERVED_BYTES: Final = select(func.coalesce(func.sum(_UPLOADS.c.size_bytes), 0))
"""Built once, and of tables: building them, and the session's entities, cost more than running them."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What an upload must know: what its lease was granted on if there is one, what is recorded of its blob, the
    database's time.
    """

    compile: LeasedRow | None
    blob_bytes: int | None
    blob_doomed: bool
    now: float


@dataclass(frozen=True, slots=True)
class Leased:
    """What a lease was granted on, and the database's time of the look."""

    row: LeasedRow
    now: float


async def gate(database: Database, compile_id: str, digest: str) -> Gate:
    """In one question; a hedge costs a second one."""
    asked = {"compile_id": compile_id, "digest": digest}
    found = await database.rows(_GATE, asked) or await database.rows(_HEDGE_GATE, asked)
    if not found:
        return Gate(None, None, False, 0.0)
    [row] = found
    # It has the row's columns by their names, which is all that a look at a lease needs.
    return Gate(cast(LeasedRow, row), row.blob_bytes, row.blob_doomed_at is not None, row.now)


def _locked(leased: FromClause, name: str) -> Select[Any]:
    return select(*leased.c, database_now().label("now")).where(leased.c.id == bindparam(name)).with_for_update()


_LOCK: Final = _locked(CompileRow.__table__, "compile_id")
_HEDGED: Final = select(HedgeRow.__table__.c.compile_id).where(HedgeRow.__table__.c.id == bindparam("hedge_id"))
_LOCK_HEDGE: Final = _locked(HedgeRow.__table__, "hedge_id")


async def lock_leased(ask: Ask, compile_id: str) -> Leased | None:
    """What the lease of this id was granted on, a compile or a hedge of one, locked until the transaction ends."""
    found = await ask(_LOCK, {"compile_id": compile_id})
    if not found:
        for hedged in await ask(_HEDGED, {"hedge_id": compile_id}):
            await ask(_LOCK, {"compile_id": hedged.compile_id})
        found = await ask(_LOCK_HEDGE, {"hedge_id": compile_id})
    return Leased(cast(LeasedRow, found[0]), found[0].now) if found else None


async def reserve(
    session: AsyncSession,
    *,
    upload_id: str,
    compile_id: str,
    generation: int,
    digest: str,
    size_bytes: int,
    created_at: float,
    expires_at: float,
) -> None:
    """Record a reservation."""
    await session.execute(
        _RESERVE,
        {
            "id": upload_id,
            "compile_id": compile_id,
            "generation": generation,
            "digest": digest,
            "size_bytes": size_bytes,
            "created_at": created_at,
            "expires_at": expires_at,
        },
    )


async def release(ask: Ask, upload_id: str) -> None:
    """The upload ended, either way. Safe to repeat."""
    await ask(_RELEASE, {"upload_id": upload_id})


async def release_expired(session: AsyncSession, now: float) -> None:
    """Reservations of processes that died with an upload under way."""
    await session.execute(_RELEASE_EXPIRED, {"now": now})


async def reserved_bytes(session: AsyncSession) -> int:
    """All that is reserved."""
    return int(await session.scalar(_RESERVED_BYTES) or 0)
