"""From settings to services that run, and back. Without HTTP: the commands of administrators use it too."""

from contextlib import suppress

import structlog

from graphcache_service.blobs.store import open_blob_store
from graphcache_service.core.errors import ServiceError
from graphcache_service.core.flush import flush
from graphcache_service.core.fsck import check_newest
from graphcache_service.core.history import History
from graphcache_service.core.services import Services
from graphcache_service.core.sweeper import extend_leases_by_outage
from graphcache_service.core.tokens import TokenCache, tokens_exist
from graphcache_service.core.usage import Usage
from graphcache_service.core.waiters import Waiters
from graphcache_service.db.engine import Database, parse_database_url
from graphcache_service.db.migrate import migrate
from graphcache_service.settings import Settings, SettingsError

log = structlog.get_logger()


def open_services(settings: Settings) -> Services:
    """Everything that requests share. Makes the folders; connects to nothing yet.

    Raises:
        SettingsError, BlobStoreUnavailable: the blob store cannot be what the settings say.
    """
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = Database(parse_database_url(settings.database()), pool_size=settings.database_pool_size)
    return Services(
        settings=settings,
        database=database,
        blobs=open_blob_store(settings),
        waiters=Waiters(settings.max_held_requests),
        usage=Usage(),
        tokens=TokenCache(database, required=settings.needs_tokens()),
        history=History(database),
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
        log.warning(
            "mended_at_start",
            lost=len(findings.rows_without_bytes),
            wrong=len(findings.wrong_bytes),
            records=len(findings.records_missing),
        )


async def close_services(services: Services) -> None:
    """Write what was counted, and let go of database and store."""
    with suppress(ServiceError):  # Counters of the last second are not worth a failed stop.
        await flush(services)
    await services.blobs.close()
    await services.database.close()
