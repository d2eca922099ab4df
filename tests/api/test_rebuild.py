"""A lost database: what was published comes back from the records beside the bytes, and nothing else does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fakes.replica import NODE, OTHER, TOOLCHAIN, Replica, key, replica, sha256

from graphcache_service.blobs.errors import BlobStoreUnavailable
from graphcache_service.blobs.records import Records
from graphcache_service.core import eviction, maintenance
from graphcache_service.core.fsck import check_newest, fsck
from graphcache_service.core.rebuild import rebuild
from graphcache_service.db import eviction as eviction_rows

SIGNATURE = {"algorithm": "ed25519", "public_key": "1" * 64, "value": "2" * 128}


@asynccontextmanager
async def without_rows(empty_database_url: str, folder: Path) -> AsyncIterator[Replica]:
    """The service on the same store and another database, which is empty."""
    async with replica(empty_database_url, folder) as started:
        await started.freeze()
        yield started


def records_in(folder: Path) -> list[Path]:
    return [path for path in (folder / "blobs" / "records").rglob("*") if path.is_file()]


async def test_published_graph_hits_and_downloads_after_the_database_was_lost(
    service: Replica, empty_database_url: str, tmp_path: Path
) -> None:
    artifact = await service.publish(key(), b"graph", signature=SIGNATURE)
    async with without_rows(empty_database_url, tmp_path) as new:
        rebuilt = await rebuild(new.services, deep=True)
        assert (rebuilt.graphs, dict(rebuilt.skipped)) == (1, {})
        assert (await new.resolve(key(), OTHER))["artifact"] == artifact
        assert (await new.http.get(f"/v1/blobs/{artifact['blob']}")).content == b"graph"
        assert (await fsck(new.services, deep=True)).clean()


async def test_rebuilt_graph_lives_on_as_if_nothing_had_happened(
    service: Replica, empty_database_url: str, tmp_path: Path
) -> None:
    artifact = await service.publish(key())
    async with without_rows(empty_database_url, tmp_path) as new:
        await rebuild(new.services)
        detail = await new.call("GET", f"/v1/graphs/{artifact['key_digest']}")
        assert [one["outcome"] for one in detail["attempts"]] == ["ready"]
        assert (await new.stats())["totals"]["compile_s_spent"] == 100.0
        for owner in (NODE, OTHER):
            body = {"blob": artifact["blob"], "owner": owner, "holder": "n", "reason": "load_failed"}
            await new.call("POST", f"/v1/graphs/{artifact['key_digest']}/report", json=body)
        assert (await new.publish(key(), b"better", OTHER))["blob"] == sha256(b"better")


async def test_rebuild_skips_what_it_cannot_vouch_for_and_says_why(
    service: Replica, empty_database_url: str, tmp_path: Path
) -> None:
    artifacts = [await service.publish(key(8 * n), b"graph %d" % n) for n in range(1, 5)]
    gone, cut, flipped, _ = (tmp_path / "blobs" / a["blob"][:2] / a["blob"] for a in artifacts)
    gone.unlink()
    cut.write_bytes(b"gra")
    flipped.write_bytes(b"grapj 3")
    (tmp_path / "blobs" / "records" / "00").mkdir(exist_ok=True)
    (tmp_path / "blobs" / "records" / "00" / f"{'0' * 64}.{'0' * 16}.json").write_bytes(b"{")
    async with without_rows(empty_database_url, tmp_path) as new:
        rebuilt = await rebuild(new.services, deep=True)
        assert rebuilt.graphs == 1
        assert dict(rebuilt.skipped) == {
            "its bytes are gone": 1,
            "its bytes have another size": 1,
            "its bytes do not have their digest": 1,
            "the record cannot be read": 1,
        }


async def test_rebuild_leaves_what_the_database_knows_better(service: Replica) -> None:
    await service.publish(key(8), b"stands")
    record = [name async for name in service.services.blobs.records.names()]
    lease = await service.granted(key(16))
    rebuilt = await rebuild(service.services)
    assert (rebuilt.graphs, dict(rebuilt.skipped)) == (0, {"the database has it": 1})
    assert [name async for name in service.services.blobs.records.names()] == record
    await service.heartbeat(lease)


async def test_key_that_is_compiled_again_already_is_left_to_its_holder(
    service: Replica, empty_database_url: str, tmp_path: Path
) -> None:
    await service.publish(key())
    async with without_rows(empty_database_url, tmp_path) as new:
        lease = await new.granted(key())
        assert dict((await rebuild(new.services)).skipped) == {"it is compiled just now": 1}
        await new.heartbeat(lease)


async def test_quarantined_and_evicted_graphs_do_not_come_back(
    service: Replica, empty_database_url: str, tmp_path: Path
) -> None:
    bad = await service.publish(key(8), b"bad")
    for owner in (NODE, OTHER):
        body = {"blob": bad["blob"], "owner": owner, "holder": "n", "reason": "load_failed"}
        await service.call("POST", f"/v1/graphs/{bad['key_digest']}/report", json=body)
    await service.publish(key(16), b"old")
    await service.pass_time(700)
    async with service.services.database.scan() as session:
        victims = await eviction_rows.candidates(session, 1e12)
    await eviction.evict(service.services, victims)
    assert records_in(tmp_path) == []
    async with without_rows(empty_database_url, tmp_path) as new:
        assert (await rebuild(new.services)).graphs == 0


async def test_mending_never_removes_bytes_that_a_record_names(
    service: Replica, empty_database_url: str, tmp_path: Path
) -> None:
    await service.publish(key())
    async with without_rows(empty_database_url, tmp_path) as new:
        await new.freeze(4e9)
        found = await fsck(new.services, mend=True)
        assert len(found.records_without_rows) == 1
        assert found.bytes_without_rows == []
        assert (await rebuild(new.services)).graphs == 1


async def test_store_that_refuses_a_record_does_not_refuse_the_publication(
    service: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: Records, name: str, content: bytes) -> None:
        raise BlobStoreUnavailable("write a record", "the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(type(service.services.blobs.records), "put", refuse)
        await service.publish(key())
    assert records_in(tmp_path) == []
    await maintenance.Maintenance(service.services).round()
    assert len(records_in(tmp_path)) == 1


@pytest.mark.parametrize("mender", [check_newest, lambda services: fsck(services, mend=True)], ids=["start", "fsck"])
async def test_record_that_a_crash_prevented_is_written_later(service: Replica, tmp_path: Path, mender) -> None:
    artifact = await service.publish(key())
    (record,) = records_in(tmp_path)
    content = record.read_bytes()
    record.unlink()
    assert (await fsck(service.services)).records_missing == [artifact["key_digest"]]
    await mender(service.services)
    assert record.read_bytes() == content
    assert (await fsck(service.services, deep=True)).clean()


async def test_record_of_what_was_taken_out_of_service_is_found_and_removed(service: Replica, tmp_path: Path) -> None:
    artifact = await service.publish(key())
    (record,) = records_in(tmp_path)
    content = record.read_bytes()
    for owner in (NODE, OTHER):
        body = {"blob": artifact["blob"], "owner": owner, "holder": "n", "reason": "load_failed"}
        await service.call("POST", f"/v1/graphs/{artifact['key_digest']}/report", json=body)
    record.write_bytes(content)
    assert dict((await rebuild(service.services)).skipped) == {"it was evicted or quarantined": 1}
    assert len((await fsck(service.services, mend=True)).records_stale) == 1
    assert records_in(tmp_path) == []
    assert (await service.claim(toolchains=[TOOLCHAIN])) is not None
