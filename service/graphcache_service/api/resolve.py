"""POST /v1/graphs/resolve: may I have this graph.

Every rank asks this for every graph, so it does not pass through the framework's layers, which cost several times the
look-up: ``ShortWay`` answers what is plainly a resolve. What does not parse goes on to the framework's route below,
which says what is wrong with it as it does for every endpoint, and declares it all in the OpenAPI.
"""

from collections.abc import Iterator
from typing import Final

from fastapi import APIRouter, Response
from pydantic import ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.api.errors import logged_answer
from graphcache_service.core import resolve as core
from graphcache_service.core.callers import Caller
from graphcache_service.core.errors import ServiceError
from graphcache_service.core.services import Services
from graphcache_wire import Outcome, ResolveRequest, routes

router = APIRouter()

JSON: Final = (b"content-type", b"application/json")


@router.post(routes.RESOLVE, response_model=Outcome, tags=["graphs"])
async def resolve(request: ResolveRequest, services: TheServices, caller: TheCaller) -> Response:
    """Ready, granted, pending or failed; held up to ``wait_s`` while it is pending."""
    return answer(await core.resolve(services, caller, request))


class ShortWay:
    """A bare ASGI middleware behind the edge, whose limit, id and last resort hold here too."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != routes.RESOLVE or not _is_plain(scope):
            await self._app(scope, receive, send)
            return
        messages = await _whole_body(receive)
        try:
            request = ResolveRequest.model_validate_json(b"".join(message.get("body", b"") for message in messages))
        except ValidationError:
            await self._app(scope, _again(messages, receive), send)
            return
        scope["route"] = router.routes[0]
        try:
            response = answer(await core.resolve(self._services, await self._caller(scope), request))
        except ServiceError as error:
            response = logged_answer(error, scope["graphcache.request_id"]).response()
        await response(scope, receive, send)

    async def _caller(self, scope: Scope) -> Caller:
        authorization = next((value for name, value in scope["headers"] if name == b"authorization"), None)
        return await self._services.tokens.caller(None if authorization is None else authorization.decode("latin-1"))


def _is_plain(scope: Scope) -> bool:
    return scope["method"] == "POST" and JSON in scope["headers"]


async def _whole_body(receive: Receive) -> list[Message]:
    """The messages of the body, or those up to the end of the connection."""
    messages = [await receive()]
    while messages[-1].get("more_body", False):
        messages.append(await receive())
    return messages


def _again(messages: list[Message], receive: Receive) -> Receive:
    """Receives what was received once more, and then what follows."""
    left: Iterator[Message] = iter(messages)

    async def receive_again() -> Message:
        message = next(left, None)
        return message if message is not None else await receive()

    return receive_again
