"""The application: settings in, an ASGI application out.

Application -> BlobRoute (bytes, bare)
            -> Edge (id, limits, log) -> ShortWay (resolve, bare)
                                      -> FastAPI's endpoints (JSON)
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from graphcache_service import background
from graphcache_service.api import (
    claim,
    complete,
    errors,
    evictions,
    explain,
    fail,
    graphs,
    health,
    heartbeat,
    manifests,
    metrics,
    page,
    promote,
    quarantine,
    release,
    report,
    resolve,
    resolve_many,
    stats,
    usage,
)
from graphcache_service.api.blobs import BlobRoute
from graphcache_service.api.edge import Edge
from graphcache_service.core.downloads import Downloads
from graphcache_service.core.lost import drop_lost_blob
from graphcache_service.core.uploads import Uploads
from graphcache_service.lifecycle import check_newest_rows, close_services, open_services, start_services
from graphcache_service.settings import Settings
from graphcache_service.version import VERSION
from graphcache_wire import ErrorBody

ENDPOINTS = (
    resolve,
    resolve_many,
    graphs,
    explain,
    report,
    promote,
    quarantine,
    claim,
    heartbeat,
    complete,
    fail,
    release,
    manifests,
    evictions,
    usage,
    stats,
    health,
    metrics,
    page,
)
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody} for status in (400, 401, 403, 404, 405, 409, 413, 422, 500, 503, 507)
}


class Application(FastAPI):
    """FastAPI, but blobs do not pass through its layers: those cost more than a small blob itself."""

    blobs: BlobRoute

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(BlobRoute.PREFIX):
            await self.blobs(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(settings: Settings) -> Application:
    """The service as an ASGI application; ``app.state.services`` holds what its requests share."""
    services = open_services(settings)
    uploads = Uploads(services)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await start_services(services)
        tasks = [*background.start(services), asyncio.create_task(check_newest_rows(services), name="check")]
        yield
        services.waiters.close()
        await background.stop(tasks)
        await uploads.close()
        await close_services(services)

    app = Application(title="graphcache", version=VERSION, lifespan=lifespan, responses=ERRORS)
    app.state.services = services
    for endpoint in ENDPOINTS:
        app.include_router(endpoint.router)
    errors.install(app)
    app.add_middleware(resolve.ShortWay, services=services)
    app.add_middleware(Edge, settings=settings)
    app.blobs = BlobRoute(services, Downloads(services, drop_lost_blob), uploads)
    return app
