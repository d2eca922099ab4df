"""Manifests: the keys that a job will need are queued, pinned, and their progress told."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Literal, cast

from graphcache_service.core.callers import Caller
from graphcache_service.core.errors import NotFound
from graphcache_service.core.outcomes import at, eta_s
from graphcache_service.core.resolve_many import enqueue_in
from graphcache_service.core.services import Services
from graphcache_service.core.waiters import key_topic
from graphcache_service.db import compiles, manifests
from graphcache_service.db.compiles import Standing
from graphcache_service.db.models import ManifestRow
from graphcache_wire import GraphKey, ManifestEntry, ManifestRequest, ManifestStatus
from graphcache_wire.lease import Phase

EVENT_EVERY_S = 1.0
"""An event stream looks again this often at the latest; heartbeats bring progress, not a wake-up."""

QUIET_S = 15.0
"""Proxies end what is silent for a minute."""


def manifest_id(namespace: str, name: str, key_digests: list[str]) -> str:
    """The same name and keys give the same id, so that a repeated request makes nothing new."""
    text = "\n".join(["graphcache manifest v1", namespace, name, *sorted(key_digests)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


async def create(services: Services, caller: Caller, request: ManifestRequest) -> ManifestStatus:
    """Store a manifest and queue what is not stored. A newer manifest of a name takes the pins of the older ones.

    Raises:
        DatabaseUnavailable: nothing was changed.
    """
    caller.require("read")
    keys = list({key.digest: key for key in request.keys}.values())
    digests = [key.digest for key in keys]
    identity = manifest_id(caller.namespace, request.name, digests)
    async with services.change() as change:
        session = change.session
        row = ManifestRow(
            id=identity,
            namespace=caller.namespace,
            name=request.name,
            priority=request.priority,
            pin=request.pin,
            created_at=change.now,
        )
        await compiles.remember_keys(session, keys)
        await manifests.put(session, row, digests)
        found = await compiles.standings(session, caller.readable(), digests)
        wanted = [key for key in keys if key.digest not in found or found[key.digest].compile.state != "ready"]
        if wanted:
            await enqueue_in(change, caller, wanted, request.priority, retry_failed=request.retry_failed)
    return await status(services, caller, identity)


async def status(services: Services, caller: Caller, identity: str) -> ManifestStatus:
    """A manifest and how each of its keys stands.

    Raises:
        NotFound: no manifest of this id in a namespace that the caller may read.
    """
    async with services.database.read() as session:
        row = await manifests.manifest(session, identity)
        if row is None or row.namespace not in caller.readable():
            raise NotFound(f"no manifest {identity}", field="manifest_id")
        keys = await manifests.keys(session, identity)
        namespaces = (row.namespace, *(name for name in caller.readable() if name != row.namespace))
        found = await compiles.standings(session, namespaces, [key.digest for key in keys])
    entries = [await _entry(services, key, found.get(key.digest)) for key in keys]
    return _shape(row, entries)


async def delete(services: Services, caller: Caller, identity: str) -> None:
    """Remove a manifest and its pins; its graphs stay until they are evicted.

    Raises:
        NotFound: no manifest of this id in the caller's own namespace.
    """
    caller.require("compile")
    async with services.change() as change:
        row = await manifests.manifest(change.session, identity)
        if row is None or row.namespace != caller.namespace:
            raise NotFound(f"no manifest {identity} in namespace {caller.namespace}", field="manifest_id")
        await manifests.delete(change.session, identity)


async def events(services: Services, caller: Caller, identity: str) -> AsyncIterator[ManifestStatus | None]:
    """The manifest's status at once and at each change, until it is done or the service stops.

    None comes where nothing changed for ``QUIET_S``, so that no proxy takes the stream for dead. All who follow one
    manifest share a reading a moment: a thousand keys are thousands of rows.

    Raises:
        NotFound, Busy: before the first status.
    """
    told = await status(services, caller, identity)
    yield told
    loop = asyncio.get_running_loop()
    quiet_since = loop.time()
    while not told.done and not services.waiters.closed:
        open_key = next(entry.key for entry in told.entries if entry.state in ("queued", "leased"))
        with services.waiters.sit(key_topic(caller.namespace, open_key.digest)) as topic:
            await topic.changed(topic.version, EVENT_EVERY_S)
        now = await services.shared.recent(
            (identity, caller.readable()), EVENT_EVERY_S / 2, lambda: status(services, caller, identity)
        )
        if now != told:
            told, quiet_since = now, loop.time()
            yield told
        elif loop.time() - quiet_since >= QUIET_S:
            quiet_since = loop.time()
            yield None


async def _entry(services: Services, key: GraphKey, standing: Standing | None) -> ManifestEntry:
    if standing is None:
        return ManifestEntry(key=key, state="absent")
    row, artifact = standing.compile, standing.artifact
    open_ = row.state in ("queued", "leased")
    return ManifestEntry(
        key=key,
        state=cast(Literal["ready", "leased", "queued", "failed"], row.state),
        holder=row.holder,
        phase=cast(Phase | None, row.phase),
        progress=row.progress,
        compile_s=None if artifact is None else artifact.compile_s,
        size_bytes=None if artifact is None else artifact.size_bytes,
        eta_s=eta_s(row, standing.now, await services.history.expected_s(key)) if open_ else None,
        message=row.failure_message,
    )


def _shape(row: ManifestRow, entries: list[ManifestEntry]) -> ManifestStatus:
    count = {state: sum(entry.state == state for entry in entries) for state in ("ready", "leased", "queued", "failed")}
    return ManifestStatus(
        id=row.id,
        name=row.name,
        created_at=at(row.created_at),
        priority=row.priority,
        pin=row.pin,
        total=len(entries),
        ready=count["ready"],
        leased=count["leased"],
        queued=count["queued"],
        failed=count["failed"],
        done=count["leased"] + count["queued"] == 0,
        eta_s=expected_end_s(entries),
        entries=entries,
    )


def expected_end_s(entries: list[ManifestEntry]) -> float | None:
    """Seconds until all is done, if as many compile on as do now; None while some time is unknown, or all is done."""
    leased = [entry.eta_s for entry in entries if entry.state == "leased"]
    queued = [entry.eta_s for entry in entries if entry.state == "queued"]
    known = [eta for eta in leased + queued if eta is not None]
    if not known or len(known) < len(leased) + len(queued):
        return None
    lanes = [eta for eta in leased if eta is not None] or [0.0]
    for eta in sorted((eta for eta in queued if eta is not None), reverse=True):
        lanes[lanes.index(min(lanes))] += eta
    return max(lanes)
