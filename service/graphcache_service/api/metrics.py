"""GET /metrics: for Prometheus."""

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from graphcache_service.api.asking import TheServices
from graphcache_service.core import gauges as core
from graphcache_service.metrics import REGISTRY
from graphcache_wire import routes

router = APIRouter()


@router.get(
    routes.METRICS,
    response_class=Response,
    tags=["statistics"],
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request, services: TheServices) -> Response:
    """Counters and histograms of this process; gauges of the whole service."""
    if services.settings.metrics_need_token:
        await services.tokens.caller(request.headers.get("Authorization"))
    await core.read_gauges(services)
    return Response(generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})
