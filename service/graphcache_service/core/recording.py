"""Recording: rows of blobs that the store holds whole. Uploads that end together share one transaction."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from graphcache_service.core import quota
from graphcache_service.core.errors import ServiceError
from graphcache_service.core.services import Services
from graphcache_service.core.upload_order import UploadOrder
from graphcache_service.db import blobs, uploads
from graphcache_service.db.plain import Ask

MAX_AT_ONCE: Final = 64
"""Uploads of one transaction, which holds the locks of their leases as long as it lasts."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """An upload whose bytes the store holds."""

    order: UploadOrder
    reservation: quota.Reservation | None
    recorded: asyncio.Future[None]


class Recorder:
    """What waits to be recorded by this process, and the one task that does it, while there is something to do."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._waiting: list[_Stored] = []
        self._task: asyncio.Task[None] | None = None

    async def record(self, order: UploadOrder, reservation: quota.Reservation | None) -> None:
        """Records a blob, if the lease is live still, and gives back what was reserved for it.

        Raises:
            NotFound, LeaseExpired: the lease is not live; nothing was recorded.
            DatabaseUnavailable: nobody can say; repeat it.
        """
        stored = _Stored(order, reservation, asyncio.get_running_loop().create_future())
        self._waiting.append(stored)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._record_waiting(), name="record")
        await stored.recorded

    async def _record_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_AT_ONCE], self._waiting[MAX_AT_ONCE:]
            try:
                await self._record(batch)
            except Exception as error:  # noqa: BLE001 - each upload raises it
                for stored in batch:
                    _answer(stored, error)

    async def _record(self, batch: Sequence[_Stored]) -> None:
        async with self._services.database.write_plain() as ask:
            refusals = await self._write(ask, batch)
        for stored, refusal in zip(batch, refusals, strict=True):
            _answer(stored, refusal)

    async def _write(self, ask: Ask, batch: Sequence[_Stored]) -> list[ServiceError | None]:
        """For each upload why its lease is not live; None where it is, and its blob recorded."""
        refusals: list[ServiceError | None] = []
        sizes: dict[str, int] = {}
        now = 0.0
        leased = {
            compile_id: await uploads.lock_leased(ask, compile_id)
            for compile_id in sorted({stored.order.compile_id for stored in batch})
        }
        for stored in batch:
            order, found = stored.order, leased[stored.order.compile_id]
            refusals.append(_refusal(order, found))
            if found and refusals[-1] is None:
                sizes[order.digest], now = order.size_bytes, found.now
            if stored.reservation is not None:
                await quota.release(ask, stored.reservation)
        await blobs.record_blobs(ask, self._services.database.dialect, sizes, now)
        return refusals


def _refusal(order: UploadOrder, found: uploads.Leased | None) -> ServiceError | None:
    try:
        order.check_lease(found.row if found else None, found.now if found else 0.0)
    except ServiceError as error:
        return error
    return None


def _answer(stored: _Stored, refusal: Exception | None) -> None:
    """An upload that was cancelled meanwhile is told nothing."""
    if stored.recorded.done():
        return
    if refusal is None:
        stored.recorded.set_result(None)
    else:
        stored.recorded.set_exception(refusal)
