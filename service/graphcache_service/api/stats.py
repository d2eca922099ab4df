"""GET /v1/stats: hits, misses, waits, compiles, bytes."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.core import stats as core
from graphcache_wire import Stats, routes
from graphcache_wire.stats import GroupBy

router = APIRouter()


@router.get(routes.STATS, response_model=Stats, tags=["statistics"])
async def stats(
    services: TheServices,
    caller: TheCaller,
    since: Annotated[AwareDatetime | None, Query(description="ISO 8601 with a time zone.")] = None,
    group_by: GroupBy | None = None,
) -> Response:
    """Counters of the namespaces that the caller may read, grouped by toolchain, kind or bucket."""
    return answer(await core.stats(services, caller, since, group_by))
