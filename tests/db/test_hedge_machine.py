"""A state machine drives one compile and its hedges against a model: who holds what, and whose word counts."""

import asyncio
import shutil
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakes.databases import PostgresServer
from fakes.replica import NOON, Json, Replica, key, replica, sha256
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import func, select

from graphcache_service.db.models import ArtifactRow, CompileRow, HedgeRow

OWNERS = tuple(letter * 32 for letter in "abc")
TTL_S, USUAL_S, FACTOR, SAMPLES, MAX_ATTEMPTS = 60.0, 20.0, 2.0, 5, 100
KEY = key()

owners = st.sampled_from(OWNERS)


@dataclass
class Held:
    """A lease that was granted, the compile's own or a hedge, while it lives."""

    wire: Json
    owner: str
    since: float
    expires_at: float


class HedgeMachine(RuleBasedStateMachine):
    """One key of which five are known to take 20 s, in a service that hedges after 40 s."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="graphcache-hedges-"))
        self.stack = AsyncExitStack()
        self.now = NOON
        self.asked = self.ready = self.hedged = False
        self.first: Held | None = None
        self.hedge: Held | None = None
        self.all: list[Json] = []
        self.published: Json | None = None
        self.service: Replica = self.run(self._start())

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    def new_url(self) -> str:
        raise NotImplementedError

    async def _start(self) -> Replica:
        started = replica(
            self.new_url(), self.folder, hedge_factor=FACTOR, backoff_base_s=0, max_attempts=MAX_ATTEMPTS
        )
        service = await self.stack.enter_async_context(started)
        await service.freeze(NOON)
        for number in range(SAMPLES):
            await service.publish(key(options={"flags": f"{number}"}), b"%d" % number, compile_s=USUAL_S)
        return service

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.runner.close()
        shutil.rmtree(self.folder)

    def holds(self, wire: Json) -> Held | None:
        return next((one for one in (self.first, self.hedge) if one is not None and one.wire is wire), None)

    def granted(self, wire: Json, owner: str) -> Held:
        self.all.append(wire)
        return Held(wire, owner, self.now, self.now + TTL_S)

    @rule(owner=owners)
    def resolve(self, owner: str) -> None:
        outcome = self.run(self.service.resolve(KEY, owner, can_compile=True))
        self.asked = True
        if self.ready:
            assert outcome["artifact"] == self.published
        elif self.first is None:
            self.first, self.hedged = self.granted(outcome["lease"], owner), False
        elif self.first.owner == owner:
            assert outcome["lease"]["generation"] == self.first.wire["generation"]
        else:
            assert outcome["state"] == "pending"

    @rule(owner=owners)
    def claim(self, owner: str) -> None:
        wire = self.run(self.service.claim(owner))
        if self.asked and not self.ready and self.first is None:
            self.first, self.hedged = self.granted(wire, owner), False
            return
        late = self.first is not None and self.now - self.first.since > FACTOR * USUAL_S
        may = late and self.hedge is None and not self.hedged and self.first.owner != owner
        assert (wire is not None) == may
        if wire is not None:
            self.hedge, self.hedged = self.granted(wire, owner), True

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        wire = self.some(data)
        if wire is not None:
            held = self.holds(wire)
            self.run(self.service.heartbeat(wire, expect=409 if held is None else 200))
            if held is not None:
                held.expires_at = self.now + TTL_S

    @rule(data=st.data(), failure_class=st.sampled_from(["crashed", "cancelled", "time_limit"]))
    def fail(self, data: st.DataObject, failure_class: str) -> None:
        wire = self.some(data)
        if wire is not None and self.holds(wire) is not None:
            self.run(self.service.fail(wire, failure_class))
            self.end(self.holds(wire))

    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        wire = self.some(data)
        if wire is None or (self.published and self.published["blob"] == sha256(self.content(wire)) and self.ready):
            return
        won = self.holds(wire) is not None
        self.run(self.service.upload(wire, self.content(wire), expect=201 if won else 409))
        if won:
            self.published = self.run(self.service.complete(wire, self.content(wire)))["artifact"]
            self.ready, self.first, self.hedge = True, None, None

    @rule(seconds=st.sampled_from([1.0, 21.0, 41.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.run(self.service.pass_time(seconds))
        # What it sweeps at most every two seconds is swept here, so that the model need not know of that.
        self.run(self.service.sweeper._write(self.now))
        for held in (self.first, self.hedge):
            if held is not None and held.expires_at <= self.now:
                self.end(held)

    @rule()
    def bytes_are_found_bad(self) -> None:
        if self.ready and self.published is not None:
            path = self.folder / "blobs" / self.published["blob"][:2] / self.published["blob"]
            path.write_bytes(b"bad")
            body = {"blob": self.published["blob"], "owner": OWNERS[0], "holder": "n", "reason": "bad_digest"}
            report = f"/v1/graphs/{self.published['key_digest']}/report"
            assert self.run(self.service.call("POST", report, json=body))["quarantined"]
            self.ready = False

    @invariant()
    def one_lease_one_hedge_one_artifact(self) -> None:
        assert self.run(self._counts()) == (
            int(self.first is not None), int(self.hedge is not None), SAMPLES + int(self.ready)
        )

    async def _counts(self) -> tuple[int, ...]:
        counted = ((CompileRow, "leased"), (HedgeRow, "leased"), (ArtifactRow, "standing"))
        async with self.service.services.database.read() as session:
            return tuple([
                int(await session.scalar(select(func.count()).select_from(table).where(table.state == state)) or 0)
                for table, state in counted
            ])

    def end(self, held: Held | None) -> None:
        if held is self.first:
            self.first = None
        else:
            self.hedge = None

    @staticmethod
    def content(wire: Json) -> bytes:
        return f"{wire['compile_id']} {wire['generation']}".encode()

    def some(self, data: st.DataObject) -> Json | None:
        return data.draw(st.sampled_from(self.all[-4:])) if self.all else None


def run_machine(machine: type[HedgeMachine], examples: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]  # hypothesis leaves it untyped
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=30, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck), phases=[Phase.generate],  # shrinking takes minutes
        ),
    )


def test_hedges_agree_with_the_model_on_sqlite(sqlite_template: Path) -> None:
    class OnSQLite(HedgeMachine):
        def new_url(self) -> str:
            shutil.copyfile(sqlite_template, self.folder / "graphcache.db")
            return f"sqlite:///{self.folder / 'graphcache.db'}"

    run_machine(OnSQLite, examples=20)


def test_hedges_agree_with_the_model_on_postgresql(postgres_server: PostgresServer) -> None:
    class OnPostgreSQL(HedgeMachine):
        def new_url(self) -> str:
            return postgres_server.emptied_database()

    run_machine(OnPostgreSQL, examples=8)
