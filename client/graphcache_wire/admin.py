"""What administrators ask for: quarantine of a producer, promotion, eviction."""

from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, Field

from graphcache_wire.base import Bool, Count, Name, Seconds, Sha256, WireModel

RoomBytes = Annotated[int, Field(strict=True, ge=0, le=2**62)]


class QuarantineRequest(WireModel):
    """Everything that ``producer`` published since a time is suspect."""

    producer: Name
    since: AwareDatetime


class QuarantineResponse(WireModel):
    quarantined: Count
    """Graphs that were taken out of service, and are compiled anew."""


class PromoteRequest(WireModel):
    """Let ``target`` have what ``source`` compiled."""

    source: Name
    target: Name


class PromoteResponse(WireModel):
    promoted: Bool
    """False where the target has this graph already."""


class EvictionCandidate(WireModel):
    """A blob that would go, with all graphs that lead to it."""

    blob: Sha256
    size_bytes: Count
    compile_s: Seconds
    graphs: Count
    last_used_at: datetime


class EvictionPlan(WireModel):
    """What would go, the least valuable first. ``candidates`` holds the first of ``blobs``, at most a page."""

    blobs: Count
    size_bytes: Count
    candidates: list[EvictionCandidate]


class EvictRequest(WireModel):
    """Evict down to the quota, and make room for ``room_bytes`` more."""

    room_bytes: RoomBytes = 0


class EvictResponse(WireModel):
    blobs: Count
    size_bytes: Count
