"""A database that went away is an error that may pass, never "not there"; when it is back, so is the service."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fakes.databases import PostgresServer
from fakes.replica import NODE, OTHER, key, replica


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that this test alone may stop."""
    with TemporaryDirectory(prefix="graphcache-pg-") as folder:
        server = PostgresServer(Path(folder) / "data")
        yield server
        server.stop()


async def test_stopped_database_is_503_and_its_return_is_noticed(own_server: PostgresServer, tmp_path: Path) -> None:
    async with replica(own_server.url("migrated"), tmp_path) as service:
        artifact = await service.publish(key())
        own_server.pause()
        for refused in (
            await service.resolve(key(), OTHER, expect=503),
            await service.call("GET", f"/v1/graphs/{artifact['key_digest']}", 503),
            await service.call("GET", f"/v1/blobs/{'0' * 64}", 503),
            await service.call("GET", "/v1/stats", 503),
        ):
            assert (refused["code"], refused["retryable"]) == ("unavailable", True)
        assert (await service.call("GET", "/readyz", 503))["checks"]["blobs"] == "ok"
        await service.call("GET", "/healthz")
        own_server.resume()
        assert (await service.resolve(key(), OTHER))["artifact"] == artifact
        assert (await service.call("GET", "/readyz"))["status"] == "ok"
        assert (await service.resolve(key(16), NODE))["state"] == "pending"
