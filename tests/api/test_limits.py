"""Limits: held requests are bounded, and who is over the bound is told to come back, not that the graph is missing."""

import asyncio
from pathlib import Path

import pytest
from fakes.replica import NODE, OTHER, Replica, key, replica

from graphcache_service.db import compiles


@pytest.fixture
def database_kind() -> str:
    """What is held open is held by the process: one kind of database is enough."""
    return "sqlite"


async def test_held_requests_over_the_limit_get_503_and_when_to_come_back(database_url: str, tmp_path: Path) -> None:
    async with replica(database_url, tmp_path, max_held_requests=1) as service:
        await service.freeze()
        waiting = asyncio.create_task(service.resolve(key(), NODE, wait_s=50.0))
        await service.until_held(1)
        body = {"key": key(16), "owner": OTHER, "holder": "n", "wait_s": 50.0}
        refused = await service.http.post("/v1/graphs/resolve", json=body)
        assert (refused.status_code, refused.json()["code"]) == (503, "busy")
        assert int(refused.headers["Retry-After"]) >= 1
        service.services.waiters.close()
        assert (await waiting)["state"] == "pending"


async def test_two_hundred_waiters_cost_few_looks_at_the_database(service: Replica) -> None:
    lease = await service.granted(key())
    looks = 0
    real = compiles.standing

    async def counted(*arguments: object) -> object:
        nonlocal looks
        looks += 1
        return await real(*arguments)  # type: ignore[arg-type]  # passed on as they came

    owners = [f"{number:032x}" for number in range(200)]
    waiting = [asyncio.create_task(service.resolve(key(), owner, wait_s=50.0)) for owner in owners]
    await service.until_held(200)
    await service.upload(lease, b"graph")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiles, "standing", counted)
        await service.complete(lease, b"graph")
        outcomes = await asyncio.gather(*waiting)
    assert {outcome["state"] for outcome in outcomes} == {"ready"}
    assert 1 <= looks <= 10
