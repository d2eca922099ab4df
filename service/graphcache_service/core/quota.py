"""Quota: bytes are reserved before a body is read, and given back in one place."""

import secrets
from dataclasses import dataclass

from graphcache_service.core import eviction
from graphcache_service.core.errors import QuotaExceeded
from graphcache_service.core.services import Change, Services
from graphcache_service.db import blobs, uploads
from graphcache_service.db.plain import Ask


@dataclass(frozen=True, slots=True)
class Reservation:
    """A row that counts against the quota until it is released, or until its process died and its time is over."""

    upload_id: str
    size_bytes: int


async def reserve(
    services: Services, digest: str, size_bytes: int, compile_id: str, generation: int, lasts_s: float
) -> Reservation | None:
    """Reserves bytes for an upload; None where there is no quota.

    Raises:
        QuotaExceeded: too much is stored or reserved, and nothing may be evicted for it.
    """
    if services.settings.quota_bytes is None and services.settings.quota_blobs is None:
        return None
    await eviction.make_room(services, wanted_bytes=size_bytes, wanted_blobs=1)
    async with services.change() as change:
        await uploads.release_expired(change.session, change.now)
        await _check_room(services, change, size_bytes)
        upload_id = secrets.token_hex(16)
        await uploads.reserve(
            change.session,
            upload_id=upload_id,
            compile_id=compile_id,
            generation=generation,
            digest=digest,
            size_bytes=size_bytes,
            created_at=change.now,
            expires_at=change.now + lasts_s,
        )
        return Reservation(upload_id, size_bytes)


async def release(ask: Ask, reservation: Reservation) -> None:
    """Gives back what was reserved. Safe to repeat."""
    await uploads.release(ask, reservation.upload_id)


async def _check_room(services: Services, change: Change, size_bytes: int) -> None:
    quota_bytes, quota_blobs = services.settings.quota_bytes, services.settings.quota_blobs
    stored_blobs, stored_bytes = await blobs.stored(change.session)
    if quota_blobs is not None and stored_blobs >= quota_blobs:
        raise QuotaExceeded(
            f"{stored_blobs} blobs are stored of {quota_blobs}",
            hint="raise quota_blobs, unpin manifests, or run: graphcache evict",
            retry_after_s=30.0,
        )
    reserved_bytes = await uploads.reserved_bytes(change.session)
    if quota_bytes is not None and stored_bytes + reserved_bytes + size_bytes > quota_bytes:
        raise QuotaExceeded(
            f"{size_bytes} bytes asked for, {stored_bytes} are stored and {reserved_bytes} reserved of {quota_bytes}",
            hint="raise quota_bytes, unpin manifests, or run: graphcache evict",
            retry_after_s=30.0,
        )
