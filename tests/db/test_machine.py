"""A state machine drives the service against a model: leases, expiry, failures, publication, reports, eviction.

The model knows no SQL and no transaction. Hypothesis looks for a sequence of calls after which the two differ.
"""

import asyncio
import shutil
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.databases import PostgresServer
from fakes.replica import NOON, Replica, key, replica
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import func, literal, select

from graphcache_service.core.eviction import evict
from graphcache_service.core.flush import flush
from graphcache_service.core.maintenance import fold_journal
from graphcache_service.db import eviction as eviction_rows
from graphcache_service.db import tallies
from graphcache_service.db.models import ArtifactRow, AttemptRow, CompileRow
from graphcache_service.db.tallies import Filter

BUCKETS = (8, 16)
OWNERS = tuple(letter * 32 for letter in "abc")
TTL_S, PROTECT_S, REJECTED_TTL_S, MAX_ATTEMPTS = 60.0, 600.0, 86_400.0, 4
PAUSES_S = (5.0, 10.0, 20.0)

buckets, owners = st.sampled_from(BUCKETS), st.sampled_from(OWNERS)


@dataclass
class ModelLease:
    """A lease that was granted at some time."""

    bucket: int
    wire: dict[str, Any]


@dataclass
class ModelKey:
    """What the service must know of a key."""

    state: str = "absent"
    generation: int = 0
    owner: str = ""
    attempts: int = 0
    expires_at: float = 0.0
    not_before: float = 0.0
    failed_until: float = float("inf")
    used_at: float = 0.0
    touched: bool = False
    reporters: set[str] = field(default_factory=set)
    unusable: int = 0

    def fail(self, failure_class: str, now: float) -> None:
        self.state = "queued"
        if failure_class == "cancelled":
            return
        self.attempts += 1
        if failure_class == "rejected":
            self.state, self.failed_until = "failed", now + REJECTED_TTL_S
        elif self.attempts >= MAX_ATTEMPTS:
            self.state, self.failed_until = "failed", float("inf")
        elif failure_class != "lost":
            self.not_before = now + PAUSES_S[self.attempts - 1]


