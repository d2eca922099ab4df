"""Statistics: what hit, what missed, what it cost and what it saved."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from graphcache_wire.base import Bool, Count, Fraction, OwnerId, Seconds, Sha256, WireModel

GroupBy = Literal["toolchain", "kind", "bucket"]
Tier = Literal["memory", "disk", "service"]


class Percentiles(WireModel):
    count: Count
    p50_s: Seconds | None
    p95_s: Seconds | None
    p99_s: Seconds | None


class StatsRow(WireModel):
    """Counters of one group, or of all.

    A resolve counts once: as a hit (ready at once), a joined wait (waited for another's compile) or a miss (a compile
    was begun or queued for it). ``hit_ratio`` is hits of all tiers over hits, misses and joined waits.
    """

    hits: dict[Tier, Count]
    misses: Count
    errors: Count
    joined_waits: dict[Literal["ready", "failed", "timed_out"], Count]
    hit_ratio: Fraction | None
    compiles: dict[Literal["queued", "leased", "ready", "failed"], Count]
    attempts: dict[str, Count]
    """Ended attempts by outcome: ready, or the failure's class; expired leases count as lost."""
    compile_s_spent: Seconds
    compile_s_saved: Seconds
    """Seconds of compile that hits of disk and service, and joined waits, did not have to spend again. A hit of memory
    saves none: its process had the graph already."""
    stored_bytes: Count
    wait: Percentiles


class StatsGroup(WireModel):
    group: str
    row: StatsRow


class Alarm(WireModel):
    code: str
    message: str


class ToolchainSeen(WireModel):
    """A toolchain that a worker offered lately, so that people can name it in a manifest."""

    toolchain: str
    workers: Count
    last_claim_age_s: Seconds


class Stats(WireModel):
    at: datetime
    since: datetime | None
    group_by: GroupBy | None
    totals: StatsRow
    groups: list[StatsGroup]
    blobs: Count
    blob_bytes: Count
    reserved_bytes: Count
    quota_bytes: Count | None
    evicted: Count
    evicted_bytes: Count
    evicted_age: Percentiles
    quarantined: Count
    waiters: Count
    toolchains: list[ToolchainSeen]
    alarms: list[Alarm]


class UsageHit(WireModel):
    key_digest: Sha256
    tier: Literal["memory", "disk"]
    count: Annotated[int, Field(strict=True, ge=1, le=10**9)]


class UsageRequest(WireModel):
    """Hits that the client served itself. ``batch`` makes it safe to repeat: the same id counts once."""

    owner: OwnerId
    batch: OwnerId
    hits: Annotated[list[UsageHit], Field(min_length=1, max_length=4_096)]


class UsageResponse(WireModel):
    accepted: Bool
    """False where this batch had been counted before."""


class Health(WireModel):
    status: Literal["ok", "unavailable"]
    checks: dict[str, str] = Field(default_factory=dict)
    version: str = ""
