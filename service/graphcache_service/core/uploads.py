"""Uploads: bytes come in under a live lease, and are a blob once they are whole and have the digest announced."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from graphcache_service.blobs.staging import PREALLOCATE_FROM_BYTES, StagedFile, Staging
from graphcache_service.core import quota
from graphcache_service.core.errors import Busy, InvalidRequest, UploadTooSlow
from graphcache_service.core.recording import Recorder
from graphcache_service.core.services import Services
from graphcache_service.core.upload_order import Progress, UploadCut, UploadOrder
from graphcache_service.core.upload_turns import Turns
from graphcache_service.db import uploads as upload_rows
from graphcache_service.db.uploads import Gate

BATCH_BYTES: Final = 1 << 20
"""Hashed and written by one call in a thread, while the next batch arrives: an upload holds two of these."""
UNFINISHED_KEPT_S: Final = 120.0
"""How long an upload in parts may pause between two of them."""


@dataclass(slots=True)
class _Incoming:
    """Bytes under way, and what was reserved for them."""

    staged: StagedFile
    reservation: quota.Reservation | None
    one_sender: asyncio.Lock = field(default_factory=asyncio.Lock)
    forgotten: asyncio.TimerHandle | None = None


class Uploads:
    """The writers' side of the blobs in this process."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._turns = Turns()
        self._recorder = Recorder(services)
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
        with self._turns.of(order.digest) as turn:
            if await self._is_stored(order):
                return Progress(order.size_bytes, stored=True, existing=True)
            async with turn.taken():
                if turn.stored and await self._is_stored(order):
                    return Progress(order.size_bytes, stored=True, existing=True)
                await self._receive_whole(order, body)
                turn.stored = True
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

    async def _receive_whole(self, order: UploadOrder, body: AsyncIterator[bytes]) -> None:
        incoming = await self._begin(order)
        try:
            await self._fill(incoming.staged, body, order)
            await self._publish(order, incoming)
        finally:
            await self._end(incoming)

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
        gate = await self._pass_gate(order)
        if gate.blob_bytes is None or gate.blob_doomed:
            return False
        if gate.blob_bytes != order.size_bytes:
            raise InvalidRequest(
                f"the blob {order.digest} has {gate.blob_bytes} bytes, announced were {order.size_bytes}",
                field="Content-Length",
            )
        return await self._services.blobs.size(order.digest) == order.size_bytes

    async def _begin(self, order: UploadOrder) -> _Incoming:
        """Reserves quota, then disk."""
        store = self._services.blobs
        lasts_s = order.deadline_s(self._services.settings) + UNFINISHED_KEPT_S
        reservation = await quota.reserve(
            self._services, order.digest, order.size_bytes, order.compile_id, order.generation, lasts_s
        )
        incoming = _Incoming(store.staging.new_file(order.size_bytes), reservation)
        try:
            if order.size_bytes >= PREALLOCATE_FROM_BYTES:
                await store.staging.run(incoming.staged.preallocate)
        except BaseException:
            await self._end(incoming)
            raise
        return incoming

    async def _fill(self, staged: StagedFile, body: AsyncIterator[bytes], order: UploadOrder) -> None:
        """Appends the body in batches; while a thread hashes and writes one, the next arrives."""
        deadline_s = order.deadline_s(self._services.settings)
        batches = _Batches(self._services.blobs.staging, staged)
        try:
            async with asyncio.timeout(deadline_s):
                async for chunk in body:
                    await batches.add(chunk)
        except TimeoutError as error:
            raise UploadTooSlow(
                f"{order.size_bytes} bytes did not arrive within {deadline_s:.0f} s",
                hint="upload in parts (Content-Range) over a slow connection",
            ) from error
        finally:
            await batches.finish()

    async def _publish(self, order: UploadOrder, incoming: _Incoming) -> None:
        """The bytes first, then their record: a crash between leaves bytes without a row, for the collector."""
        await self._pass_gate(order)
        await self._services.blobs.commit(incoming.staged, order.digest)
        await self._recorder.record(order, incoming.reservation)
        incoming.reservation = None

    async def _pass_gate(self, order: UploadOrder) -> Gate:
        """Checks the lease without locking it; what is recorded of the blob.

        Raises:
            NotFound, LeaseExpired: the lease is not live.
        """
        gate = await upload_rows.gate(self._services.database, order.compile_id, order.digest)
        order.check_lease(gate.compile, gate.now)
        return gate

    async def _end(self, incoming: _Incoming) -> None:
        """The one place that undoes: removes what was staged, and gives back what was reserved."""
        incoming.staged.discard()
        if incoming.reservation is not None:
            reservation, incoming.reservation = incoming.reservation, None
            async with self._services.database.write_plain() as ask:
                await quota.release(ask, reservation)

    def _keep_awhile(self, order: UploadOrder, incoming: _Incoming) -> None:
        if incoming.forgotten is not None:
            incoming.forgotten.cancel()
        lasts_s = order.deadline_s(self._services.settings) + UNFINISHED_KEPT_S
        incoming.forgotten = asyncio.get_running_loop().call_later(lasts_s, self._forget, order.unfinished())

    def _forget(self, name: tuple[str, int, str]) -> None:
        incoming = self._unfinished.pop(name, None)
        if incoming is None:
            return
        if incoming.forgotten is not None:
            incoming.forgotten.cancel()
        ending = asyncio.get_running_loop().create_task(self._end(incoming))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)


class _Batches:
    """Gathers chunks, and hands them to a thread BATCH_BYTES at a time; the last ones wait for the commit's thread."""

    def __init__(self, staging: Staging, staged: StagedFile) -> None:
        self._staging = staging
        self._staged = staged
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._writing: asyncio.Future[None] | None = None

    async def add(self, chunk: bytes) -> None:
        self._gathered.append(chunk)
        self._gathered_bytes += len(chunk)
        if self._gathered_bytes >= BATCH_BYTES:
            await self._write()

    async def finish(self) -> None:
        """Waits for what is being written, and holds the rest, which the commit or the next part writes."""
        if self._writing is not None:
            await self._writing
        self._staged.hold(self._gathered)
        self._gathered, self._gathered_bytes = [], 0

    async def _write(self) -> None:
        if self._writing is not None:
            # A deadline that passes here must not cancel the thread's work: ``finish`` waits for it.
            await asyncio.shield(self._writing)
        batch, self._gathered, self._gathered_bytes = self._gathered, [], 0
        self._writing = asyncio.ensure_future(self._staging.run(self._staged.append, batch))
