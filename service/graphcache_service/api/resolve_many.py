"""POST /v1/graphs/resolve-many: many keys in one round trip."""

from fastapi import APIRouter, Response

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.core import resolve_many as core
from graphcache_wire import ResolveManyRequest, ResolveManyResponse, routes

router = APIRouter()


@router.post(routes.RESOLVE_MANY, response_model=ResolveManyResponse, tags=["graphs"])
async def resolve_many(request: ResolveManyRequest, services: TheServices, caller: TheCaller) -> Response:
    """One outcome a key; never waits, never grants."""
    return answer(await core.resolve_many(services, caller, request))
