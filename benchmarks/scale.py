"""Whether calls stay as fast when much is stored: put, publish (lease, put and complete), resolve, statistics, and a
start after kill -9, at 1,000, 10,000 and 200,000 entries.

The rows of the entries, of three kinds and 128 buckets, are written into the database directly, each with an artifact,
a blob, an ended attempt, a miss and hits, and the newest blobs into the folder, since a start looks at these. What is
measured goes through HTTP, with a quota set, so that a put asks how much is stored.

    python benchmarks/scale.py [--entries 1000 10000 200000] [--json]
"""

import argparse
import asyncio
import hashlib
import json
import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from peers.servers import TOOLCHAIN, Holder, Service, key, service
from sqlalchemy import insert

from graphcache_service.db import blobs, tallies
from graphcache_service.db.engine import Database, parse_database_url
from graphcache_service.db.migrate import migrate
from graphcache_service.db.models import ArtifactRow, AttemptRow, BlobRow, CompileRow, GraphKeyRow
from graphcache_wire import GraphKey, Stats

REPEATS = 40
ROWS_AT_ONCE = 5_000
NOW = time.time()
QUOTA_BYTES = 10**15
NEWEST = 10_000
FIGURES = ("put_ms", "publish_ms", "resolve_ms", "stats_ms", "stats_since_ms", "first_stats_ms", "start_s")
"""Statistics by bucket: of all time, of the last hour, and the first ones after a start. A start ends when the service
says that it is ready.
"""
KINDS = ("moe-experts-fwd", "moe-experts-bwd-lora", "moe-experts-bwd-full")


def content_of(number: int, what: str) -> bytes:
    return f"{what} {number}".encode()


def name_of(number: int, what: str) -> str:
    return hashlib.sha256(content_of(number, what)).hexdigest()


