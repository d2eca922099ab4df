"""A replica of the real service inside the test's process: real database, real folder of blobs, a clock to be moved."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from graphcache_service.app import create_app
from graphcache_service.core.services import Services
from graphcache_service.core.sweeper import Sweeper
from graphcache_service.db import clock
from graphcache_service.lifecycle import close_services, start_services
from graphcache_service.logs import configure_logs
from graphcache_service.settings import load_settings

NOON = 1_800_000_000.0
TOOLCHAIN = "stub-1.0"
NODE, OTHER, WORKER = "a" * 32, "b" * 32, "c" * 32

Json = dict[str, Any]


def key(bucket: int = 8, **fields: Any) -> Json:
    """A small graph's key."""
    return {"kind": "moe-experts-fwd", "e_hot": 4, "h": 64, "f": 32, "bucket": bucket, "toolchain": TOOLCHAIN} | fields


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Replica:
    """Speaks HTTP to one service; ``expect`` is the status that a call must have."""

    def __init__(self, services: Services, http: httpx.AsyncClient) -> None:
        self.services = services
        self.http = http
        self.sweeper = Sweeper(services)

    async def freeze(self, at: float = NOON) -> None:
        async with self.services.database.write() as session:
            await clock.freeze(session, at)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass for the database, and the sweeper see it."""
        async with self.services.database.write() as session:
            await clock.advance(session, seconds)
        await self.sweeper.sweep()

    async def until_held(self, requests: int) -> None:
        """Let the tasks of the test run until this many requests are held open."""
        while self.services.waiters.held < requests:  # noqa: ASYNC110 - the service has no reason to tell a test
            await asyncio.sleep(0)

    async def call(self, method: str, path: str, expect: int = 200, **request: Any) -> Json:
        response = await self.http.request(method, path, **request)
        assert response.status_code == expect, response.text
        body: Json = response.json() if response.content else {}
        return body

    async def resolve(self, graph: Json, owner: str = NODE, expect: int = 200, **fields: Any) -> Json:
        body = {"key": graph, "owner": owner, "holder": f"node-{owner[0]}"} | fields
        return await self.call("POST", "/v1/graphs/resolve", expect, json=body)

    async def claim(self, owner: str = WORKER, toolchains: list[str] | None = None, **fields: Any) -> Json | None:
        body = {"owner": owner, "holder": f"worker-{owner[0]}", "toolchains": toolchains or [TOOLCHAIN]} | fields
        lease: Json | None = (await self.call("POST", "/v1/leases/claim", json=body))["lease"]
        return lease

    async def granted(self, graph: Json, owner: str = NODE) -> Json:
        """The lease of a resolve that must be granted."""
        outcome = await self.resolve(graph, owner, can_compile=True)
        assert outcome["state"] == "granted", outcome
        lease: Json = outcome["lease"]
        return lease

    async def heartbeat(self, lease: Json, expect: int = 200, **fields: Any) -> Json:
        body = {"generation": lease["generation"], "phase": "compile"} | fields
        return await self.call("POST", f"/v1/leases/{lease['compile_id']}/heartbeat", expect, json=body)

    async def upload(self, lease: Json, content: bytes, expect: int = 201) -> Json:
        place = {"compile_id": lease["compile_id"], "generation": lease["generation"]}
        return await self.call("PUT", f"/v1/blobs/{sha256(content)}", expect, params=place, content=content)

    async def complete(self, lease: Json, content: bytes, expect: int = 200, **published: Any) -> Json:
        body = {
            "blob": sha256(content),
            "size_bytes": len(content),
            "toolchain": lease["key"]["toolchain"],
            "compile_s": 100.0,
        } | published
        request = {"generation": lease["generation"], "published": body}
        return await self.call("POST", f"/v1/leases/{lease['compile_id']}/complete", expect, json=request)

    async def fail(self, lease: Json, failure_class: str = "crashed", expect: int = 200, **fields: Any) -> Json:
        body = {"generation": lease["generation"], "failure_class": failure_class, "message": "it failed"} | fields
        return await self.call("POST", f"/v1/leases/{lease['compile_id']}/fail", expect, json=body)

    async def publish(self, graph: Json, content: bytes = b"graph", owner: str = NODE, **published: Any) -> Json:
        """Compile, upload and publish; returns the artifact."""
        lease = await self.granted(graph, owner)
        await self.upload(lease, content)
        artifact: Json = (await self.complete(lease, content, **published))["artifact"]
        return artifact

    async def stats(self, **query: Any) -> Json:
        return await self.call("GET", "/v1/stats", params=query)


@asynccontextmanager
async def replica(database_url: str, folder: Path, **settings: Any) -> AsyncIterator[Replica]:
    """A started replica; its background rounds run only when the test runs them."""
    places = {"database_url": database_url, "data_dir": folder / "data", "blob_store": str(folder / "blobs")}
    configure_logs("error", "json")
    app = create_app(load_settings(environment={}, **places, **settings))
    services: Services = app.state.services
    await start_services(services)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://service", timeout=60.0) as http:
        yield Replica(services, http)
    services.waiters.close()
    await close_services(services)
