"""GET /v1/graphs/{key_digest}/explain and POST /v1/graphs/explain: why does this key miss."""

from fastapi import APIRouter, Response

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.api.graphs import KeyDigest
from graphcache_service.core import explain as core
from graphcache_wire import routes
from graphcache_wire.graphs import ExplainRequest, Explanation

router = APIRouter()


@router.get(routes.GRAPH_EXPLAIN, response_model=Explanation, tags=["graphs"])
async def explain_digest(key_digest: KeyDigest, services: TheServices, caller: TheCaller) -> Response:
    """For a key that somebody asked for once."""
    return answer(await core.explain_digest(services, caller, key_digest))


@router.post(routes.EXPLAIN, response_model=Explanation, tags=["graphs"])
async def explain(request: ExplainRequest, services: TheServices, caller: TheCaller) -> Response:
    """For any key: the nearest stored keys and what differs, fewest differences first."""
    return answer(await core.explain(services, caller, request.key))
