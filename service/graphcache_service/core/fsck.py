"""fsck: do rows, bytes and records agree. Finds what is missing or wrong on either side; mends if asked."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from graphcache_service.core.lost import drop_lost_blob
from graphcache_service.core.records import Record, all_standing, as_record, parse_record, read_records, settle
from graphcache_service.core.services import Services
from graphcache_service.db import artifacts, blobs, clock
from graphcache_service.db.models import BlobRow

ROWS_AT_ONCE: Final = 500
ROWS_AT_START: Final = 200
"""The newest rows are those that a crash may have hurt; looking at them takes milliseconds, not minutes."""


@dataclass(slots=True)
class Findings:
    """Digests by what is wrong with them."""

    checked: int = 0
    rows_without_bytes: list[str] = field(default_factory=list)
    wrong_bytes: list[str] = field(default_factory=list)
    bytes_without_rows: list[str] = field(default_factory=list)
    records_missing: list[str] = field(default_factory=list)
    """Key digests of graphs that a lost database could not get back."""
    records_stale: list[str] = field(default_factory=list)
    """Names of records of what was taken out of service, and of what cannot be read."""
    records_without_rows: list[str] = field(default_factory=list)
    """Names of records that the database knows nothing of: it was lost, or is older than they."""
    totals_wrong: bool = False

    def lists(self) -> dict[str, list[str]]:
        """What is wrong, in words, and where."""
        return {
            "row without bytes": self.rows_without_bytes,
            "wrong bytes": self.wrong_bytes,
            "bytes without a row": self.bytes_without_rows,
            "graph without a record": self.records_missing,
            "record of nothing": self.records_stale,
            "record without a row": self.records_without_rows,
        }

    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not any(self.lists().values()) and not self.totals_wrong


async def _all_rows(services: Services) -> AsyncIterator[BlobRow]:
    last = ""
    while True:
        async with services.database.scan() as session:
            rows = await blobs.recorded_after(session, last, ROWS_AT_ONCE)
        for row in rows:
            yield row
        if len(rows) < ROWS_AT_ONCE:
            return
        last = rows[-1].digest


async def _check_row(services: Services, row: BlobRow, findings: Findings, *, deep: bool, mend: bool) -> None:
    findings.checked += 1
    size_bytes = await services.blobs.size(row.digest)
    if size_bytes is None:
        findings.rows_without_bytes.append(row.digest)
    elif size_bytes != row.size_bytes or (deep and not await services.blobs.verify(row.digest)):
        findings.wrong_bytes.append(row.digest)
    else:
        return
    if mend:
        await drop_lost_blob(services, row.digest)
        await services.blobs.delete(row.digest)


async def _check_records(services: Services, findings: Findings, *, deep: bool, mend: bool) -> set[str]:
    """Compare rows with records; returns the blobs of those records that have no row."""
    store = services.blobs.records
    left = {name async for name in store.names()}
    async for graph in all_standing(services):
        record = as_record(graph)
        if record.name() not in left or deep:
            # Looked at again: it may have been written since the names were listed.
            content = await store.get(record.name())
            if content is None or parse_record(record.name(), content) != record:
                findings.records_missing.append(record.artifact.key_digest)
                if mend:
                    await settle(services, [(record.namespace, record.artifact.key_digest)])
        left.discard(record.name())
    named: set[str] = set()
    async for name, found in read_records(services, left):
        if found is not None and not await _was_retired(services, found):
            findings.records_without_rows.append(name)
            named.add(found.artifact.blob)
            continue
        findings.records_stale.append(name)
        if mend:
            await store.delete(name)
    return named


async def _was_retired(services: Services, record: Record) -> bool:
    artifact = record.artifact
    async with services.database.read() as session:
        return await artifacts.was_retired(session, record.namespace, artifact.key_digest, artifact.blob)


async def _check_bytes(services: Services, findings: Findings, named: set[str], *, mend: bool) -> None:
    """Bytes younger than an upload's grace are an upload under way, and those that a record names may come back."""
    async with services.database.read() as session:
        old_enough = await clock.now(session) - services.settings.orphan_grace_s
    batch: list[str] = []
    async for stored in services.blobs.iter_digests():
        if stored.stored_at.timestamp() < old_enough and stored.digest not in named:
            batch.append(stored.digest)
        if len(batch) == ROWS_AT_ONCE:
            await _check_batch(services, batch, findings, mend=mend)
            batch = []
    await _check_batch(services, batch, findings, mend=mend)


async def _check_batch(services: Services, batch: list[str], findings: Findings, *, mend: bool) -> None:
    if not batch:
        return
    async with services.database.read() as session:
        orphans = sorted(await blobs.unrecorded(session, batch))
    findings.bytes_without_rows += orphans
    for digest in orphans if mend else ():
        await services.blobs.delete(digest)


async def fsck(services: Services, *, deep: bool = False, mend: bool = False) -> Findings:
    """Compare all rows with all bytes and all records.

    Args:
        deep: read every blob again and hash it, and every record and compare it.
        mend: graphs whose bytes are gone or wrong are queued again; bytes without row or record go; records are written
            and removed as the database says; totals are counted anew. Records without a row stay: ``core.rebuild``.

    Raises:
        DatabaseUnavailable, BlobStoreUnavailable: nobody can say what is missing, so nothing more is mended.
    """
    findings = Findings()
    async for row in _all_rows(services):
        await _check_row(services, row, findings, deep=deep, mend=mend)
    named = await _check_records(services, findings, deep=deep, mend=mend)
    await _check_bytes(services, findings, named, mend=mend)
    async with services.change() as change:
        findings.totals_wrong = await blobs.recount(change.session, mend=mend)
    return findings


async def check_newest(services: Services) -> Findings:
    """At a start: the newest rows and their records alone, mended."""
    findings = Findings()
    async with services.database.read() as session:
        newest = await blobs.newest(session, ROWS_AT_START)
    for row in newest:
        await _check_row(services, row, findings, deep=False, mend=True)
    async with services.database.read() as session:
        graphs = await artifacts.newest_standing(session, ROWS_AT_START)
    for record in map(as_record, graphs):
        if await services.blobs.records.get(record.name()) is None:
            findings.records_missing.append(record.artifact.key_digest)
            await settle(services, [(record.namespace, record.artifact.key_digest)])
    return findings
