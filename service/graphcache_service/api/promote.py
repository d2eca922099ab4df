"""POST /v1/graphs/{key_digest}/promote: another namespace may have a graph."""

from fastapi import APIRouter, Response

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.api.graphs import KeyDigest
from graphcache_service.core import promote as core
from graphcache_wire import routes
from graphcache_wire.admin import PromoteRequest, PromoteResponse

router = APIRouter()


@router.post(routes.PROMOTE, response_model=PromoteResponse, tags=["administration"])
async def promote(key_digest: KeyDigest, request: PromoteRequest, services: TheServices, caller: TheCaller) -> Response:
    """The graph of one namespace, with its producer and signature, for another. Safe to repeat. Scope admin."""
    done = await core.promote(services, caller, key_digest, request.source, request.target)
    return answer(PromoteResponse(promoted=done))
