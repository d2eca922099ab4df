"""POST /v1/leases/{compile_id}/release: the holder stops, somebody else shall go on."""

from fastapi import APIRouter, Response

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.api.heartbeat import CompileId
from graphcache_service.core import fail as core
from graphcache_wire import FailResponse, ReleaseRequest, routes

router = APIRouter()


@router.post(routes.RELEASE, response_model=FailResponse, tags=["leases"])
async def release(compile_id: CompileId, request: ReleaseRequest, services: TheServices, caller: TheCaller) -> Response:
    """Gives the lease back; this does not count against the limit of attempts."""
    return answer(await core.release(services, caller, compile_id, request))
