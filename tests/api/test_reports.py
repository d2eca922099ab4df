"""Reports and quarantine: bad bytes go at once, unusable graphs after two, one producer's all at once."""

from pathlib import Path

from fakes.replica import NODE, NOON, OTHER, WORKER, Json, Replica, key

from graphcache_service.core.callers import OPEN_CALLER
from graphcache_service.core.reports import quarantine_producer


async def report(service: Replica, artifact: Json, owner: str = NODE, reason: str = "load_failed") -> Json:
    body = {"blob": artifact["blob"], "owner": owner, "holder": f"node-{owner[0]}", "reason": reason}
    return await service.call("POST", f"/v1/graphs/{artifact['key_digest']}/report", json=body)


def spoil(tmp_path: Path, artifact: Json) -> None:
    """Flip a bit of a stored blob."""
    (path,) = (path for path in (tmp_path / "blobs").rglob("*") if path.is_file() and artifact["blob"] in path.name)
    path.chmod(0o600)
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


async def test_flipped_bit_is_quarantined_at_once_and_compiled_anew(service: Replica, tmp_path: Path) -> None:
    artifact = await service.publish(key(), b"graph")
    spoil(tmp_path, artifact)
    assert await report(service, artifact, reason="bad_digest") == {
        "bytes_good": False,
        "quarantined": True,
        "reports": 0,
    }
    again = await service.publish(key(), b"graph", owner=OTHER)
    assert (await service.http.get(f"/v1/blobs/{again['blob']}")).content == b"graph"


async def test_bad_digest_with_good_bytes_blames_the_way_not_the_graph(service: Replica) -> None:
    artifact = await service.publish(key())
    for owner in (NODE, OTHER, WORKER):
        assert (await report(service, artifact, owner, "bad_digest"))["quarantined"] is False
    assert (await service.resolve(key()))["state"] == "ready"


async def test_one_node_alone_cannot_have_a_graph_compiled_anew(service: Replica) -> None:
    artifact = await service.publish(key())
    for _ in range(3):
        assert (await report(service, artifact))["reports"] == 1
    assert (await service.resolve(key()))["state"] == "ready"


async def test_two_reports_have_a_graph_compiled_anew_once_and_then_fail_it_with_a_reason(service: Replica) -> None:
    for content in (b"first", b"second"):
        artifact = await service.publish(key(), content)
        await report(service, artifact, NODE)
        assert (await report(service, artifact, OTHER))["quarantined"] is True
    failed = await service.resolve(key())
    assert failed["state"] == "failed"
    assert "reported unusable" in failed["failure"]["message"]
    assert (await service.stats())["quarantined"] == 2


async def test_report_about_old_bytes_harms_no_new_ones(service: Replica) -> None:
    old = await service.publish(key(), b"first")
    await report(service, old, NODE)
    await report(service, old, OTHER)
    await service.publish(key(), b"second")
    assert (await report(service, old, WORKER))["quarantined"] is False
    assert (await service.resolve(key()))["state"] == "ready"


async def test_bad_bytes_of_two_keys_are_quarantined_for_both(service: Replica, tmp_path: Path) -> None:
    artifact = await service.publish(key(8), b"same")
    lease = await service.granted(key(16), OTHER)
    await service.upload(lease, b"same", expect=200)
    await service.complete(lease, b"same")
    spoil(tmp_path, artifact)
    await report(service, artifact, reason="bad_digest")
    assert [(await service.resolve(key(bucket)))["state"] for bucket in (8, 16)] == ["pending", "pending"]


async def test_everything_of_one_producer_since_a_time_is_quarantined(service: Replica) -> None:
    await service.publish(key(8), b"before")
    await service.pass_time(100)
    await service.publish(key(16), b"after")
    await service.publish(key(24), b"other", owner=OTHER)
    assert await quarantine_producer(service.services, OPEN_CALLER, "node-a", NOON + 50) == 1
    states = [(await service.resolve(key(bucket)))["state"] for bucket in (8, 16, 24)]
    assert states == ["ready", "pending", "ready"]


async def test_bytes_removed_by_hand_are_404_and_compiled_anew(service: Replica, tmp_path: Path) -> None:
    artifact = await service.publish(key())
    for path in (tmp_path / "blobs").rglob(f"*{artifact['blob']}*"):
        path.unlink()
    await service.call("GET", f"/v1/blobs/{artifact['blob']}", 404)
    assert (await service.granted(key(), OTHER))["generation"] == 2
