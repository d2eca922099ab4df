"""Publishing: bytes first, one winner, and a digest that fits."""

import asyncio

from fakes.replica import NODE, OTHER, Replica, key, sha256
from sqlalchemy import select

from graphcache_service.db.models import ArtifactRow


async def test_published_graph_is_ready_for_everybody(service: Replica) -> None:
    artifact = await service.publish(key(), b"graph", compile_s=42.0)
    outcome = await service.resolve(key(), OTHER)
    assert outcome["artifact"] == artifact
    assert (artifact["blob"], artifact["size_bytes"], artifact["producer_id"]) == (sha256(b"graph"), 5, NODE)


async def test_publication_without_its_blob_is_refused_and_the_lease_lives(service: Replica) -> None:
    lease = await service.granted(key())
    assert (await service.complete(lease, b"never uploaded", expect=422))["code"] == "blob_missing"
    await service.heartbeat(lease)


async def test_publication_of_another_size_is_refused(service: Replica) -> None:
    lease = await service.granted(key())
    await service.upload(lease, b"graph")
    refused = await service.complete(lease, b"graph", expect=422, size_bytes=6)
    assert (refused["code"], refused["field"]) == ("length_mismatch", "published.size_bytes")


async def test_graph_of_another_toolchain_is_refused(service: Replica) -> None:
    lease = await service.granted(key())
    await service.upload(lease, b"graph")
    refused = await service.complete(lease, b"graph", expect=422, toolchain="stub-1.1")
    assert refused["code"] == "toolchain_mismatch"


async def test_repeated_publication_gets_the_same_answer(service: Replica) -> None:
    lease = await service.granted(key())
    await service.upload(lease, b"graph")
    first = await service.complete(lease, b"graph")
    assert await service.complete(lease, b"graph") == first
    assert (await service.stats())["totals"]["attempts"] == {"ready": 1}


async def test_second_bytes_of_one_lease_are_told_and_recorded_but_do_not_stand(service: Replica) -> None:
    lease = await service.granted(key())
    await service.upload(lease, b"first")
    await service.upload(lease, b"other")
    first = await service.complete(lease, b"first")
    second = await service.complete(lease, b"other")
    assert (second["accepted"], second["artifact"]) == (False, first["artifact"])
    async with service.services.database.read() as session:
        rows = (await session.execute(select(ArtifactRow.blob, ArtifactRow.state))).all()
    assert {tuple(row) for row in rows} == {(sha256(b"first"), "standing"), (sha256(b"other"), "divergent")}


async def test_eight_publishers_of_different_bytes_give_one_winner_whose_digest_fits(service: Replica) -> None:
    lease = await service.granted(key())
    contents = [b"graph %d" % number for number in range(8)]
    for content in contents:
        await service.upload(lease, content)
    answers = await asyncio.gather(*(service.complete(lease, content) for content in contents))
    assert sum(answer["accepted"] for answer in answers) == 1
    standing = (await service.resolve(key()))["artifact"]
    served = await service.http.get(f"/v1/blobs/{standing['blob']}")
    assert sha256(served.content) == standing["blob"]


async def test_two_keys_with_the_same_bytes_share_one_blob(service: Replica) -> None:
    await service.publish(key(8), b"same")
    lease = await service.granted(key(16), OTHER)
    await service.upload(lease, b"same", expect=200)
    await service.complete(lease, b"same")
    assert (await service.stats())["blobs"] == 1


async def test_graph_tells_artifact_attempts_and_pins(service: Replica) -> None:
    lease = await service.granted(key())
    await service.fail(lease, "crashed", log_tail="segfault")
    await service.pass_time(3_600)
    artifact = await service.publish(key(), owner=OTHER)
    await service.call("POST", "/v1/manifests", json={"name": "job", "keys": [key()]})
    graph = await service.call("GET", f"/v1/graphs/{artifact['key_digest']}")
    assert [one["outcome"] for one in graph["attempts"]] == ["failed", "ready"]
    assert graph["attempts"][0]["log_tail"] == "segfault"
    assert (graph["state"], graph["pinned_by"], graph["artifact"]) == ("ready", ["job"], artifact)
