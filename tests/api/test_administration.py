"""Administration over HTTP: quarantine, promotion and eviction, for tokens of scope admin alone."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fakes.replica import NOON, OTHER, Json, Replica, key, replica

from graphcache_service.core import reports
from graphcache_service.core.callers import Scope
from graphcache_service.core.tokens import create_token

DAY_S = 86_400.0
UNKNOWN = "0" * 64
ADMINISTRATION: list[tuple[str, str, Json]] = [
    ("POST", "/v1/graphs/quarantine", {"producer": "node-a", "since": "2026-01-01T00:00:00Z"}),
    ("POST", f"/v1/graphs/{UNKNOWN}/promote", {"source": "lab", "target": "default"}),
    ("GET", "/v1/evictions", {}),
    ("POST", "/v1/evictions", {}),
]


@pytest.fixture
async def guarded(database_url: str, tmp_path: Path) -> AsyncIterator[Replica]:
    """A replica that needs tokens and may store 1,000 bytes."""
    async with replica(database_url, tmp_path, require_tokens=True, quota_bytes=1_000) as started:
        await started.freeze()
        yield started


async def use(service: Replica, scope: Scope, namespace: str = "default") -> None:
    token = await create_token(
        service.services.database, name="x", scope=scope, namespace=namespace, reads=(), days=None
    )
    service.http.headers["Authorization"] = f"Bearer {token}"


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


@pytest.mark.parametrize(("method", "path", "body"), ADMINISTRATION, ids=lambda value: str(value)[:30])
async def test_a_lesser_token_administers_nothing(guarded: Replica, method: str, path: str, body: Json) -> None:
    asked = {"json": body} if method == "POST" else {}
    assert (await guarded.call(method, path, 401, **asked))["code"] == "unauthenticated"
    for scope in ("read", "compile"):
        await use(guarded, scope)
        assert (await guarded.call(method, path, 403, **asked))["code"] == "forbidden"


async def test_quarantine_takes_what_a_producer_published_since_a_time(
    service: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "SUSPECTS_AT_ONCE", 2)
    await service.publish(key(8), b"before")
    await service.pass_time(100)
    for bucket in (16, 24, 32, 40, 48):
        await service.publish(key(bucket), b"%d" % bucket)
    await service.publish(key(56), b"other", owner=OTHER)
    asked = {"producer": "node-a", "since": at(NOON + 50)}
    assert await service.call("POST", "/v1/graphs/quarantine", json=asked) == {"quarantined": 5}
    assert await service.call("POST", "/v1/graphs/quarantine", json=asked) == {"quarantined": 0}
    states = [(await service.resolve(key(bucket)))["state"] for bucket in (8, 16, 48, 56)]
    assert states == ["ready", "pending", "pending", "ready"]
    await service.call("POST", "/v1/graphs/quarantine", 422, json=asked | {"since": "2026-01-01T00:00:00"})


async def test_promotion_lets_another_namespace_have_a_graph(guarded: Replica) -> None:
    await use(guarded, "compile", "lab")
    artifact = await guarded.publish(key())
    await use(guarded, "admin")
    path, asked = f"/v1/graphs/{artifact['key_digest']}/promote", {"source": "lab", "target": "default"}
    assert await guarded.call("POST", path, json=asked) == {"promoted": True}
    assert await guarded.call("POST", path, json=asked) == {"promoted": False}
    assert (await guarded.resolve(key()))["artifact"]["blob"] == artifact["blob"]
    await guarded.call("POST", f"/v1/graphs/{UNKNOWN}/promote", 404, json=asked)


async def test_what_would_go_is_told_and_goes_when_it_is_told_to(guarded: Replica) -> None:
    await use(guarded, "admin")
    artifact = await guarded.publish(key(8), b"a" * 900, compile_s=30.0)
    assert (await guarded.call("GET", "/v1/evictions?room_bytes=200"))["blobs"] == 0  # it was used just now
    await guarded.pass_time(DAY_S)
    plan = await guarded.call("GET", "/v1/evictions?room_bytes=200")
    assert (plan["blobs"], plan["size_bytes"]) == (1, 900)
    (candidate,) = plan["candidates"]
    assert (candidate["blob"], candidate["compile_s"], candidate["graphs"]) == (artifact["blob"], 30.0, 1)
    assert (await guarded.resolve(key(8)))["state"] == "ready"
    await guarded.pass_time(DAY_S)
    gone = await guarded.call("POST", "/v1/evictions", json={"room_bytes": 200})
    assert gone == {"blobs": 1, "size_bytes": 900}
    assert (await guarded.resolve(key(8)))["state"] == "pending"


async def test_without_a_quota_nothing_is_evicted_and_that_is_said(service: Replica) -> None:
    for method, asked in (("GET", {}), ("POST", {"json": {}})):
        refused = await service.call(method, "/v1/evictions", 422, **asked)
        assert refused["message"] == "no quota is set, so nothing is evicted"
