"""Explain: the nearest stored keys, and the ingredient in which they differ."""

from fakes.replica import Replica, key


async def explain(service: Replica, **fields: object) -> dict[str, object]:
    return await service.call("POST", "/v1/graphs/explain", json={"key": key(**fields)})


async def test_nearest_key_and_its_only_difference_are_named(service: Replica) -> None:
    await service.publish(key(8, h=128), b"far")
    await service.publish(key(8), b"near")
    told = await explain(service, toolchain="stub-1.1")
    assert told["state"] == "absent"
    assert told["nearest"][0]["differences"] == [  # type: ignore[index]  # JSON
        {"ingredient": "toolchain", "asked": "stub-1.1", "stored": "stub-1.0"}
    ]
    assert "differs in toolchain" in str(told["summary"])


async def test_option_that_only_one_side_has_is_a_difference(service: Replica) -> None:
    await service.publish(key())
    told = await explain(service, options={"flags": "-O3"})
    assert told["nearest"][0]["differences"] == [  # type: ignore[index]  # JSON
        {"ingredient": "options.flags", "asked": "-O3", "stored": None}
    ]


async def test_nearer_bucket_comes_first(service: Replica) -> None:
    await service.publish(key(1024), b"1024")
    await service.publish(key(32), b"32")
    told = await explain(service, bucket=16)
    assert [near["key"]["bucket"] for near in told["nearest"]] == [32, 1024]  # type: ignore[attr-defined]  # JSON


async def test_digest_alone_explains_a_key_that_was_asked_for(service: Replica) -> None:
    pending = await service.resolve(key())
    told = await service.call("GET", f"/v1/graphs/{pending['key_digest']}/explain")
    assert (told["state"], told["key"]["bucket"]) == ("queued", 8)
    unknown = await service.call("GET", f"/v1/graphs/{'0' * 64}/explain")
    assert (unknown["state"], unknown["key"]) == ("absent", None)
