"""SQL on compiles, and the keys and artifacts beside them.

A change is guarded by the state and generation that it was decided on.
"""

import secrets
from collections import namedtuple
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

from sqlalchemy import BindParameter, Select, String, bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db import hedges
from graphcache_service.db.clock import database_now
from graphcache_service.db.engine import Database
from graphcache_service.db.models import ArtifactRow, CompileRow, GraphKeyRow, LeasedRow
from graphcache_service.db.plain import PlainRow
from graphcache_service.db.upsert import upsert
from graphcache_wire import GraphKey

Moved = TypeVar("Moved", bound=LeasedRow)

DIGESTS_A_QUERY: Final = 1_000
"""More bound values than this slow the planner down, and SQLite refuses 32,766."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How one key stands in one namespace, and the database's time of the look."""

    compile: CompileRow
    artifact: ArtifactRow | None
    now: float


@dataclass(frozen=True, slots=True)
class Wish:
    """A key to be queued where nobody did yet."""

    namespace: str
    key: GraphKey
    priority: int


async def remember_keys(session: AsyncSession, keys: Iterable[GraphKey]) -> None:
    """Store keys that are not stored yet."""
    rows = [
        {
            "key_digest": key.digest,
            "kind": str(key.kind),
            "e_hot": key.e_hot,
            "h": key.h,
            "f": key.f,
            "bucket": key.bucket,
            "toolchain": key.toolchain,
            "key_json": key.model_dump_json(),
        }
        for key in sorted(keys, key=lambda key: key.digest)
    ]
    await session.execute(upsert(session, GraphKeyRow).on_conflict_do_nothing(), rows)


async def queue(session: AsyncSession, wishes: Sequence[Wish], now: float) -> None:
    """Queue what has no row yet. The unique constraint decides between two who ask at once."""
    if not wishes:
        return
    await remember_keys(session, {wish.key for wish in wishes})
    rows = [
        {
            "id": secrets.token_hex(16),
            "namespace": wish.namespace,
            "key_digest": wish.key.digest,
            "toolchain": wish.key.toolchain,
            "needs_weights": wish.key.mode == "baked",
            "state": "queued",
            "generation": 0,
            "priority": wish.priority,
            "attempts": 0,
            "created_at": now,
            "queued_at": now,
            "retry_alone": False,
        }
        for wish in sorted(wishes, key=lambda wish: wish.key.digest)
    ]
    await session.execute(upsert(session, CompileRow).on_conflict_do_nothing(), rows)


def _named(namespaces: int) -> list[BindParameter[str]]:
    return [bindparam(f"namespace_{number}", type_=String) for number in range(namespaces)]


def _names(namespaces: Sequence[str]) -> dict[str, str]:
    return {f"namespace_{number}": name for number, name in enumerate(namespaces)}


@lru_cache(maxsize=64)
def _stored(namespaces: int) -> Select[Any]:
    """Every resolve asks this first. Entities, and a list of any length, take longer than the look-up."""
    artifact, row = ArtifactRow.__table__, CompileRow.__table__
    return (
        select(*artifact.c, database_now().label("now"))
        .join_from(row, artifact, artifact.c.id == row.c.artifact_id)
        .where(row.c.namespace.in_(_named(namespaces)), row.c.key_digest == bindparam("key_digest"))
    )


async def stored(database: Database, namespaces: Sequence[str], key_digest: str) -> PlainRow | None:
    """The columns of the artifact that a key leads to in the first namespace that has one, and ``now``."""
    found = await database.rows(_stored(len(namespaces)), _names(namespaces) | {"key_digest": key_digest})
    return min(found, key=lambda row: namespaces.index(row.namespace), default=None)


@lru_cache(maxsize=64)
def _standing(namespaces: int) -> Select[Any]:
    row, artifact = CompileRow.__table__, ArtifactRow.__table__
    return (
        select(*row.c, database_now().label("now"), *(column.label(f"of_{column.key}") for column in artifact.c))
        .join_from(row, artifact, artifact.c.id == row.c.artifact_id, isouter=True)
        .where(row.c.namespace.in_(_named(namespaces)), row.c.key_digest == bindparam("key_digest"))
    )


_Artifact = namedtuple("_Artifact", ArtifactRow.__table__.c.keys())  # type: ignore[misc]  # its columns by name


async def standing(database: Database, namespaces: Sequence[str], key_digest: str) -> Standing | None:
    """How one key stands, as plain rows, which have the columns of the entities: see :func:`standings`."""
    rows = await database.rows(_standing(len(namespaces)), _names(namespaces) | {"key_digest": key_digest})
    found = [Standing(cast(CompileRow, row), _artifact_of(row), row.now) for row in rows]
    return _by_digest(found, namespaces).get(key_digest)


def _artifact_of(row: PlainRow) -> ArtifactRow | None:
    if row.artifact_id is None:
        return None
    return cast(ArtifactRow, _Artifact._make(row[-len(_Artifact._fields) :]))


_STANDINGS: Final[Select[CompileRow, ArtifactRow | None, float]] = (
    select(CompileRow, ArtifactRow, database_now())
    .outerjoin(ArtifactRow, ArtifactRow.id == CompileRow.artifact_id)
    .where(
        CompileRow.namespace.in_(bindparam("namespaces", expanding=True)),
        CompileRow.key_digest.in_(bindparam("key_digests", expanding=True)),
    )
    .execution_options(populate_existing=True)
)


