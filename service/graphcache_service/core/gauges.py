"""Gauges of the whole service, read from the database when somebody looks."""

from graphcache_service import metrics
from graphcache_service.core.services import Services
from graphcache_service.db import blobs, tallies
from graphcache_service.db import stats as rows


async def read_gauges(services: Services) -> None:
    """Bring the gauges up to date. Queued compiles by toolchain are what to scale workers on.

    Raises:
        DatabaseUnavailable: nobody can say.
    """
    async with services.database.scan() as session:
        compiles = await tallies.compiles_by_toolchain(session)
        count, size_bytes = await blobs.stored(session)
        reserved_bytes = await rows.reserved_bytes(session)
    metrics.COMPILES.clear()
    for toolchain, state, number in compiles:
        metrics.COMPILES.labels(toolchain=toolchain, state=state).set(number)
    metrics.BLOBS.set(count)
    metrics.BLOB_BYTES.set(size_bytes)
    metrics.RESERVED_BYTES.set(reserved_bytes)
    metrics.HELD.set(services.waiters.held)
