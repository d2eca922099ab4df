"""POST /v1/manifests, GET and DELETE /v1/manifests/{manifest_id}, and its events."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Path, Response
from fastapi.responses import StreamingResponse

from graphcache_service.api.asking import TheCaller, TheServices, answer
from graphcache_service.core import manifests as core
from graphcache_wire import ManifestRequest, ManifestStatus, routes

router = APIRouter()

ManifestId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$", description="The manifest's id.")]


@router.post(routes.MANIFESTS, response_model=ManifestStatus, tags=["manifests"])
async def create(request: ManifestRequest, services: TheServices, caller: TheCaller) -> Response:
    """Queues what is not stored, pins the rest. Safe to repeat: the same name and keys give the same manifest."""
    return answer(await core.create(services, caller, request))


@router.get(routes.MANIFEST, response_model=ManifestStatus, tags=["manifests"])
async def status(manifest_id: ManifestId, services: TheServices, caller: TheCaller) -> Response:
    """How each key of a manifest stands."""
    return answer(await core.status(services, caller, manifest_id))


@router.delete(routes.MANIFEST, status_code=204, response_class=Response, tags=["manifests"])
async def delete(manifest_id: ManifestId, services: TheServices, caller: TheCaller) -> Response:
    """Removes a manifest and its pins; its graphs stay until they are evicted."""
    await core.delete(services, caller, manifest_id)
    return Response(status_code=204)


@router.get(
    routes.MANIFEST_EVENTS,
    response_class=StreamingResponse,
    tags=["manifests"],
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(manifest_id: ManifestId, services: TheServices, caller: TheCaller) -> StreamingResponse:
    """Server-sent events named ``status``, one a change, until the manifest is done; a comment where all is quiet."""
    found = core.events(services, caller, manifest_id)
    # The first status is taken here, so that an unknown manifest is a 404 and not an empty stream.
    first = await anext(found)
    return StreamingResponse(
        _as_events(first, found), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


async def _as_events(
    first: ManifestStatus | None, following: AsyncIterator[ManifestStatus | None]
) -> AsyncIterator[str]:
    yield _as_event(first)
    async for status in following:
        yield _as_event(status)


def _as_event(status: ManifestStatus | None) -> str:
    """Nothing new is a comment, which clients pass over."""
    return ": nothing new\n\n" if status is None else f"event: status\ndata: {status.model_dump_json()}\n\n"
