"""How fast the service gives and takes bytes and answers, beside nginx on the same machine in the same minutes.

Rounds of ours and of nginx alternate, tokens and the database's look-up are on, and each figure is the median round.
nginx has one worker, as ours is one process. It neither hashes nor syncs what is put to it; ours does both.

    python benchmarks/serve.py [--rounds 5] [--seconds 2] [--peers] [--json]
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from peers.caches import Peer, seaweed_filer, turborepo
from peers.load import Load, fresh_bytes, posting, put_large, putting, wrk
from peers.servers import Holder, Nginx, Service, key, nginx, service

SMALL_BYTES = 64 << 10
LARGE_BYTES = 64 << 20
HUGE_BYTES = 500_000_000
SMALL_CONNECTIONS = 8
LARGE_CONNECTIONS = 2
FRESH_PER_ROUND = 20_000
"""More than any server takes in a round, so that no file is replaced."""
Place = tuple[str, dict[str, str] | None, Callable[[str], str]]
"""URL, headers, and the path of a digest."""


@dataclass
class Measured:
    """Rounds by case and server."""

    rounds: dict[tuple[str, str], list[Load]] = field(default_factory=dict)

    def add(self, case: str, server: str, load: Load) -> None:
        self.rounds.setdefault((case, server), []).append(load)

    def median(self, case: str, server: str) -> Load | None:
        """The round whose bytes (or requests) are the median."""
        loads = self.rounds.get((case, server))
        return sorted(loads, key=lambda load: load.requests_per_s)[len(loads) // 2] if loads else None

    def ratio(self, case: str, server: str, beside: str = "nginx") -> float:
        """The median of the rounds' ratios: both of a round ran in the same seconds."""
        pairs = zip(self.rounds[case, server], self.rounds[case, beside], strict=True)
        return statistics.median(ours.requests_per_s / other.requests_per_s for ours, other in pairs)


@dataclass(frozen=True)
class Bench:
    """What every case needs."""

    ours: Service
    holder: Holder
    nginx: Nginx
    peers: tuple[Peer, ...]
    folder: Path
    seconds: float
    small: str
    large: str
    lease: dict[str, object]

    @property
    def token(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.ours.token}"}

    def upload_url(self, digest: str) -> str:
        return f"{self.ours.url}{self.upload_path(digest)}"

    def upload_path(self, digest: str) -> str:
        return f"/v1/blobs/{digest}?compile_id={self.lease['compile_id']}&generation={self.lease['generation']}"


def get_case(bench: Bench, measured: Measured, case: str, digest: str, connections: int) -> None:
    """A round of GET at every server. nginx before ours checks the token at ours, and sends the bytes itself."""
    path = f"/v1/blobs/{digest}"
    targets: dict[str, tuple[str, dict[str, str] | None]] = {
        "ours": (bench.ours.url + path, bench.token),
        "nginx": (f"{bench.nginx.url}/{digest[:2]}/{digest}", None),
        "nginx before ours": (bench.nginx.front_url + path, bench.token),
    }
    targets |= {peer.name: (peer.url + peer.path(case), dict(peer.headers)) for peer in bench.peers}
    for server, (url, headers) in targets.items():
        load = wrk(url, connections=connections, seconds=bench.seconds, headers=headers)
        measured.add(case, server, load)


def put_small(bench: Bench, measured: Measured, number: int) -> None:
    """A round of fresh 64 KiB at every server."""
    fresh = fresh_bytes(SMALL_BYTES, FRESH_PER_ROUND, number * FRESH_PER_ROUND)
    places: dict[str, Place] = {
        "ours": (bench.ours.url, bench.token, bench.upload_path),
        "nginx": (bench.nginx.put_url, None, lambda digest: f"/{digest}"),
    }
    places |= {peer.name: (peer.url, dict(peer.headers), peer.path) for peer in bench.peers}
    for server, (url, headers, path) in places.items():
        listed = bench.folder / "fresh"
        listed.write_text("".join(f"{path(digest)} {end}\n" for digest, end in fresh))
        script = putting(listed, SMALL_BYTES)
        load = wrk(url, connections=SMALL_CONNECTIONS, seconds=bench.seconds, headers=headers, script=script)
        # wrk counts what it receives; here it is what it sends that counts.
        measured.add("put_64k", server, replace(load, bytes_per_s=load.requests_per_s * SMALL_BYTES))
    empty(bench.nginx.put_folder)


