"""Manifest: the keys that a job will need, and how urgent they are."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from graphcache_wire.base import Bool, Count, Fraction, Int, Name, Seconds, WireModel
from graphcache_wire.key import GraphKey
from graphcache_wire.lease import Phase

MAX_MANIFEST_KEYS = 4_096

ManifestId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]


class ManifestRequest(WireModel):
    """Safe to repeat: the same name and keys give the same manifest.

    ``priority`` orders prewarm compiles among themselves; whoever waits in training goes before them all.
    ``pin`` keeps the graphs from eviction while the manifest exists.
    """

    name: Name
    keys: Annotated[list[GraphKey], Field(min_length=1, max_length=MAX_MANIFEST_KEYS)]
    priority: Annotated[int, Field(strict=True, ge=0, le=100)] = 50
    pin: Bool = True
    retry_failed: Bool = False


class ManifestEntry(WireModel):
    key: GraphKey
    state: Literal["ready", "leased", "queued", "failed", "absent"]
    holder: Name | None = None
    phase: Phase | None = None
    progress: Fraction | None = None
    compile_s: Seconds | None = None
    size_bytes: Count | None = None
    eta_s: Seconds | None = None
    message: str = ""


class ManifestStatus(WireModel):
    """``done``: nothing is queued or leased any more; ``failed`` of ``total`` may still be above 0."""

    id: ManifestId
    name: Name
    created_at: datetime
    priority: Int
    pin: Bool
    total: Count
    ready: Count
    leased: Count
    queued: Count
    failed: Count
    done: Bool
    eta_s: Seconds | None
    entries: list[ManifestEntry]
