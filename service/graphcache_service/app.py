"""The application: settings in, an ASGI application out.

    Application -> BlobRoute (bytes, bare)
                -> Edge (id, limits, log) -> FastAPI's endpoints (JSON)
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from graphcache_service import background
from graphcache_service.api import (
    claim,
    complete,
    errors,
    explain,
    fail,
    graphs,
    health,
    heartbeat,
    manifests,
    metrics,
    page,
    release,
    report,
    resolve,
    resolve_many,
    stats,
    usage,
)
from graphcache_service.api.blobs import BlobRoute
from graphcache_service.api.edge import Edge
from graphcache_service.blobs.store import open_blob_store
from graphcache_service.core.downloads import Downloads
from graphcache_service.core.errors import ServiceError
from graphcache_service.core.flush import flush
from graphcache_service.core.fsck import check_newest
from graphcache_service.core.history import History
from graphcache_service.core.lost import drop_lost_blob
from graphcache_service.core.services import Services
from graphcache_service.core.sweeper import extend_leases_by_outage
from graphcache_service.core.tokens import TokenCache, tokens_exist
from graphcache_service.core.uploads import Uploads
from graphcache_service.core.usage import Usage
from graphcache_service.core.waiters import Waiters
from graphcache_service.db.engine import Database, parse_database_url
from graphcache_service.db.migrate import migrate
from graphcache_service.settings import Settings, SettingsError
from graphcache_service.version import VERSION
from graphcache_wire import ErrorBody

log = structlog.get_logger()

ENDPOINTS = (
    resolve, resolve_many, graphs, explain, report, claim, heartbeat, complete, fail, release, manifests, usage, stats,
    health, metrics, page,
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


def open_services(settings: Settings) -> Services:
    """Everything that requests share. Makes the folders; connects to nothing yet.

    Raises:
        SettingsError, BlobStoreUnavailable: the blob store cannot be what the settings say.
    """
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = Database(parse_database_url(settings.database()), pool_size=settings.database_pool_size)
    return Services(
        settings=settings, database=database, blobs=open_blob_store(settings),
        waiters=Waiters(settings.max_held_requests), usage=Usage(),
        tokens=TokenCache(database, required=settings.needs_tokens()), history=History(database),
    )


async def start_services(services: Services) -> None:
    """Migrate, and give leases the time back that an outage took.

    Raises:
        DatabaseUnavailable: no start without a database.
    """
    await migrate(services.database)
    outage_s = await extend_leases_by_outage(services)
    if outage_s:
        log.info("leases_extended", outage_s=round(outage_s, 1))
    await refuse_unguarded(services)


async def refuse_unguarded(services: Services) -> None:
    """Do not listen beyond loopback while nobody could send a token, unless told to.

    Raises:
        SettingsError: there is no live token yet.
    """
    settings = services.settings
    if settings.listens_beyond_loopback() and settings.needs_tokens() and not await tokens_exist(services.database):
        raise SettingsError(
            f"refuses to listen on {settings.host} without tokens, since whoever reaches the port could make nodes run "
            "what they publish: make one with graphcache token create, listen on 127.0.0.1, or set allow_open"
        )


async def check_newest_rows(services: Services) -> None:
    """Mend what a crash left among the newest rows; the service serves meanwhile."""
    try:
        findings = await check_newest(services)
    except ServiceError as error:
        log.warning("check_at_start_failed", error=error.message)
        return
    if not findings.clean():
        log.warning("mended_at_start", lost=len(findings.rows_without_bytes), wrong=len(findings.wrong_bytes))


async def close_services(services: Services) -> None:
    """Write what was counted, and let go of database and store."""
    with suppress(ServiceError):  # Counters of the last second are not worth a failed stop.
        await flush(services)
    await services.blobs.close()
    await services.database.close()


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
    app.add_middleware(Edge, settings=settings)
    app.blobs = BlobRoute(services, Downloads(services, drop_lost_blob), uploads)
    return app