def put_whole(bench: Bench, measured: Measured, number: int) -> None:
    """A round of one fresh 64 MiB at every server."""
    [(digest, end)] = fresh_bytes(LARGE_BYTES, 1, 10**9 + number)
    head_bytes = LARGE_BYTES - len(end)
    head = (b"graphcache" * (head_bytes // 10 + 1))[:head_bytes]
    urls = {"ours": (bench.upload_url(digest), bench.token), "nginx": (f"{bench.nginx.put_url}/{digest}", {})}
    urls |= {peer.name: (peer.url + peer.path(digest), dict(peer.headers)) for peer in bench.peers}
    for server, (url, headers) in urls.items():
        took_s = put_large(url, head, end.encode(), headers)
        measured.add("put_64m", server, Load(1 / took_s, LARGE_BYTES / took_s, took_s * 1e3, took_s * 1e3, 0))
    empty(bench.nginx.put_folder)


def empty(folder: Path) -> None:
    """Spares the disk what nginx has not written yet. Nothing is removed: ext4 without a journal looks at every inode
    that was freed in the last minutes before it makes a file, which took ours 0.5 ms a PUT.
    """
    for file in folder.iterdir():
        if file.is_file():
            os.truncate(file, 0)


def resolve_cases(bench: Bench, measured: Measured) -> None:
    """A round of resolve of one ready key, and of resolve-many of 64."""
    headers = bench.token | {"Content-Type": "application/json"}
    asked = {"owner": bench.holder.owner, "holder": "benchmark"}
    questions = {
        "resolve": ("/v1/graphs/resolve", asked | {"key": key("small")}),
        "resolve_many_64": ("/v1/graphs/resolve-many", asked | {"keys": [key(f"many {n}") for n in range(64)]}),
    }
    for case, (path, question) in questions.items():
        load = wrk(
            bench.ours.url + path,
            connections=SMALL_CONNECTIONS,
            seconds=bench.seconds,
            headers=headers,
            script=posting(question),
        )
        measured.add(case, "ours", load)


def peak_memory_mb(folder: Path) -> float:
    """The largest resident memory of a fresh service while 500 MB are put to it, in MB (10^6 bytes)."""
    with service(folder) as ours:
        lease = Holder(ours).lease("huge")
        [(digest, end)] = fresh_bytes(HUGE_BYTES, 1, 0)
        url = f"{ours.url}/v1/blobs/{digest}?compile_id={lease['compile_id']}&generation={lease['generation']}"
        head = (b"graphcache" * (HUGE_BYTES // 10))[: HUGE_BYTES - len(end)]
        put_large(url, head, end.encode(), {"Authorization": f"Bearer {ours.token}"})
        status = Path(f"/proc/{ours.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024 / 1e6


def run(folder: Path, rounds: int, seconds: float, with_peers: bool) -> tuple[Measured, float]:
    measured = Measured()
    with ExitStack() as running:
        ours = running.enter_context(service(folder / "ours"))
        front = running.enter_context(nginx(folder / "nginx", ours))
        starts = (seaweed_filer, turborepo) if with_peers else ()
        peers = tuple(running.enter_context(start(folder / start.__name__)) for start in starts)
        bench = filled(ours, front, peers, folder, seconds)
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", flush=True)
            get_case(bench, measured, "get_64k", bench.small, SMALL_CONNECTIONS)
            get_case(bench, measured, "get_64m", bench.large, LARGE_CONNECTIONS)
            put_small(bench, measured, number)
            put_whole(bench, measured, number)
            resolve_cases(bench, measured)
    return measured, peak_memory_mb(folder / "huge")


def filled(ours: Service, front: Nginx, peers: tuple[Peer, ...], folder: Path, seconds: float) -> Bench:
    """The servers with what the cases ask for."""
    holder = Holder(ours)
    small, large = os.urandom(SMALL_BYTES), os.urandom(LARGE_BYTES)
    for number in range(64):
        holder.publish(f"many {number}", b"one of many %d" % number)
    for peer in peers:
        peer.put("get_64k", small)
        peer.put("get_64m", large)
    blobs = {"small": holder.publish("small", small), "large": holder.publish("large", large)}
    return Bench(ours, holder, front, peers, folder, seconds, lease=holder.lease("uploads"), **blobs)


def table(measured: Measured, peak_mb: float) -> None:
    print(f"\n{'case':<18}{'server':<20}{'requests/s':>12}{'MB/s':>10}{'p50 ms':>10}{'p99 ms':>10}{'of nginx':>10}")
    for case, server in measured.rounds:
        load = measured.median(case, server)
        assert load is not None
        ratio = f"{measured.ratio(case, server):.2f}" if (case, "nginx") in measured.rounds else ""
        failed = f"  {load.failed} failed" if load.failed else ""
        print(
            f"{case:<18}{server:<20}{load.requests_per_s:>12.1f}{load.bytes_per_s / 1e6:>10.1f}{load.p50_ms:>10.2f}"
            f"{load.p99_ms:>10.2f}{ratio:>10}{failed}"
        )
    print(f"\npeak resident memory while 500 MB is put: {peak_mb:.0f} MB")


def figures(measured: Measured, peak_mb: float) -> dict[str, float]:
    resolve = measured.median("resolve", "ours")
    many = measured.median("resolve_many_64", "ours")
    assert resolve is not None
    assert many is not None
    ratios = {case: measured.ratio(case, "ours") for case in ("get_64k", "get_64m", "put_64k", "put_64m")}
    fronted = {f"xaccel_{case}": measured.ratio(case, "nginx before ours") for case in ("get_64k", "get_64m")}
    answers = {
        "resolve_rps": resolve.requests_per_s,
        "resolve_p99_ms": resolve.p99_ms,
        "resolve_many_64_rps": many.requests_per_s,
        "rss_500mb_put_mb": peak_mb,
    }
    return {name: round(value, 3) for name, value in (ratios | fronted | answers).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--peers", action="store_true", help="SeaweedFS's filer and turborepo-remote-cache too")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="graphcache-serve-"))
    try:
        measured, peak_mb = run(folder, options.rounds, options.seconds, options.peers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table(measured, peak_mb)
    if options.json:
        print(json.dumps(figures(measured, peak_mb)))


if __name__ == "__main__":
    main()
