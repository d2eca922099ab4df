"""POST /v1/leases/{compile_id}/complete: the bytes are uploaded, publish them."""

from fastapi import APIRouter, Response

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.api.heartbeat import CompileId
from graphcache_service.core import publish as core
from graphcache_wire import CompleteRequest, CompleteResponse, routes

router = APIRouter()


@router.post(routes.COMPLETE, response_model=CompleteResponse, tags=["leases"])
async def complete(
    compile_id: CompileId, request: CompleteRequest, services: TheServices, caller: TheCaller
) -> Response:
    """Makes the key lead to the blob, and wakes who waits for it."""
    return answer(await core.complete(services, caller, compile_id, request))
