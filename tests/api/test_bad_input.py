"""Bad input: a 4xx with code, field and what to do; nothing stored."""

from typing import Any

import pytest
from fakes.replica import NODE, Replica, key

BAD_KEYS: list[tuple[dict[str, Any], str]] = [
    ({"bucket": "8"}, "key.bucket"),
    ({"bucket": 7}, "key.bucket"),
    ({"bucket": 2**70}, "key.bucket"),
    ({"e_hot": 0}, "key.e_hot"),
    ({"h": -1}, "key.h"),
    ({"f": 10**12}, "key.f"),
    ({"f": 1.5}, "key.f"),
    ({"kind": "moe-experts-sideways"}, "key.kind"),
    ({"toolchain": "../etc"}, "key.toolchain"),
    ({"colour": "red"}, "key.colour"),
    ({"options": {"mode": "baked"}}, "key.options"),
]


@pytest.fixture
def database_kind() -> str:
    """What is refused here never reaches the database: one kind is enough."""
    return "sqlite"


@pytest.mark.parametrize(("change", "field"), BAD_KEYS)
async def test_bad_key_is_refused_by_its_field_and_nothing_is_stored(
    service: Replica, change: dict[str, Any], field: str
) -> None:
    refused = await service.resolve(key() | change, expect=422)
    assert (refused["code"], refused["field"], refused["retryable"]) == ("invalid_request", field, False)
    assert (await service.call("GET", "/v1/graphs"))["graphs"] == []


@pytest.mark.parametrize("missing", ["kind", "e_hot", "h", "f", "bucket", "toolchain"])
async def test_missing_field_is_named(service: Replica, missing: str) -> None:
    refused = await service.resolve({name: value for name, value in key().items() if name != missing}, expect=422)
    assert refused["field"] == f"key.{missing}"


async def test_request_with_several_faults_is_told_each_of_the_first_five(service: Replica) -> None:
    refused = await service.resolve(key() | {"bucket": 7, "h": -1}, expect=422)
    first, second = refused["message"].split("; ")
    assert refused["field"] == "key.h"
    assert (first.startswith("key.h: "), second.startswith("key.bucket: no ladder")) == (True, True)
    many = await service.resolve({"colour": "red"} | {f"x{n}": n for n in range(9)}, expect=422)
    assert many["message"].count("; ") == 4
    assert many["message"].endswith(" more)")


async def test_every_error_has_the_one_shape(service: Replica) -> None:
    calls: list[tuple[str, str, int]] = [
        ("GET", "/nowhere", 404),
        ("PUT", "/v1/stats", 405),
        ("GET", f"/v1/graphs/{'0' * 64}", 404),
        ("GET", "/v1/graphs/xyz", 422),
        ("GET", f"/v1/manifests/{'0' * 32}", 404),
        ("GET", "/v1/stats?since=x", 422),
        ("GET", "/v1/graphs?limit=0", 422),
        ("GET", "/v1/graphs?cursor=x", 422),
        ("GET", "/v1/blobs/..%2fx", 422),
    ]
    for method, path, status in calls:
        body = await service.call(method, path, status)
        assert set(body) >= {"code", "message", "request_id", "retryable"}, path


async def test_body_that_is_no_json_is_refused(service: Replica) -> None:
    headers = {"Content-Type": "application/json"}
    refused = await service.call("POST", "/v1/graphs/resolve", 422, content=b"{", headers=headers)
    assert refused["message"].startswith("no JSON")


async def test_body_over_the_limit_is_refused_before_it_is_read(service: Replica) -> None:
    refused = await service.call("POST", "/v1/graphs/resolve", 413, content=b" " * (2**20 + 1))
    assert refused["code"] == "too_large"


async def test_unannounced_body_over_the_limit_is_refused(service: Replica) -> None:
    async def endless() -> Any:
        for _ in range(40):
            yield b" " * 2**15

    assert (await service.call("POST", "/v1/graphs/resolve", 413, content=endless()))["code"] == "too_large"


async def test_wait_longer_than_a_minute_is_refused(service: Replica) -> None:
    assert (await service.resolve(key(), wait_s=61.0, expect=422))["field"] == "wait_s"


async def test_empty_and_endless_lists_are_refused(service: Replica) -> None:
    body = {"keys": [], "owner": NODE, "holder": "n"}
    assert (await service.call("POST", "/v1/graphs/resolve-many", 422, json=body))["field"] == "keys"
    body["keys"] = [key()] * 1_025
    assert (await service.call("POST", "/v1/graphs/resolve-many", 422, json=body))["field"] == "keys"


async def test_order_of_options_and_fields_gives_the_same_key(service: Replica) -> None:
    one = await service.resolve(key(options={"a": "1", "b": "2"}))
    two = await service.resolve(dict(reversed(key(options={"b": "2", "a": "1"}).items())))
    assert one["key_digest"] == two["key_digest"]


async def test_page_escapes_what_clients_wrote(service: Replica) -> None:
    await service.resolve(key(options={"note": "<script>alert(1)</script>"}))
    page = await service.http.get("/")
    assert page.status_code == 200
    assert "<script>" not in page.text
