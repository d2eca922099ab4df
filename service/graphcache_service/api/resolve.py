"""POST /v1/graphs/resolve: may I have this graph."""

from fastapi import APIRouter, Response

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.core import resolve as core
from graphcache_wire import Outcome, ResolveRequest, routes

router = APIRouter()


@router.post(routes.RESOLVE, response_model=Outcome, tags=["graphs"])
async def resolve(request: ResolveRequest, services: TheServices, caller: TheCaller) -> Response:
    """Ready, granted, pending or failed; held up to ``wait_s`` while it is pending."""
    return answer(await core.resolve(services, caller, request))