class ServiceMachine(RuleBasedStateMachine):
    """The service beside its model."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="graphcache-machine-"))
        self.stack = AsyncExitStack()
        self.now = NOON
        self.keys = {bucket: ModelKey() for bucket in BUCKETS}
        self.leases: list[ModelLease] = []
        self.service = self.run(self._start())

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    def new_url(self) -> str:
        raise NotImplementedError

    async def _start(self) -> Replica:
        service = await self.stack.enter_async_context(replica(self.new_url(), self.folder))
        await service.freeze(NOON)
        return service

    def teardown(self) -> None:
        self.run(self._check_totals())
        self.run(self.stack.aclose())
        self.runner.close()
        shutil.rmtree(self.folder)

    @rule()
    def add_up(self) -> None:
        self.run(fold_journal(self.service.services))

    async def _check_totals(self) -> None:
        """The running totals are what counting all rows comes to."""
        async with self.service.services.database.read() as session:
            told = {
                what: (number, round(amount))
                for _, what, number, amount in await tallies.sums(session, Filter(("default",), None, ()))
                if number and what.startswith(("compile_", "artifact_", "attempt_"))
            }
            counted = {}
            for prefix, column, size in (
                ("compile_", CompileRow.state, literal(0)),
                ("artifact_", ArtifactRow.state, ArtifactRow.size_bytes),
            ):
                rows = await session.execute(select(column, func.count(), func.sum(size)).group_by(column))
                counted |= {prefix + state: (number, int(size_bytes)) for state, number, size_bytes in rows}
            ended_as = func.coalesce(AttemptRow.failure_class, AttemptRow.outcome)
            took = func.coalesce(AttemptRow.compile_s, AttemptRow.ended_at - AttemptRow.started_at)
            ended = select(ended_as, func.count(), func.sum(took)).where(AttemptRow.ended_at.is_not(None))
            rows = await session.execute(ended.group_by(ended_as))
            counted |= {f"attempt_{name}": (number, round(seconds)) for name, number, seconds in rows}
        assert told == counted

    def grant(self, bucket: int, owner: str, lease: dict[str, Any]) -> None:
        mine = self.keys[bucket]
        mine.state, mine.owner, mine.generation = "leased", owner, mine.generation + 1
        mine.expires_at, mine.not_before = self.now + TTL_S, 0.0
        assert lease["generation"] == mine.generation
        self.leases.append(ModelLease(bucket, lease))

    @rule(bucket=buckets, owner=owners, can_compile=st.booleans(), retry=st.booleans())
    def resolve(self, bucket: int, owner: str, can_compile: bool, retry: bool) -> None:
        mine = self.keys[bucket]
        ask = self.service.resolve(key(bucket), owner, can_compile=can_compile, retry_failed=retry)
        outcome = self.run(ask)
        if mine.state == "absent":
            mine.state = "queued"
        if mine.state == "failed" and (retry or mine.failed_until <= self.now):
            mine.state, mine.attempts, mine.not_before = "queued", 0, 0.0
        if mine.state == "leased" and can_compile and mine.owner == owner:
            assert outcome["lease"]["generation"] == mine.generation
        elif mine.state == "queued" and can_compile and mine.not_before <= self.now:
            assert outcome["state"] == "granted"
            self.grant(bucket, owner, outcome["lease"])
        else:
            assert outcome["state"] == {"ready": "ready", "failed": "failed"}.get(mine.state, "pending")
        mine.touched |= mine.state == "ready"

    @rule(owner=owners)
    def claim(self, owner: str) -> None:
        lease = self.run(self.service.claim(owner))
        free = [b for b, mine in self.keys.items() if mine.state == "queued" and mine.not_before <= self.now]
        assert (lease is not None) == bool(free)
        if lease is not None:
            bucket = lease["key"]["bucket"]
            assert bucket in free
            self.grant(bucket, owner, lease)

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        lease = self.some_lease(data)
        if lease is not None:
            live = self.holds(lease)
            self.run(self.service.heartbeat(lease.wire, expect=200 if live else self.refusal(lease)))
            if live:
                self.keys[lease.bucket].expires_at = self.now + TTL_S

    @rule(data=st.data(), failure_class=st.sampled_from(["crashed", "rejected", "cancelled", "time_limit"]))
    def fail(self, data: st.DataObject, failure_class: str) -> None:
        lease = self.some_lease(data)
        if lease is not None and self.holds(lease):
            answer = self.run(self.service.fail(lease.wire, failure_class))
            self.keys[lease.bucket].fail(failure_class, self.now)
            assert answer["state"] == self.keys[lease.bucket].state

    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        lease = self.some_lease(data)
        if lease is None or not self.holds(lease):
            return
        mine = self.keys[lease.bucket]
        content = f"{lease.bucket} {lease.wire['compile_id']} {mine.generation}".encode()
        self.run(self.service.upload(lease.wire, content))
        assert self.run(self.service.complete(lease.wire, content))["accepted"]
        mine.state, mine.attempts, mine.used_at, mine.reporters = "ready", 0, self.now, set()

    @rule(data=st.data())
    def late_publication_changes_nothing(self, data: st.DataObject) -> None:
        lease = self.some_lease(data)
        if lease is not None and not self.holds(lease):
            mine = self.keys[lease.bucket]
            if (mine.state, mine.generation) != ("ready", lease.wire["generation"]):
                self.run(self.service.upload(lease.wire, b"late", expect=self.refusal(lease)))

    @rule(seconds=st.sampled_from([1.0, 5.0, 30.0, 61.0, 700.0, 90_000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.run(self.service.pass_time(seconds))
        for mine in self.keys.values():
            if mine.state == "leased" and mine.expires_at <= self.now:
                mine.fail("lost", self.now)

    @rule(bucket=buckets, owner=owners)
    def report(self, bucket: int, owner: str) -> None:
        mine = self.keys[bucket]
        if mine.state != "ready":
            return
        artifact = self.run(self.service.resolve(key(bucket), owner))["artifact"]
        mine.touched = True
        body = {"blob": artifact["blob"], "owner": owner, "holder": "n", "reason": "load_failed"}
        path = f"/v1/graphs/{artifact['key_digest']}/report"
        answer = self.run(self.service.call("POST", path, json=body))
        mine.reporters.add(owner)
        assert answer["quarantined"] == (len(mine.reporters) >= 2)
        if answer["quarantined"]:
            mine.state, mine.attempts, mine.not_before = "queued", 0, 0.0
            if mine.unusable >= 1:
                mine.state, mine.failed_until = "failed", self.now + REJECTED_TTL_S
            mine.unusable += 1

    @rule()
    def evict_all_that_may_go(self) -> None:
        self.run(self._evict())
        for mine in self.keys.values():
            if mine.touched:
                mine.used_at, mine.touched = max(mine.used_at, self.now), False
            if mine.state == "ready" and mine.used_at <= self.now - PROTECT_S:
                mine.state, mine.generation, mine.attempts = "absent", 0, 0

    async def _evict(self) -> None:
        services = self.service.services
        await flush(services)
        async with services.database.scan() as session:
            victims = await eviction_rows.candidates(session, self.now - PROTECT_S)
        await evict(services, victims)

    @invariant()
    def states_agree(self) -> None:
        assert self.run(self._states()) == {
            bucket: (mine.state, mine.generation) for bucket, mine in self.keys.items() if mine.state != "absent"
        }

    async def _states(self) -> dict[int, tuple[str, int]]:
        graphs = (await self.service.call("GET", "/v1/graphs"))["graphs"]
        async with self.service.services.database.read() as session:
            rows = await session.execute(select(CompileRow.key_digest, CompileRow.state, CompileRow.generation))
            found = {row.key_digest: (row.state, row.generation) for row in rows}
            live = await session.scalar(select(func.count()).where(CompileRow.lease_expires_at.is_not(None)))
        assert live == sum(mine.state == "leased" for mine in self.keys.values())
        return {graph["key"]["bucket"]: found[graph["key_digest"]] for graph in graphs}

    def some_lease(self, data: st.DataObject) -> ModelLease | None:
        return data.draw(st.sampled_from(self.leases)) if self.leases else None

    def holds(self, lease: ModelLease) -> bool:
        """Whether this lease is its key's live one."""
        mine = self.keys[lease.bucket]
        newest = [one for one in self.leases if one.bucket == lease.bucket][-1]
        return newest is lease and mine.state == "leased"

    def refusal(self, lease: ModelLease) -> int:
        """404 where the compile was evicted since, else 409."""
        compile_ids = self.run(self._compile_ids())
        return 409 if lease.wire["compile_id"] in compile_ids else 404

    async def _compile_ids(self) -> set[str]:
        async with self.service.services.database.read() as session:
            return set(await session.scalars(select(CompileRow.id)))


def run_machine(machine: type[ServiceMachine], examples: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]  # hypothesis leaves it untyped
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],  # shrinking takes minutes
        ),
    )


def test_service_agrees_with_the_model_on_sqlite(sqlite_template: Path) -> None:
    class OnSQLite(ServiceMachine):
        def new_url(self) -> str:
            shutil.copyfile(sqlite_template, self.folder / "graphcache.db")
            return f"sqlite:///{self.folder / 'graphcache.db'}"

    run_machine(OnSQLite, examples=20)


def test_service_agrees_with_the_model_on_postgresql(postgres_server: PostgresServer) -> None:
    class OnPostgreSQL(ServiceMachine):
        def new_url(self) -> str:
            return postgres_server.emptied_database()

    run_machine(OnPostgreSQL, examples=8)
