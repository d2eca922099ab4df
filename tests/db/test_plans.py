"""What maintenance, the sweeper and statistics ask goes by index, however much is stored."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.dialects import postgresql, sqlite

from graphcache_service.db import attempts, blobs, sweeps, tallies
from graphcache_service.db.engine import Database, parse_database_url
from graphcache_service.db.tallies import Filter

SINCE = Filter(("default",), 60, ("toolchain", "bucket"))
ASKED: dict[str, tuple[Any, set[str]]] = {
    "search for orphans": (blobs.unnamed_statement("a", 1.0, 10), {"blobs", "artifacts"}),
    "old attempts": (attempts.old_statement(1.0, 10), {"attempts", "artifacts"}),
    "ended back-offs": (sweeps.startable_statement(1.0, 0.0), {"ix_compiles_backoff"}),
    "statistics since a time": (tallies.sums_statement(SINCE), {"periods", "tallies"}),
}
"""A statement, and the tables or indexes that its plan must search and not scan."""
READ_AS_A_WHOLE = ("journal",)
"""The journal is emptied every few seconds."""


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = Database(parse_database_url(database_url))
    yield opened
    await opened.close()


async def plan_of(database: Database, statement: Any) -> list[str]:
    async with database.write() as session:
        if database.dialect == "sqlite":
            # With its parameters bound, as it is asked: this planner sees less then than with the values in the text.
            dialect, how = sqlite.dialect(paramstyle="named"), {"render_postcompile": True}
            explain = "EXPLAIN QUERY PLAN "
        else:
            # An empty table is scanned whatever its indexes; what counts is what it does when it is full.
            await session.execute(text("SET LOCAL enable_seqscan = off"))
            dialect, how, explain = postgresql.dialect(paramstyle="named"), {"literal_binds": True}, "EXPLAIN "
        asked = statement.compile(dialect=dialect, compile_kwargs=how)
        return [str(row[-1]).strip() for row in await session.execute(text(explain + str(asked)), asked.params)]


@pytest.mark.parametrize("question", ASKED)
async def test_what_is_asked_in_rounds_goes_by_index(database: Database, question: str) -> None:
    statement, searched = ASKED[question]
    plan = await plan_of(database, statement)
    scanned = [step for step in plan if step.startswith("SCAN") or "Seq Scan" in step]
    allowed = (*READ_AS_A_WHOLE, "(subquery", "anon_", "subquery")
    assert [step for step in scanned if not any(name in step for name in allowed)] == [], plan
    assert all(any(name in step for step in plan) for name in searched), plan
