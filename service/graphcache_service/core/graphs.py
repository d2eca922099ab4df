"""Listing graphs, and telling all about one."""

import re
from typing import cast

from graphcache_service.core.callers import Caller
from graphcache_service.core.errors import InvalidRequest, NotFound
from graphcache_service.core.failures import as_failure
from graphcache_service.core.outcomes import as_artifact, as_attempt, at
from graphcache_service.core.services import Services
from graphcache_service.db import attempts, compiles, manifests
from graphcache_service.db import graphs as rows
from graphcache_service.db.graphs import GraphFilter as GraphFilter
from graphcache_service.db.graphs import GraphRow
from graphcache_service.db.models import ArtifactRow, CompileRow
from graphcache_wire import GraphKey
from graphcache_wire.graphs import CompileState, GraphDetail, GraphPage, GraphSummary

ATTEMPTS_SHOWN = 50


def _parse_cursor(cursor: str | None) -> tuple[str, str] | None:
    if cursor is None:
        return None
    match = re.fullmatch(r"([0-9a-f]{64})\.(.{1,128})", cursor)
    if match is None:
        raise InvalidRequest("not a cursor of an earlier page", field="cursor", hint="take next_cursor as it came")
    return match[1], match[2]


def _summary(key: GraphKey, row: CompileRow, artifact: ArtifactRow | None) -> GraphSummary:
    return GraphSummary(
        key_digest=row.key_digest,
        key=key,
        namespace=row.namespace,
        state=cast(CompileState, row.state),
        artifact=None if artifact is None else as_artifact(artifact),
        hits=row.hits,
        created_at=at(row.created_at),
        last_used_at=None if row.last_used_at is None else at(row.last_used_at),
    )


def _page(found: list[GraphRow], limit: int) -> GraphPage:
    shown = found[:limit]
    last = shown[-1][0] if len(found) > limit else None
    return GraphPage(
        graphs=[_summary(GraphKey.model_validate_json(key.key_json), row, artifact) for row, key, artifact in shown],
        next_cursor=None if last is None else f"{last.key_digest}.{last.namespace}",
    )


async def list_graphs(
    services: Services, caller: Caller, which: GraphFilter, cursor: str | None, limit: int
) -> GraphPage:
    """A page of at most ``limit`` graphs.

    Raises:
        InvalidRequest: a cursor that no page gave, or a limit over the settings' ``max_page_rows``.
    """
    caller.require("read")
    most = services.settings.max_page_rows
    if limit > most:
        raise InvalidRequest(f"a page has at most {most} rows, not {limit}", field="limit", hint="follow next_cursor")
    after = _parse_cursor(cursor)
    async with services.database.scan() as session:
        return _page(list(await rows.graphs(session, which, after, limit + 1)), limit)


async def graph(services: Services, caller: Caller, key_digest: str) -> GraphDetail:
    """All about one graph, with its attempts.

    Raises:
        NotFound: nobody asked for it in a namespace that the caller may read.
    """
    caller.require("read")
    async with services.database.read() as session:
        found = (await compiles.standings(session, caller.readable(), [key_digest])).get(key_digest)
        key = await compiles.key_of(session, key_digest)
        if found is None or key is None:
            raise NotFound(f"no graph with key {key_digest}", field="key_digest", hint="ask /v1/graphs/explain")
        row = found.compile
        tried = await attempts.attempts_of(session, row.namespace, key_digest, ATTEMPTS_SHOWN)
        return GraphDetail(
            **dict(_summary(key, row, found.artifact)),
            failure=as_failure(row) if row.state == "failed" else None,
            attempts=[as_attempt(one) for one in tried],
            pinned_by=await manifests.pinned_by(session, row.namespace, key_digest),
            quarantined=await rows.quarantined_count(session, row.namespace, key_digest),
        )
