"""A seeded walk drives one compile and its hedges against a model: who holds what, and whose word counts.

Chosen by weights, since sequences drawn evenly hardly ever come to a hedge.
"""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakes.replica import NOON, Json, Replica, key, replica, sha256
from sqlalchemy import func, select

from graphcache_service.db.models import ArtifactRow, CompileRow, HedgeRow

OWNERS = tuple(letter * 32 for letter in "abc")
TTL_S, USUAL_S, FACTOR, SAMPLES, MAX_ATTEMPTS = 60.0, 20.0, 2.0, 5, 100
KEY = key()


@dataclass
class Held:
    """A lease that was granted, the compile's own or a hedge, while it lives."""

    wire: Json
    owner: str
    since: float
    expires_at: float


class HedgeWalk:
    """One key of which five are known to take 20 s, in a service that hedges after 40 s."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.runner = asyncio.Runner()
        self.folder = folder
        self.url = url
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

    async def _start(self) -> Replica:
        started = replica(self.url, self.folder, hedge_factor=FACTOR, backoff_base_s=0, max_attempts=MAX_ATTEMPTS)
        service = await self.stack.enter_async_context(started)
        await service.freeze(NOON)
        for number in range(SAMPLES):
            await service.publish(key(options={"flags": f"{number}"}), b"%d" % number, compile_s=USUAL_S)
        return service

    def close(self) -> None:
        self.run(self.stack.aclose())
        self.runner.close()

    def walk(self, steps: int) -> None:
        weights = {
            self.resolve: 2,
            self.claim: 5,
            self.heartbeat: 2,
            self.fail: 1,
            self.complete: 2,
            self.time_passes: 2,
            self.holders_work_on: 4,
            self.bytes_are_found_bad: 5,
        }
        for step in self.random.choices(list(weights), list(weights.values()), k=steps):
            step()
            self.one_lease_one_hedge_one_artifact()

    def holds(self, wire: Json) -> Held | None:
        return next((one for one in (self.first, self.hedge) if one is not None and one.wire is wire), None)

    def granted(self, wire: Json, owner: str) -> Held:
        self.all.append(wire)
        return Held(wire, owner, self.now, self.now + TTL_S)

    def resolve(self) -> None:
        owner = self.random.choice(OWNERS)
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

    def claim(self) -> None:
        owner = self.random.choice(OWNERS)
        wire = self.run(self.service.claim(owner))
        if self.asked and not self.ready and self.first is None:
            self.first, self.hedged = self.granted(wire, owner), False
            return
        late = self.first is not None and self.now - self.first.since > FACTOR * USUAL_S
        may = late and self.hedge is None and not self.hedged and self.first.owner != owner
        assert (wire is not None) == may
        if wire is not None:
            self.hedge, self.hedged = self.granted(wire, owner), True
            self.seen["hedged"] += 1

    def heartbeat(self) -> None:
        wire = self.some()
        if wire is not None:
            held = self.holds(wire)
            self.run(self.service.heartbeat(wire, expect=409 if held is None else 200))
            if held is not None:
                held.expires_at = self.now + TTL_S

    def fail(self) -> None:
        wire = self.some()
        if wire is not None and self.holds(wire) is not None:
            self.run(self.service.fail(wire, self.random.choice(["crashed", "cancelled"])))
            self.end(self.holds(wire))

    def complete(self) -> None:
        wire = self.some()
        if wire is None or (self.published and self.published["blob"] == sha256(self.content(wire)) and self.ready):
            return
        won = self.holds(wire) is not None
        if won and self.hedge is not None:
            self.seen["hedge won" if self.hedge.wire is wire else "hedge was late"] += 1
        self.run(self.service.upload(wire, self.content(wire), expect=201 if won else 409))
        if won:
            self.published = self.run(self.service.complete(wire, self.content(wire), compile_s=USUAL_S))["artifact"]
            self.ready, self.first, self.hedge = True, None, None

    def holders_work_on(self) -> None:
        """Past what is usual, with their heartbeats."""
        for _ in range(2):
            self.pass_time(21.0)
            for held in (self.first, self.hedge):
                if held is not None:
                    self.run(self.service.heartbeat(held.wire))
                    held.expires_at = self.now + TTL_S

    def time_passes(self) -> None:
        self.pass_time(self.random.choice([1.0, 21.0, 41.0, 61.0]))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.run(self.service.pass_time(seconds))
        # What it sweeps at most every two seconds is swept here, so that the model need not know of that.
        self.run(self.service.sweeper._write(self.now))
        for held in (self.first, self.hedge):
            if held is not None and held.expires_at <= self.now:
                self.end(held)

    def bytes_are_found_bad(self) -> None:
        if self.ready and self.published is not None:
            path = self.folder / "blobs" / self.published["blob"][:2] / self.published["blob"]
            path.write_bytes(b"bad")
            body = {"blob": self.published["blob"], "owner": OWNERS[0], "holder": "n", "reason": "bad_digest"}
            report = f"/v1/graphs/{self.published['key_digest']}/report"
            assert self.run(self.service.call("POST", report, json=body))["quarantined"]
            self.ready = False

    def one_lease_one_hedge_one_artifact(self) -> None:
        assert self.run(self._counts()) == (
            int(self.first is not None),
            int(self.hedge is not None),
            SAMPLES + int(self.ready),
        )

    async def _counts(self) -> tuple[int, ...]:
        counted = ((CompileRow, "leased"), (HedgeRow, "leased"), (ArtifactRow, "standing"))
        async with self.service.services.database.read() as session:
            return tuple(
                [
                    int(await session.scalar(select(func.count()).select_from(table).where(table.state == state)) or 0)
                    for table, state in counted
                ]
            )

    def end(self, held: Held | None) -> None:
        if held is self.first:
            self.first = None
        else:
            self.hedge = None
            self.seen["hedge ended"] += 1

    @staticmethod
    def content(wire: Json) -> bytes:
        return f"{wire['compile_id']} {wire['generation']}".encode()

    def some(self) -> Json | None:
        live = [held.wire for held in (self.first, self.hedge) if held is not None]
        # The same object as in ``live``, by which ``holds`` knows it.
        return self.random.choice(self.all[-2:] + live) if self.all else None


@pytest.mark.parametrize("seed", [1, 2])
def test_hedges_agree_with_the_model(database_url: str, tmp_path: Path, seed: int) -> None:
    walk = HedgeWalk(database_url, tmp_path, seed)
    try:
        walk.walk(300)
    finally:
        walk.close()
    # A walk that never came to a hedge would prove nothing.
    assert set(walk.seen) == {"hedged", "hedge won", "hedge was late", "hedge ended"}
