"""Tokens: scopes and namespaces; nothing is served without one where one is needed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.replica import NODE, Replica, key, replica, sha256

from graphcache_service.core.callers import OPEN_CALLER, Caller, Scope
from graphcache_service.core.errors import Forbidden, NotFound
from graphcache_service.core.promote import promote
from graphcache_service.core.tokens import create_token, list_tokens, revoke_token
from graphcache_service.lifecycle import refuse_unguarded
from graphcache_service.settings import SettingsError


@pytest.fixture
async def guarded(database_url: str, tmp_path: Path) -> AsyncIterator[Replica]:
    """A replica that needs tokens."""
    async with replica(database_url, tmp_path, require_tokens=True) as started:
        await started.freeze()
        yield started


async def use(service: Replica, scope: Scope, namespace: str = "default", *reads: str) -> str:
    """Make a token and send it from now on."""
    token = await create_token(
        service.services.database, name=f"{namespace}-{scope}", scope=scope, namespace=namespace, reads=reads, days=1.0
    )
    service.http.headers["Authorization"] = f"Bearer {token}"
    return token


async def test_no_token_is_401_everywhere_but_health(guarded: Replica) -> None:
    for method, path in (("GET", "/v1/stats"), ("GET", "/"), ("GET", f"/v1/blobs/{'0' * 64}"), ("PUT", "/v1/blobs/x")):
        assert (await guarded.call(method, path, 401))["code"] == "unauthenticated"
    assert (await guarded.resolve(key(), expect=401))["hint"]
    await guarded.call("GET", "/healthz")


async def test_metrics_need_a_token_where_the_setting_says_so(database_url: str, tmp_path: Path) -> None:
    for needed, status in ((False, 200), (True, 401)):
        settings = {"require_tokens": True, "metrics_need_token": needed}
        async with replica(database_url, tmp_path, **settings) as started:
            assert (await started.http.get("/metrics")).status_code == status


async def test_unknown_and_malformed_tokens_are_401(guarded: Replica) -> None:
    for header in ("Bearer gct_unknown", "Basic abc", "Bearer ", "gct_x"):
        guarded.http.headers["Authorization"] = header
        await guarded.call("GET", "/v1/stats", 401)


async def test_reader_resolves_but_cannot_compile_or_upload(guarded: Replica) -> None:
    await use(guarded, "read")
    assert (await guarded.resolve(key()))["state"] == "pending"
    assert (await guarded.resolve(key(), can_compile=True, expect=403))["code"] == "forbidden"
    claim = {"owner": NODE, "holder": "n", "toolchains": ["stub-1.0"]}
    await guarded.call("POST", "/v1/leases/claim", 403, json=claim)
    place = {"compile_id": "0" * 32, "generation": 1}
    await guarded.call("PUT", f"/v1/blobs/{sha256(b'x')}", 403, params=place, content=b"x")


async def test_namespace_reads_what_it_is_granted_and_writes_its_own(guarded: Replica) -> None:
    await use(guarded, "compile", "production")
    artifact = await guarded.publish(key(8))
    await use(guarded, "compile", "trial", "production")
    assert (await guarded.resolve(key(8)))["artifact"] == artifact
    await guarded.publish(key(16), b"tried")
    await use(guarded, "compile", "production")
    assert (await guarded.resolve(key(16)))["state"] == "pending"


async def test_namespace_without_the_grant_sees_neither_graph_nor_bytes(guarded: Replica) -> None:
    await use(guarded, "compile", "production")
    artifact = await guarded.publish(key())
    await use(guarded, "admin", "trial")
    assert (await guarded.call("GET", "/v1/graphs"))["graphs"] == []
    await guarded.call("GET", f"/v1/graphs/{artifact['key_digest']}", 404)
    await guarded.call("GET", f"/v1/blobs/{artifact['blob']}", 404)


async def test_lease_of_another_namespace_cannot_be_used(guarded: Replica) -> None:
    await use(guarded, "compile", "production")
    lease = await guarded.granted(key())
    await use(guarded, "compile", "trial")
    await guarded.heartbeat(lease, expect=404)


async def test_promotion_lets_another_namespace_have_the_graph(guarded: Replica) -> None:
    await use(guarded, "compile", "trial")
    artifact = await guarded.publish(key())
    assert await promote(guarded.services, OPEN_CALLER, artifact["key_digest"], "trial", "production") is True
    await use(guarded, "compile", "production")
    promoted = (await guarded.resolve(key()))["artifact"]
    assert (promoted["blob"], promoted["producer_id"]) == (artifact["blob"], artifact["producer_id"])
    assert (await guarded.http.get(f"/v1/blobs/{promoted['blob']}")).content == b"graph"
    assert await promote(guarded.services, OPEN_CALLER, artifact["key_digest"], "trial", "production") is False


async def test_only_administrators_promote_and_only_what_is_stored(guarded: Replica) -> None:
    with pytest.raises(Forbidden):
        await promote(guarded.services, Caller("trial", "compile"), "0" * 64, "trial", "production")
    with pytest.raises(NotFound):
        await promote(guarded.services, OPEN_CALLER, "0" * 64, "trial", "production")


async def test_expired_and_revoked_tokens_are_refused(guarded: Replica) -> None:
    await use(guarded, "read")
    await guarded.pass_time(86_401)
    await guarded.call("GET", "/v1/stats", 401)
    await use(guarded, "read", "other")
    assert await revoke_token(guarded.services.database, "other-read") == 1
    await guarded.call("GET", "/v1/stats", 401)


async def test_tokens_are_stored_hashed_and_listed_without_themselves(guarded: Replica) -> None:
    token = await use(guarded, "admin")
    (listed,) = await list_tokens(guarded.services.database)
    assert token not in repr(listed)
    assert (listed.name, listed.scope, listed.revoked_at) == ("default-admin", "admin", None)


async def test_service_refuses_to_listen_beyond_loopback_without_a_token(database_url: str, tmp_path: Path) -> None:
    async with replica(database_url, tmp_path) as started:
        open_services = started.services
        open_services.settings = open_services.settings.model_copy(update={"host": "0.0.0.0"})
        with pytest.raises(SettingsError, match="without tokens"):
            await refuse_unguarded(open_services)
        await use(started, "admin")
        await refuse_unguarded(open_services)
