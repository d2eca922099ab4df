"""What every endpoint is given: the services of this process, and the caller of this request."""

from typing import Annotated, cast

from fastapi import Depends, Request, Response

from graphcache_service.core.callers import Caller
from graphcache_service.core.services import Services
from graphcache_wire.base import WireModel


async def _services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


async def _caller(request: Request) -> Caller:
    services = cast(Services, request.app.state.services)
    return await services.tokens.caller(request.headers.get("Authorization"))


TheServices = Annotated[Services, Depends(_services)]
TheCaller = Annotated[Caller, Depends(_caller)]


def answer(model: WireModel, status: int = 200) -> Response:
    """A message as JSON. It was checked when it was made, so the framework need not check it again."""
    return Response(model.model_dump_json(), status, media_type="application/json")
