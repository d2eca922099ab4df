"""POST /v1/graphs/quarantine: everything that one producer published since a time is suspect."""

from fastapi import APIRouter, Response

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.core import reports as core
from graphcache_wire import routes
from graphcache_wire.admin import QuarantineRequest, QuarantineResponse

router = APIRouter()


@router.post(routes.QUARANTINE, response_model=QuarantineResponse, tags=["administration"])
async def quarantine(request: QuarantineRequest, services: TheServices, caller: TheCaller) -> Response:
    """Takes it out of service in all namespaces, to be compiled anew. Safe to repeat. Scope admin."""
    count = await core.quarantine_producer(services, caller, request.producer, request.since.timestamp())
    return answer(QuarantineResponse(quarantined=count))
