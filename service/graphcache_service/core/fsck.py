"""fsck: do rows and bytes agree. Finds rows without bytes, bytes without rows, wrong bytes; mends if asked."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from graphcache_service.core.lost import drop_lost_blob
from graphcache_service.core.services import Services
from graphcache_service.db import blobs, clock
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
    totals_wrong: bool = False

    def clean(self) -> bool:
        """Whether nothing is wrong."""
        wrong = self.rows_without_bytes or self.wrong_bytes or self.bytes_without_rows
        return not wrong and not self.totals_wrong


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


async def _check_bytes(services: Services, findings: Findings, *, mend: bool) -> None:
    """Bytes younger than an upload's grace are an upload under way."""
    async with services.database.read() as session:
        old_enough = await clock.now(session) - services.settings.orphan_grace_s
    batch: list[str] = []
    async for stored in services.blobs.iter_digests():
        if stored.stored_at.timestamp() < old_enough:
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
    """Compare all rows with all bytes.

    Args:
        deep: read every blob again and hash it.
        mend: graphs whose bytes are gone or wrong are queued again; bytes without a row go; totals are counted anew.

    Raises:
        DatabaseUnavailable, BlobStoreUnavailable: nobody can say what is missing, so nothing more is mended.
    """
    findings = Findings()
    async for row in _all_rows(services):
        await _check_row(services, row, findings, deep=deep, mend=mend)
    await _check_bytes(services, findings, mend=mend)
    async with services.change() as change:
        findings.totals_wrong = await blobs.recount(change.session, mend=mend)
    return findings


async def check_newest(services: Services) -> Findings:
    """At a start: the newest rows alone, mended."""
    findings = Findings()
    async with services.database.read() as session:
        newest = await blobs.newest(session, ROWS_AT_START)
    for row in newest:
        await _check_row(services, row, findings, deep=False, mend=True)
    return findings
