"""GET and POST /v1/evictions: what would go for the quota, and let it go now."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.core import eviction as core
from graphcache_wire import routes
from graphcache_wire.admin import EvictionPlan, EvictRequest, EvictResponse

router = APIRouter()


@router.get(routes.EVICTIONS, response_model=EvictionPlan, tags=["administration"])
async def plan(
    services: TheServices, caller: TheCaller, room_bytes: Annotated[int, Query(ge=0, le=2**62)] = 0
) -> Response:
    """What would be evicted to make room for so many bytes more; nothing goes. Scope admin."""
    victims = await core.what_would_go(services, caller, room_bytes)
    return answer(core.as_plan(victims, services.settings.max_page_rows))


@router.post(routes.EVICTIONS, response_model=EvictResponse, tags=["administration"])
async def evict(request: EvictRequest, services: TheServices, caller: TheCaller) -> Response:
    """Evicts it now: never what is pinned, leased or was used in the last minutes. Scope admin."""
    gone = await core.evict_now(services, caller, request.room_bytes)
    return answer(EvictResponse(blobs=len(gone), size_bytes=sum(one.size_bytes for one in gone)))
