"""POST /v1/usage: hits that clients served from their own memory and disk."""

from fastapi import APIRouter, Response

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.core import flush as core
from graphcache_wire import UsageRequest, routes
from graphcache_wire.stats import UsageResponse

router = APIRouter()


@router.post(routes.USAGE, response_model=UsageResponse, tags=["statistics"])
async def usage(request: UsageRequest, services: TheServices, caller: TheCaller) -> Response:
    """Counts a batch once, however often it is sent."""
    return answer(await core.record_usage(services, caller, request))