def entry_key(number: int) -> dict[str, Any]:
    return key(f"entry {number}") | {"kind": KINDS[number % 3], "bucket": 8 * (1 + number // 3 % 128)}


def rows_of(number: int) -> dict[type, dict[str, Any]]:
    """One ready entry, as the service would have stored it."""
    graph = GraphKey.model_validate(entry_key(number))
    digest, blob, compile_id, owner = graph.digest, name_of(number, "blob"), name_of(number, "c")[:32], "a" * 32
    at, compile_s = NOW - 86_400 + number / 10, 900.0 + number % 600
    size_bytes = len(content_of(number, "blob"))
    shared = {"namespace": "default", "key_digest": digest, "toolchain": TOOLCHAIN, "generation": 1}
    return {
        GraphKeyRow: {
            "key_digest": digest,
            "kind": str(graph.kind),
            "e_hot": graph.e_hot,
            "h": graph.h,
            "f": graph.f,
            "bucket": graph.bucket,
            "toolchain": TOOLCHAIN,
            "key_json": graph.model_dump_json(),
        },
        BlobRow: {"digest": blob, "size_bytes": size_bytes, "created_at": at, "last_fetched_at": at},
        ArtifactRow: shared
        | {
            "id": number + 1,
            "compile_id": compile_id,
            "state": "standing",
            "blob": blob,
            "size_bytes": size_bytes,
            "compile_s": compile_s,
            "producer": "worker",
            "producer_id": owner,
            "created_at": at,
        },
        CompileRow: shared
        | {
            "id": compile_id,
            "needs_weights": False,
            "state": "ready",
            "priority": 50,
            "attempts": 0,
            "created_at": at,
            "queued_at": at,
            "retry_alone": False,
            "artifact_id": number + 1,
            "last_used_at": at,
        },
        AttemptRow: shared
        | {
            "compile_id": compile_id,
            "owner": owner,
            "holder": "worker",
            "started_at": at - compile_s,
            "ended_at": at,
            "outcome": "ready",
            "compile_s": compile_s,
        },
    }


def batches(entries: int) -> Iterator[list[dict[type, dict[str, Any]]]]:
    for first in range(0, entries, ROWS_AT_ONCE):
        yield [rows_of(number) for number in range(first, min(entries, first + ROWS_AT_ONCE))]


async def fill(data: Path, entries: int) -> None:
    database = Database(parse_database_url(f"sqlite:///{data / 'graphcache.db'}"))
    await migrate(database)
    for batch in batches(entries):
        async with database.write() as session:
            for table in (GraphKeyRow, BlobRow, ArtifactRow, CompileRow, AttemptRow):
                # Into the table: the session's entities would take most of the time.
                await session.execute(insert(table.__table__), [rows[table] for rows in batch])
            digests = [rows[GraphKeyRow]["key_digest"] for rows in batch]
            events = (("miss", 1, 0.0), ("hit_service", 3, 2_700.0))
            counts = [("default", digest, *event) for digest in digests for event in events]
            await tallies.append_usage(session, counts, batch[0][BlobRow]["created_at"])
            while await tallies.fold(session, ROWS_AT_ONCE):
                pass
    async with database.write() as session:
        await blobs.recount(session, mend=True)
    await database.close()


def write_newest_blobs(data: Path, entries: int) -> None:
    for number in range(max(0, entries - NEWEST), entries):
        path = data / "blobs" / name_of(number, "blob")[:2] / name_of(number, "blob")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(content_of(number, "blob"))


def median_ms(call: Callable[[int], object], repeats: int = REPEATS) -> float:
    """The median of ``repeats`` calls, each given its number; a first one, which fills caches, is not counted."""
    call(repeats)
    took_s: list[float] = []
    for number in range(repeats):
        began = time.perf_counter()
        call(number)
        took_s.append(time.perf_counter() - began)
    return statistics.median(took_s) * 1e3


def measure(folder: Path, entries: int) -> dict[str, float]:
    data = folder / "data"
    data.mkdir(parents=True)
    asyncio.run(fill(data, entries))
    write_newest_blobs(data, entries)
    with service(folder, quota_bytes=QUOTA_BYTES) as one:
        found = measure_calls(one, entries)
        os.kill(one.pid, signal.SIGKILL)
    (folder / "ready").unlink()
    began = time.perf_counter()
    with service(folder, quota_bytes=QUOTA_BYTES) as one:
        one.client().get("/readyz").raise_for_status()
        return found | {"start_s": time.perf_counter() - began}


def measure_calls(one: Service, entries: int) -> dict[str, float]:
    holder = Holder(one)
    lease = holder.lease("uploads")

    def put(number: int) -> None:
        content = os.urandom(4_096)
        place = {"compile_id": lease["compile_id"], "generation": lease["generation"]}
        path = f"/v1/blobs/{hashlib.sha256(content).hexdigest()}"
        holder.http.put(path, params=place, content=content).raise_for_status()

    def publish(number: int) -> None:
        holder.publish(f"new {number}", os.urandom(4_096))

    def resolve(number: int) -> None:
        asked = holder.question("") | {"key": entry_key(number * entries // (REPEATS + 1))}
        answer = holder.http.post("/v1/graphs/resolve", json=asked).raise_for_status().json()
        assert answer["state"] == "ready", answer

    def stats(**asked: str) -> bytes:
        return holder.http.get("/v1/stats", params={"group_by": "bucket"} | asked).raise_for_status().content

    began = time.perf_counter()
    answer = stats()
    first_stats_s = time.perf_counter() - began
    first = Stats.model_validate_json(answer)
    assert first.totals.compiles["ready"] == entries, first.totals
    an_hour_ago = (first.at - timedelta(hours=1)).isoformat()
    return {
        "put_ms": median_ms(put),
        "publish_ms": median_ms(publish),
        "resolve_ms": median_ms(resolve),
        "stats_ms": median_ms(lambda _: stats(), 10),
        "stats_since_ms": median_ms(lambda _: stats(since=an_hour_ago), 10),
        "first_stats_ms": first_stats_s * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, nargs="+", default=[1_000, 10_000, 200_000])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    print(f"{'entries':>10}" + "".join(f"{name:>16}" for name in FIGURES))
    for entries in options.entries:
        folder = Path(tempfile.mkdtemp(prefix="graphcache-scale-"))
        try:
            one = found[str(entries)] = measure(folder, entries)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(f"{entries:>10}" + "".join(f"{one[name]:>16.1f}" for name in FIGURES), flush=True)
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
