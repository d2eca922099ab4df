"""POST /v1/leases/{compile_id}/heartbeat: still compiling."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.core import leases as core
from graphcache_wire import HeartbeatRequest, HeartbeatResponse, routes

router = APIRouter()

CompileId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$", description="The lease's compile_id.")]


@router.post(routes.HEARTBEAT, response_model=HeartbeatResponse, tags=["leases"])
async def heartbeat(
    compile_id: CompileId, request: HeartbeatRequest, services: TheServices, caller: TheCaller
) -> Response:
    """Renews the lease; 409 tells a late holder to stop."""
    return answer(await core.heartbeat(services, caller, compile_id, request))
