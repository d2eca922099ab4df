"""GET /v1/graphs and /v1/graphs/{key_digest}: what is stored, and all about one."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.core import graphs as core
from graphcache_wire import Kind, routes
from graphcache_wire.base import SHA256_PATTERN
from graphcache_wire.graphs import CompileState, GraphDetail, GraphPage

router = APIRouter()

KeyDigest = Annotated[str, Path(pattern=SHA256_PATTERN, description="The key's sha256, 64 lower-case hex digits.")]
Size = Annotated[int | None, Query(ge=1, le=2**31 - 1)]


@router.get(routes.GRAPHS, response_model=GraphPage, tags=["graphs"])
async def list_graphs(
    services: TheServices,
    caller: TheCaller,
    kind: Kind | None = None,
    toolchain: Annotated[str | None, Query(max_length=160)] = None,
    state: CompileState | None = None,
    e_hot: Size = None,
    h: Size = None,
    f: Size = None,
    bucket: Size = None,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
) -> Response:
    """A page of graphs by digest; ``next_cursor`` leads to the next."""
    which = core.GraphFilter(
        namespaces=caller.readable(), kind=kind, toolchain=toolchain, state=state, e_hot=e_hot, h=h, f=f, bucket=bucket
    )
    return answer(await core.list_graphs(services, caller, which, cursor, limit))


@router.get(routes.GRAPH, response_model=GraphDetail, tags=["graphs"])
async def graph(key_digest: KeyDigest, services: TheServices, caller: TheCaller) -> Response:
    """One graph with its artifact or failure, and its attempts."""
    return answer(await core.graph(services, caller, key_digest))
