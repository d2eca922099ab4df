"""The database itself keeps the state machine, whatever the code above it does."""

import secrets
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.exc import IntegrityError

from graphcache_service.db import compiles
from graphcache_service.db.compiles import Wish
from graphcache_service.db.engine import Database, parse_database_url
from graphcache_service.db.models import CompileRow
from graphcache_wire import GraphKey, Kind

KEY = GraphKey(kind=Kind.EXPERTS_FORWARD, e_hot=4, h=64, f=32, bucket=8, toolchain="stub-1.0")
QUEUED: dict[str, Any] = {
    "namespace": "default",
    "key_digest": KEY.digest,
    "toolchain": KEY.toolchain,
    "needs_weights": False,
    "state": "queued",
    "generation": 0,
    "priority": 0,
    "attempts": 0,
    "created_at": 1.0,
    "queued_at": 1.0,
    "retry_alone": False,
}
IMPOSSIBLE: list[dict[str, Any]] = [
    {"state": "leased"},
    {"state": "leased", "owner": "a" * 32, "holder": "n"},
    {"owner": "a" * 32, "holder": "n", "lease_expires_at": 2.0},
    {"state": "ready"},
    {"state": "failed"},
    {"failure_class": "rejected"},
    {"state": "lost"},
    {"generation": -1},
    {"progress": 1.5},
]


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = Database(parse_database_url(database_url))
    async with opened.write() as session:
        await compiles.remember_keys(session, [KEY])
    yield opened
    await opened.close()


@pytest.mark.parametrize("change", IMPOSSIBLE, ids=str)
async def test_impossible_state_is_refused(database: Database, change: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError):
        async with database.write() as session:
            await session.execute(insert(CompileRow).values(QUEUED | {"id": secrets.token_hex(16)} | change))


async def test_one_key_has_one_row_a_namespace(database: Database) -> None:
    for namespace in ("default", "other", "default"):
        async with database.write() as session:
            await compiles.queue(session, [Wish(namespace, KEY, 0)], now=1.0)
    async with database.read() as session:
        assert sorted(await session.scalars(select(CompileRow.namespace))) == ["default", "other"]


async def test_change_decided_on_an_older_generation_does_nothing(database: Database) -> None:
    async with database.write() as session:
        await compiles.queue(session, [Wish("default", KEY, 0)], now=1.0)
    async with database.read() as session:
        stale = await compiles.lock_key(session, "default", KEY.digest)
    assert stale is not None
    lease = {"state": "leased", "owner": "a" * 32, "holder": "n", "lease_expires_at": 2.0, "generation": 1}
    async with database.write() as session:
        assert await compiles.move(session, stale, **lease) is not None
    stale.state, stale.generation = "queued", 0
    async with database.write() as session:
        assert await compiles.move(session, stale, **lease) is None


async def test_failed_transaction_leaves_nothing(database: Database) -> None:
    async def queue_and_fail() -> None:
        async with database.write() as session:
            await compiles.queue(session, [Wish("default", KEY, 0)], now=1.0)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await queue_and_fail()
    async with database.read() as session:
        assert await session.scalar(select(CompileRow.id)) is None


async def test_transaction_that_cannot_be_committed_leaves_the_next_one_free(database: Database) -> None:
    async def compile_what_no_row_names() -> None:
        async with database.write_plain() as ask:
            if database.dialect == "sqlite":  # then it is the COMMIT that fails
                await ask(text("PRAGMA defer_foreign_keys = ON"), {})
            await ask(insert(CompileRow).values(QUEUED | {"id": secrets.token_hex(16), "key_digest": "0" * 64}), {})

    for _ in range(2):
        with pytest.raises((IntegrityError, sqlite3.IntegrityError)):
            await compile_what_no_row_names()
    async with database.write_plain() as ask:
        assert await ask(select(CompileRow.id), {}) == []


PLANS = {
    "standing": "SELECT * FROM compiles WHERE namespace IN ('default') AND key_digest IN ('x')",
    "totals": "SELECT blobs, blob_bytes FROM totals",
    "blob": "SELECT * FROM blobs WHERE digest = 'x'",
    "readers": "SELECT 1 FROM artifacts WHERE blob = 'x' AND namespace IN ('default') AND state = 'standing'",
    "claim": "SELECT * FROM compiles WHERE state = 'queued' AND toolchain IN ('x') AND namespace = 'default'",
    "expiry": "SELECT * FROM compiles WHERE state = 'leased' AND lease_expires_at <= 1",
}


@pytest.mark.parametrize("query", PLANS)
async def test_put_and_resolve_go_by_index(database: Database, query: str) -> None:
    if database.dialect == "postgresql":
        explain = text(f"EXPLAIN {PLANS[query]}")
        async with database.write() as session:
            # An empty table is scanned whatever its indexes; what counts is what it does when it is full.
            await session.execute(text("SET LOCAL enable_seqscan = off"))
            plan = "\n".join(await session.scalars(explain))
        assert "Index" in plan or "on totals" in plan, plan
        return
    async with database.read() as session:
        plan = "\n".join(row[3] for row in await session.execute(text(f"EXPLAIN QUERY PLAN {PLANS[query]}")))
    assert "USING" in plan or plan == "SCAN totals", plan