async def standings(
    session: AsyncSession, namespaces: Sequence[str], key_digests: Sequence[str]
) -> dict[str, Standing]:
    """How keys stand, by digest: a ready row of the first namespace that has one, else the first namespace's row."""
    found: dict[str, Standing] = {}
    for first in range(0, len(key_digests), DIGESTS_A_QUERY):
        part = list(key_digests[first : first + DIGESTS_A_QUERY])
        rows = await session.execute(_STANDINGS, {"namespaces": list(namespaces), "key_digests": part})
        found |= _by_digest([Standing(row[0], row[1], row[2]) for row in rows], namespaces)
    return found


def _by_digest(rows: list[Standing], namespaces: Sequence[str]) -> dict[str, Standing]:
    rows.sort(key=lambda row: (row.compile.state != "ready", namespaces.index(row.compile.namespace)))
    found: dict[str, Standing] = {}
    for row in rows:
        if row.compile.state == "ready" or row.compile.namespace == namespaces[0]:
            found.setdefault(row.compile.key_digest, row)
    return found


_LOCK_COMPILE: Final[Select[CompileRow]] = (
    select(CompileRow)
    .where(CompileRow.id == bindparam("compile_id"))
    .with_for_update()
    .execution_options(populate_existing=True)
)


async def lock_compile(session: AsyncSession, compile_id: str) -> LeasedRow | None:
    """What the lease of this id was granted on, a compile or a hedge of one, locked until the transaction ends."""
    row = await session.scalar(_LOCK_COMPILE, {"compile_id": compile_id})
    return row if row is not None else await hedges.lock(session, compile_id)


_LOCK_KEY: Final[Select[CompileRow]] = (
    select(CompileRow)
    .where(CompileRow.namespace == bindparam("namespace"), CompileRow.key_digest == bindparam("key_digest"))
    .with_for_update()
    .execution_options(populate_existing=True)
)


async def lock_key(session: AsyncSession, namespace: str, key_digest: str) -> CompileRow | None:
    """The row of a key in a namespace, locked until the transaction ends."""
    return await session.scalar(_LOCK_KEY, {"namespace": namespace, "key_digest": key_digest})


async def move(session: AsyncSession, row: Moved, **values: Any) -> Moved | None:
    """Change a row if it still is in the state and generation of ``row``; None where another was first."""
    table = type(row)
    return await session.scalar(
        update(table)
        .where(table.id == row.id, table.state == row.state, table.generation == row.generation)
        .values(**values)
        .returning(table)
        .execution_options(populate_existing=True, synchronize_session=False)
    )


async def raise_priority(session: AsyncSession, namespace: str, key_digests: Sequence[str], priority: int) -> None:
    """Raise open compiles that have a lower priority; never lowers one."""
    for first in range(0, len(key_digests), DIGESTS_A_QUERY):
        lower = await session.scalars(
            select(CompileRow.id)
            .where(
                CompileRow.namespace == namespace,
                CompileRow.key_digest.in_(sorted(key_digests)[first : first + DIGESTS_A_QUERY]),
                CompileRow.state.in_(("queued", "leased")),
                CompileRow.priority < priority,
            )
            .order_by(CompileRow.namespace, CompileRow.key_digest)  # the lock order of whoever changes many rows
            .with_for_update()
        )
        await session.execute(
            update(CompileRow)
            .where(CompileRow.id.in_(lower.all()), CompileRow.priority < priority)
            .values(priority=priority)
            .execution_options(synchronize_session=False)
        )


async def ready_among(session: AsyncSession, key_digests: Sequence[str]) -> set[tuple[str, str]]:
    """Namespace and key of those that are ready, in whatever namespace."""
    rows = await session.execute(
        select(CompileRow.namespace, CompileRow.key_digest).where(
            CompileRow.key_digest.in_(key_digests), CompileRow.artifact_id.is_not(None)
        )
    )
    return {(row.namespace, row.key_digest) for row in rows}


async def key_of(session: AsyncSession, key_digest: str) -> GraphKey | None:
    """The key that a digest names, where somebody asked for it once."""
    text = await session.scalar(select(GraphKeyRow.key_json).where(GraphKeyRow.key_digest == key_digest))
    return None if text is None else GraphKey.model_validate_json(text)


async def keys_of(session: AsyncSession, key_digests: Sequence[str]) -> dict[str, GraphKey]:
    """Keys by digest."""
    rows = await session.execute(
        select(GraphKeyRow.key_digest, GraphKeyRow.key_json).where(GraphKeyRow.key_digest.in_(key_digests))
    )
    return {row.key_digest: GraphKey.model_validate_json(row.key_json) for row in rows}


async def expired_leases(session: AsyncSession, now: float, limit: int) -> list[CompileRow]:
    """Leases that ran out; rows that somebody else works on are skipped."""
    rows = await session.scalars(
        select(CompileRow)
        .where(CompileRow.state == "leased", CompileRow.lease_expires_at <= now)
        .order_by(CompileRow.lease_expires_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .execution_options(populate_existing=True)
    )
    return list(rows)
