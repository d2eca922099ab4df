"""What runs beside the requests: the listener, the sweeper, maintenance, the counters. One task each."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from graphcache_service.core import maintenance
from graphcache_service.core.errors import ServiceError
from graphcache_service.core.flush import flush
from graphcache_service.core.services import Services
from graphcache_service.core.sweeper import Sweeper
from graphcache_service.db.listen import listen

log = structlog.get_logger()


async def every(interval_s: float, name: str, round_: Callable[[], Awaitable[None]]) -> None:
    """Run ``round_`` again and again. A round that fails is logged, and the next one tries again."""
    while True:
        await asyncio.sleep(interval_s)
        try:
            await round_()
        except ServiceError as error:
            log.warning("round_failed", round=name, error=error.message)
        except Exception:
            # Nobody else restarts this task: without it leases would never expire.
            log.exception("round_failed", round=name)


def start(services: Services) -> list[asyncio.Task[None]]:
    """Start all of it."""
    settings, waiters = services.settings, services.waiters
    sweeper = Sweeper(services)
    works = {
        "listen": listen(services.database, services.process_id, waiters.wake, lambda: waiters.held > 0),
        "sweep": every(settings.sweep_interval_s, "sweep", sweeper.sweep),
        "maintain": every(maintenance.EVERY_S, "maintain", maintenance.Maintenance(services).round),
        "fold": every(maintenance.FOLD_EVERY_S, "fold", lambda: maintenance.fold_journal(services)),
        "flush": every(settings.usage_flush_s, "flush", lambda: flush(services)),
    }
    return [asyncio.create_task(work, name=name) for name, work in works.items()]


async def stop(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel all of it and wait for the end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
