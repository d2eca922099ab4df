"""Health: alive, and able to serve."""

import asyncio
from typing import Final

from graphcache_service.core.errors import ServiceError
from graphcache_service.core.services import Services
from graphcache_service.db import clock
from graphcache_service.version import VERSION
from graphcache_wire.stats import Health

CHECK_S: Final = 3.0
"""A part that does not answer within this is not there."""


async def _database(services: Services) -> str:
    async with services.database.read() as session:
        await clock.now(session)
    return "ok"


async def _blobs(services: Services) -> str:
    await services.blobs.check()
    return "ok"


async def readiness(services: Services) -> Health:
    """Whether database and blob store answer and the service is not stopping."""
    checks: dict[str, str] = {}
    for name, check in (("database", _database), ("blobs", _blobs)):
        try:
            checks[name] = await asyncio.wait_for(check(services), CHECK_S)
        except TimeoutError:
            checks[name] = f"no answer within {CHECK_S:.0f} s"
        except ServiceError as error:
            checks[name] = error.message
    if services.waiters.closed:
        checks["service"] = "stopping"
    good = all(text == "ok" for text in checks.values())
    return Health(status="ok" if good else "unavailable", checks=checks, version=VERSION)
