"""Metrics for Prometheus. Counters of this process; gauges of the whole are read from the database when asked for."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from graphcache_wire import routes

REGISTRY = CollectorRegistry()

REQUESTS = Counter(
    "graphcache_requests", "Requests by method, path and status.", ["method", "path", "status"], registry=REGISTRY
)
REQUEST_S = Histogram(
    "graphcache_request_seconds",
    "Time to the end of the answer; long polls included.",
    ["path"],
    registry=REGISTRY,
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
COMPILE_S = Histogram(
    "graphcache_compile_seconds",
    "Seconds of the compiles that were published here.",
    ["toolchain"],
    registry=REGISTRY,
    buckets=(1, 5, 15, 30, 60, 120, 300, 600, 900, 1_200, 1_800, 2_700, 3_600, 7_200),
)
WAIT_S = Histogram(
    "graphcache_wait_seconds",
    "How long askers waited for another's compile.",
    ["outcome"],
    registry=REGISTRY,
    buckets=(0.1, 0.5, 1, 5, 15, 60, 300, 900, 1_800, 3_600, 7_200),
)
EVENTS = Counter("graphcache_events", "Hits, misses, joined waits and errors.", ["event"], registry=REGISTRY)
HELD = Gauge("graphcache_held_requests", "Long polls and streams held open by this process.", registry=REGISTRY)
COMPILES = Gauge(
    "graphcache_compiles", "Keys by toolchain and state, of all namespaces.", ["toolchain", "state"], registry=REGISTRY
)
BLOBS = Gauge("graphcache_blobs", "Blobs stored.", registry=REGISTRY)
BLOB_BYTES = Gauge("graphcache_blob_bytes", "Bytes stored.", registry=REGISTRY)
RESERVED_BYTES = Gauge("graphcache_reserved_bytes", "Bytes reserved by uploads under way.", registry=REGISTRY)


HOT_BLOBS = REQUESTS.labels(method="GET", path=routes.BLOB, status="200")
"""Blobs answered from memory are counted but not timed: the clock would cost more than it tells."""
_COUNTERS: dict[tuple[str, str, int], Counter] = {}
_SECONDS: dict[str, Histogram] = {}


def count_request(method: str, path: str, status: int, duration_s: float) -> None:
    """Counts and times a request; ``path`` is its route's. ``labels`` costs more than the rest: it is asked once."""
    counter = _COUNTERS.get((method, path, status))
    if counter is None:
        counter = _COUNTERS[method, path, status] = REQUESTS.labels(method=method, path=path, status=str(status))
    seconds = _SECONDS.get(path)
    if seconds is None:
        seconds = _SECONDS[path] = REQUEST_S.labels(path=path)
    counter.inc()
    seconds.observe(duration_s)
