"""GET /healthz and /readyz: alive; able to serve."""

from fastapi import APIRouter, Response

from graphcache_service.api.asking import TheServices, answer
from graphcache_service.core import health as core
from graphcache_service.version import VERSION
from graphcache_wire import routes
from graphcache_wire.stats import Health

router = APIRouter()


@router.get(routes.HEALTHZ, response_model=Health, tags=["health"])
async def healthz() -> Response:
    """The process answers; nothing else is asked."""
    return answer(Health(status="ok", version=VERSION))


@router.get(routes.READYZ, response_model=Health, responses={503: {"model": Health}}, tags=["health"])
async def readyz(services: TheServices) -> Response:
    """Database and blob store answer; 503 where one does not, or where the service is stopping."""
    found = await core.readiness(services)
    return answer(found, 200 if found.status == "ok" else 503)
