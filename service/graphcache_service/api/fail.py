"""POST /v1/leases/{compile_id}/fail: the compile gave no graph."""

from fastapi import APIRouter, Response

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.api.heartbeat import CompileId
from graphcache_service.core import fail as core
from graphcache_wire import FailRequest, FailResponse, routes

router = APIRouter()


@router.post(routes.FAIL, response_model=FailResponse, tags=["leases"])
async def fail(compile_id: CompileId, request: FailRequest, services: TheServices, caller: TheCaller) -> Response:
    """Ends the lease; the answer says whether the compile is tried again."""
    return answer(await core.fail(services, caller, compile_id, request))
