"""fsck: rows and bytes agree, or it says which do not, and mends them."""

import os
from pathlib import Path

from fakes.replica import NOON, Replica, key, sha256

from graphcache_service.core.fsck import check_newest, fsck


def blob_path(tmp_path: Path, digest: str) -> Path:
    (path,) = (path for path in (tmp_path / "blobs").rglob(f"*{digest}*") if path.is_file())
    return path


def store_by_hand(known: Path, known_digest: str, content: bytes, age_s: float) -> None:
    """Put bytes where the store would, as they are after a kill between blob and row."""
    digest = sha256(content)
    place = str(known).replace(known_digest, digest).replace(f"/{known_digest[:2]}/", f"/{digest[:2]}/")
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).write_bytes(content)
    os.utime(place, (NOON - age_s, NOON - age_s))


async def test_whole_store_is_clean(service: Replica) -> None:
    await service.publish(key())
    assert (await fsck(service.services, deep=True)).clean()


async def test_row_without_bytes_is_found_and_queued_again(service: Replica, tmp_path: Path) -> None:
    artifact = await service.publish(key())
    blob_path(tmp_path, artifact["blob"]).unlink()
    assert (await fsck(service.services)).rows_without_bytes == [artifact["blob"]]
    assert (await service.resolve(key()))["state"] == "ready"
    await fsck(service.services, mend=True)
    assert (await service.resolve(key()))["state"] == "pending"
    assert (await fsck(service.services)).clean()


async def test_flipped_bit_is_found_by_the_deep_check_alone(service: Replica, tmp_path: Path) -> None:
    artifact = await service.publish(key(), b"graph")
    path = blob_path(tmp_path, artifact["blob"])
    path.chmod(0o600)
    path.write_bytes(b"grapj")
    assert (await fsck(service.services)).clean()
    assert (await fsck(service.services, deep=True, mend=True)).wrong_bytes == [artifact["blob"]]
    assert (await service.resolve(key()))["state"] == "pending"


async def test_old_bytes_without_a_row_are_removed_and_young_ones_left(service: Replica, tmp_path: Path) -> None:
    artifact = await service.publish(key())
    known = blob_path(tmp_path, artifact["blob"])
    store_by_hand(known, artifact["blob"], b"old", age_s=7_200)
    store_by_hand(known, artifact["blob"], b"young", age_s=60)
    assert (await fsck(service.services, mend=True)).bytes_without_rows == [sha256(b"old")]
    assert (await fsck(service.services)).clean()


async def test_check_at_start_mends_the_newest_rows(service: Replica, tmp_path: Path) -> None:
    artifact = await service.publish(key())
    blob_path(tmp_path, artifact["blob"]).unlink()
    assert (await check_newest(service.services)).rows_without_bytes == [artifact["blob"]]
    assert (await service.resolve(key()))["state"] == "pending"
