"""Listing, explaining and reporting on stored graphs."""

from datetime import datetime
from typing import Literal

from graphcache_wire.artifact import Artifact
from graphcache_wire.base import Bool, Count, Name, OwnerId, Sha256, Text, WireModel
from graphcache_wire.failure import Attempt, Failure
from graphcache_wire.key import GraphKey

CompileState = Literal["queued", "leased", "ready", "failed"]


class GraphSummary(WireModel):
    key_digest: Sha256
    key: GraphKey
    namespace: Name
    state: CompileState
    artifact: Artifact | None
    hits: Count
    created_at: datetime
    last_used_at: datetime | None


class GraphPage(WireModel):
    """``next_cursor`` is null on the last page."""

    graphs: list[GraphSummary]
    next_cursor: str | None


class GraphDetail(GraphSummary):
    failure: Failure | None
    attempts: list[Attempt]
    pinned_by: list[Name]
    quarantined: Count


class Difference(WireModel):
    """One ingredient in which a stored key differs from the one asked for; null where a side lacks it."""

    ingredient: str
    asked: str | None
    stored: str | None


class NearKey(WireModel):
    key_digest: Sha256
    key: GraphKey
    state: CompileState
    differences: list[Difference]


class Explanation(WireModel):
    """Why a key hits or misses: its state, and the nearest stored keys with what differs, fewest first."""

    key_digest: Sha256
    key: GraphKey | None
    state: Literal["queued", "leased", "ready", "failed", "absent"]
    summary: Text
    nearest: list[NearKey]


class ExplainRequest(WireModel):
    """Explains a key that was never stored: the whole key, since a digest alone tells nothing."""

    key: GraphKey


class ReportRequest(WireModel):
    """A client could not use a graph. ``blob`` is what it was given, so that a report about old bytes harms no new."""

    blob: Sha256
    owner: OwnerId
    holder: Name
    reason: Literal["bad_digest", "bad_size", "bad_signature", "load_failed", "wrong_result"]
    message: Text = ""


class ReportResponse(WireModel):
    """``bytes_good``: the service read the blob again and its digest fits. ``quarantined``: compiled anew."""

    bytes_good: Bool
    quarantined: Bool
    reports: Count
