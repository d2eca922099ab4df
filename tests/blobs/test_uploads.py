"""Uploads against a real database of either kind: leases, quota, and many writers of one blob."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fakes.databases import database_kind, database_url, empty_database_url, postgres_server, sqlite_template
from fakes.replica import Replica, key, replica
from fakes.running_service import sha256

from graphcache_service.blobs.folder import FolderBlobs
from graphcache_service.blobs.staging import StagedFile
from graphcache_service.core import upload_turns
from graphcache_service.core.callers import OPEN_CALLER
from graphcache_service.core.errors import LeaseExpired, QuotaExceeded, UploadTooSlow
from graphcache_service.core.upload_order import UploadCut, UploadOrder
from graphcache_service.core.uploads import Uploads
from graphcache_service.db import uploads as upload_rows

__all__ = ["database_kind", "database_url", "empty_database_url", "postgres_server", "sqlite_template"]

QUOTA_BYTES = 10_000_000


@pytest.fixture
async def replica_with_quota(database_url: str, tmp_path: Path) -> AsyncIterator[Replica]:
    async with replica(database_url, tmp_path, quota_bytes=QUOTA_BYTES) as started:
        await started.freeze()
        yield started


@pytest.fixture
async def uploads(replica_with_quota: Replica) -> AsyncIterator[Uploads]:
    uploads = Uploads(replica_with_quota.services)
    yield uploads
    await uploads.close()


async def order(service: Replica, content: bytes, bucket: int = 8) -> UploadOrder:
    lease = await service.granted(key(bucket))
    return UploadOrder(OPEN_CALLER, sha256(content), len(content), lease["compile_id"], lease["generation"])


async def whole(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 65_536):
        yield content[start : start + 65_536]


async def cut(content: bytes) -> AsyncIterator[bytes]:
    yield content[: len(content) // 2]
    raise UploadCut


async def unread() -> AsyncIterator[bytes]:
    raise AssertionError("the body was read")
    yield b""


async def stalled(first: bytes = b"") -> AsyncIterator[bytes]:
    yield first
    await asyncio.Event().wait()


async def reserved_bytes(service: Replica) -> int:
    async with service.services.database.read() as session:
        return await upload_rows.reserved_bytes(session)


async def test_cut_uploads_give_back_all_that_they_reserved(replica_with_quota: Replica, uploads: Uploads) -> None:
    content = os.urandom(200_000)
    wanted = await order(replica_with_quota, content)
    for _ in range(200):
        with pytest.raises(UploadCut):
            await uploads.receive(wanted, cut(content))
    assert await reserved_bytes(replica_with_quota) == 0
    assert replica_with_quota.services.blobs.staging.files() == []
    assert (await uploads.receive(wanted, whole(content))).stored


async def test_bytes_are_reserved_while_a_body_arrives(replica_with_quota: Replica, uploads: Uploads) -> None:
    content = os.urandom(2_000_000)
    began = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        began.set()
        async for part in stalled(content[:9]):
            yield part

    upload = asyncio.ensure_future(uploads.receive(await order(replica_with_quota, content), body()))
    await began.wait()
    assert await reserved_bytes(replica_with_quota) == len(content)
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    assert await reserved_bytes(replica_with_quota) == 0


async def test_upload_over_the_quota_is_refused_before_its_body(replica_with_quota: Replica, uploads: Uploads) -> None:
    wanted = await order(replica_with_quota, bytes(QUOTA_BYTES + 1))
    with pytest.raises(QuotaExceeded):
        await uploads.receive(wanted, unread())


async def test_reservation_of_a_dead_process_ends(replica_with_quota: Replica, uploads: Uploads) -> None:
    content = os.urandom(QUOTA_BYTES)
    wanted = await order(replica_with_quota, content)
    dead = Uploads(replica_with_quota.services)
    await dead.receive_part(wanted, 0, whole(content[:1]))
    with pytest.raises(QuotaExceeded):
        await uploads.receive(wanted, unread())
    await replica_with_quota.pass_time(3_600)
    assert (await uploads.receive(await order(replica_with_quota, content), whole(content))).stored
    await dead.close()


async def test_lease_that_ran_out_stores_nothing(replica_with_quota: Replica, uploads: Uploads) -> None:
    content = os.urandom(1_000)
    wanted = await order(replica_with_quota, content)

    async def late() -> AsyncIterator[bytes]:
        await replica_with_quota.pass_time(3_600)
        yield content

    with pytest.raises(LeaseExpired):
        await uploads.receive(wanted, late())
    assert await replica_with_quota.services.blobs.size(wanted.digest) is None
    assert await reserved_bytes(replica_with_quota) == 0


async def test_stored_bytes_are_not_read_again(replica_with_quota: Replica, uploads: Uploads) -> None:
    content = os.urandom(1_000)
    wanted = await order(replica_with_quota, content)
    assert not (await uploads.receive(wanted, whole(content))).existing
    assert (await uploads.receive(wanted, unread())).existing


async def test_bytes_that_were_removed_by_hand_are_stored_again(replica_with_quota: Replica, uploads: Uploads) -> None:
    content = os.urandom(1_000)
    wanted = await order(replica_with_quota, content)
    await uploads.receive(wanted, whole(content))
    await replica_with_quota.services.blobs.delete(wanted.digest)
    assert not (await uploads.receive(wanted, whole(content))).existing
    assert await replica_with_quota.services.blobs.verify(wanted.digest)


class CountingFolder(FolderBlobs):
    """A folder that counts what is written to it."""

    commits = 0

    async def commit(self, staged: StagedFile, digest: str) -> None:
        self.commits += 1
        await super().commit(staged, digest)


async def test_many_writers_of_one_blob_write_it_once(replica_with_quota: Replica, tmp_path: Path) -> None:
    store = CountingFolder(tmp_path / "counted")
    services = replica_with_quota.services
    await services.blobs.close()
    services.blobs = store
    content = os.urandom(100_000)
    wanted = await order(replica_with_quota, content)
    uploads = Uploads(services)
    answers = await asyncio.gather(*(uploads.receive(wanted, whole(content)) for _ in range(100)))
    assert store.commits == 1
    assert sum(not answer.existing for answer in answers) == 1


async def test_stalled_writer_does_not_hold_up_another_for_long(
    replica_with_quota: Replica, uploads: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_turns, "TURN_S", 0.05)
    content = os.urandom(1_000)
    wanted = await order(replica_with_quota, content)
    stalling = asyncio.ensure_future(uploads.receive(wanted, stalled(content[:1])))
    assert (await uploads.receive(wanted, whole(content))).stored
    stalling.cancel()
    await asyncio.wait([stalling])


async def test_stalled_upload_ends_and_gives_back(
    replica_with_quota: Replica, uploads: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = await order(replica_with_quota, bytes(2_000_000))

    def soon(order: UploadOrder, settings: Any) -> float:
        return 0.05

    monkeypatch.setattr(UploadOrder, "deadline_s", soon)
    with pytest.raises(UploadTooSlow):
        await uploads.receive(wanted, stalled(bytes(1_200_000)))
    assert await reserved_bytes(replica_with_quota) == 0
    assert replica_with_quota.services.blobs.staging.files() == []


def test_deadline_grows_with_the_size(tmp_path: Path) -> None:
    from graphcache_service.settings import Settings

    settings = Settings(data_dir=tmp_path, upload_grace_s=30, upload_min_bytes_per_s=1e6)
    small = UploadOrder(OPEN_CALLER, "0" * 64, 1, "c", 1)
    large = UploadOrder(OPEN_CALLER, "0" * 64, 500_000_000, "c", 1)
    assert small.deadline_s(settings) == pytest.approx(30)
    assert large.deadline_s(settings) == pytest.approx(530)
