"""POST /v1/graphs/{key_digest}/report: a client could not use a graph."""

from fastapi import APIRouter, Response

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.api.graphs import KeyDigest
from graphcache_service.core import reports as core
from graphcache_wire import routes
from graphcache_wire.graphs import ReportRequest, ReportResponse

router = APIRouter()


@router.post(routes.GRAPH_REPORT, response_model=ReportResponse, tags=["graphs"])
async def report(key_digest: KeyDigest, request: ReportRequest, services: TheServices, caller: TheCaller) -> Response:
    """Reads the bytes again; bad ones are quarantined at once, unusable ones after two reports."""
    return answer(await core.report(services, caller, key_digest, request))
