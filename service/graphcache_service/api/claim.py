"""POST /v1/leases/claim: a worker asks for something to compile."""

import asyncio

from fastapi import APIRouter, Request, Response

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.core import claim as core
from graphcache_wire import ClaimRequest, ClaimResponse, routes

router = APIRouter()


@router.post(routes.CLAIM, response_model=ClaimResponse, tags=["leases"])
async def claim(request: ClaimRequest, connection: Request, services: TheServices, caller: TheCaller) -> Response:
    """The most urgent compile among the worker's toolchains; held up to ``wait_s`` until there is one."""
    gone = asyncio.ensure_future(_gone(connection))
    try:
        return answer(await core.claim(services, caller, request, gone))
    finally:
        gone.cancel()


async def _gone(connection: Request) -> None:
    """Returns when whoever asked has closed the connection."""
    while (await connection.receive())["type"] != "http.disconnect":
        pass
