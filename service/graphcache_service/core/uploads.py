"""Uploads: bytes come in under a live lease, and are a blob once all of them are there and have the digest announced."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from graphcache_wire.base import is_sha256

from graphcache_service.blobs.staging import StagedFile
from graphcache_service.core import leases, quota
from graphcache_service.core.callers import Caller
from graphcache_service.core.errors import Busy, InvalidRequest, LengthMismatch, ServiceError, TooLarge, UploadTooSlow
from graphcache_service.core.services import Services
from graphcache_service.db import blobs as blob_rows
from graphcache_service.settings import Settings

BATCH_BYTES: Final = 1 << 20
"""Hashed and written by one call in a thread, while the next batch arrives: an upload holds two of these."""
TURN_S: Final = 10.0
"""How long an upload waits for another one of the same bytes before it goes on by itself."""
UNFINISHED_KEPT_S: Final = 120.0
"""How long an upload in parts may pause between two of them."""


class UploadCut(LengthMismatch):
    """The connection ended before the body did."""

    def __init__(self) -> None:
        super().__init__("the connection ended before the announced length: nothing was stored")


@dataclass(frozen=True, slots=True)
class UploadOrder:
    """What a holder wants to store, and the lease it does so under."""

    caller: Caller
    digest: str
    size_bytes: int
    compile_id: str
    generation: int

    def check(self, settings: Settings) -> None:
        """Refuses what needs no look at the database.

        Raises:
            Forbidden, InvalidRequest, TooLarge.
        """
        self.caller.require("compile")
        if not is_sha256(self.digest):
            raise InvalidRequest("a blob is named by its sha256: 64 lower-case hexadecimal digits", field="digest")
        if self.size_bytes == 0:
            raise InvalidRequest("a compiled graph has at least one byte", field="Content-Length")
        if self.size_bytes > settings.max_blob_bytes:
            raise TooLarge(
                f"{self.size_bytes} bytes announced, the largest blob may have {settings.max_blob_bytes}",
                field="Content-Length",
                hint="raise max_blob_bytes of the service if such graphs are meant to be stored",
            )

    def deadline_s(self, settings: Settings) -> float:
        """Seconds that the body may take: a fixed time, and more for more bytes."""
        return settings.upload_grace_s + self.size_bytes / settings.upload_min_bytes_per_s

    def unfinished(self) -> tuple[str, int, str]:
        """Names the upload in parts that this order continues."""
        return self.compile_id, self.generation, self.digest


@dataclass(slots=True)
class _Incoming:
    """Bytes under way, and what was reserved for them."""

    staged: StagedFile
    reservation: quota.Reservation | None
    one_sender: asyncio.Lock = field(default_factory=asyncio.Lock)
    forgotten: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """Where an upload stands. ``stored``: it is a blob now. ``existing``: it had been one before."""

    received_bytes: int
    stored: bool = False
    existing: bool = False


class Uploads:
    """The writers' side of the blobs in this process."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._turns: dict[str, _Turn] = {}
        self._unfinished: dict[tuple[str, int, str], _Incoming] = {}
        self._endings: set[asyncio.Task[None]] = set()

    async def receive(self, order: UploadOrder, body: AsyncIterator[bytes]) -> Progress:
        """Stores a body in one go. Where the bytes are stored already, it is not read. Cut off, it leaves nothing.

        Safe to repeat, with the same answer.

        Raises:
            NotFound, LeaseExpired: the lease is not live, before or after the body; nothing was stored.
            QuotaExceeded, StoreFull: no room; asked before the body is read.
            LengthMismatch, DigestMismatch, UploadTooSlow: what came was not what was announced, or not in time.
        """
        order.check(self._services.settings)
        if await self._is_stored(order):
            return Progress(order.size_bytes, stored=True, existing=True)
        async with self._turn(order.digest) as waited:
            if waited and await self._is_stored(order):
                return Progress(order.size_bytes, stored=True, existing=True)
            incoming = await self._begin(order)
            try:
                await self._fill(incoming.staged, body, order)
                await self._publish(order, incoming)
            finally:
                await self._end(incoming)
        return Progress(order.size_bytes, stored=True)

    async def where(self, order: UploadOrder) -> Progress:
        """How far an upload in parts has come; raises as ``receive`` does."""
        order.check(self._services.settings)
        if await self._is_stored(order):
            return Progress(order.size_bytes, stored=True, existing=True)
        incoming = self._unfinished.get(order.unfinished())
        return Progress(incoming.staged.received_bytes if incoming is not None else 0)

    async def receive_part(self, order: UploadOrder, start: int, body: AsyncIterator[bytes]) -> Progress:
        """Appends a part that begins at ``start``; the last one makes the blob.

        A part that begins elsewhere than where the upload stands is not read: the progress tells where to go on. What
        arrived before a connection broke is kept for UNFINISHED_KEPT_S, in this process alone.

        Raises:
            Busy: another connection sends a part of it.
            As ``receive``.
        """
        standing = await self.where(order)
        if standing.stored or standing.received_bytes != start:
            return standing
        incoming = self._unfinished.get(order.unfinished())
        if incoming is None:
            incoming = self._unfinished[order.unfinished()] = await self._begin(order)
        if incoming.one_sender.locked():
            raise Busy("another connection sends a part of this upload", retry_after_s=1.0)
        async with incoming.one_sender:
            return await self._append_part(order, incoming, body)

    async def close(self) -> None:
        """Forgets what is unfinished."""
        for name in list(self._unfinished):
            self._forget(name)
        await asyncio.gather(*self._endings, return_exceptions=True)

    async def _append_part(self, order: UploadOrder, incoming: _Incoming, body: AsyncIterator[bytes]) -> Progress:
        self._keep_awhile(order, incoming)
        try:
            await self._fill(incoming.staged, body, order)
            if incoming.staged.received_bytes < order.size_bytes:
                self._keep_awhile(order, incoming)
                return Progress(incoming.staged.received_bytes)
            await self._publish(order, incoming)
        except (UploadCut, UploadTooSlow):
            self._keep_awhile(order, incoming)
            raise
        except BaseException:
            self._forget(order.unfinished())
            raise
        self._forget(order.unfinished())
        return Progress(order.size_bytes, stored=True)

    async def _is_stored(self, order: UploadOrder) -> bool:
        """Checks the lease, and whether the store has these bytes already."""
        async with self._services.database.read() as session:
            await leases.check_live(session, order.compile_id, order.generation, caller=order.caller)
            row = await blob_rows.blob(session, order.digest)
        if row is None or row.doomed_at is not None:
            return False
        if row.size_bytes != order.size_bytes:
            raise InvalidRequest(
                f"the blob {order.digest} has {row.size_bytes} bytes, announced were {order.size_bytes}",
                field="Content-Length",
            )
        return await self._services.blobs.size(order.digest) == order.size_bytes

    @asynccontextmanager
    async def _turn(self, digest: str) -> AsyncIterator[bool]:
        """One upload of the same bytes at a time, so that one write reaches the store; yields whether it had to wait."""
        turn = self._turns.setdefault(digest, _Turn())
        waited = turn.lock.locked()
        turn.waiting += 1
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(turn.lock.acquire(), TURN_S)
                waited_for_turn = True
            yield waited
        finally:
            turn.waiting -= 1

    async def _begin(self, order: UploadOrder) -> _Incoming:
        """Reserves quota, then disk."""
        settings = self._services.settings
        reservation = await quota.reserve(
            self._services, order.size_bytes, order.compile_id, order.generation, order.digest,
            lasts_s=order.deadline_s(settings) + UNFINISHED_KEPT_S,
        )
        incoming = _Incoming(self._services.blobs.staging.new_file(order.size_bytes), reservation)
        try:
            await asyncio.to_thread(incoming.staged.preallocate)
        except BaseException:
            await self._end(incoming)
            raise
        return incoming
