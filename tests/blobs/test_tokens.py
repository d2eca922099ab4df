"""Who may read and write blobs: tokens, scopes and namespaces."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.replica import Replica, key, replica, sha256

from graphcache_service.core.tokens import new_token, token_sha256
from graphcache_service.db import tokens

CONTENT = b"a compiled graph"
PATH = f"/v1/blobs/{sha256(CONTENT)}"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Replica]:
    async with replica(f"sqlite:///{tmp_path / 'graphcache.db'}", tmp_path, require_tokens=True) as started:
        await started.freeze()
        yield started


async def as_token(service: Replica, scope: str, namespace: str = "default", reads: tuple[str, ...] = ()) -> str:
    """Makes a token, and sends it from now on."""
    token = new_token()
    async with service.services.database.write() as session:
        await tokens.insert_token(
            session,
            name=f"{scope}-{namespace}",
            token_sha256=token_sha256(token),
            scope=scope,
            namespace=namespace,
            reads=reads,
            now=0.0,
            expires_at=None,
        )
    service.http.headers["Authorization"] = f"Bearer {token}"
    return token


async def get(service: Replica) -> int:
    return (await service.http.get(PATH)).status_code


@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Basic abc", "Bearer"])
async def test_without_a_good_token_nothing_is_read(service: Replica, authorization: str | None) -> None:
    await as_token(service, "compile")
    await service.publish(key(), CONTENT)
    service.http.headers.pop("Authorization")
    headers = {"Authorization": authorization} if authorization else {}
    answer = await service.http.get(PATH, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


async def test_reader_reads_and_does_not_write(service: Replica) -> None:
    await as_token(service, "compile")
    await service.publish(key(), CONTENT)
    lease = await service.granted(key(16))
    await as_token(service, "read")
    assert await get(service) == 200
    refused = await service.upload(lease, b"other", expect=403)
    assert refused["code"] == "forbidden"


async def test_blob_of_another_namespace_is_read_only_where_it_is_granted(service: Replica) -> None:
    await as_token(service, "compile", namespace="trials")
    await service.publish(key(), CONTENT)
    await as_token(service, "read", namespace="production")
    assert await get(service) == 404
    await as_token(service, "read", namespace="production-2", reads=("trials",))
    assert await get(service) == 200


async def test_lease_of_another_namespace_is_not_uploaded_under(service: Replica) -> None:
    await as_token(service, "compile", namespace="trials")
    lease = await service.granted(key())
    await as_token(service, "compile", namespace="production")
    assert (await service.upload(lease, CONTENT, expect=404))["code"] == "not_found"
