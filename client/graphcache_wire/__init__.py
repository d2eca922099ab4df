"""What clients, workers and the service say to each other: parsed types, no I/O.

Imports pydantic and the standard library alone. Everything here is a public name of the protocol, version 1.
"""

from graphcache_wire.artifact import Artifact, Published, Signature, signed_statement
from graphcache_wire.errors import ErrorBody, ErrorCode
from graphcache_wire.failure import Attempt, Failure, FailureClass
from graphcache_wire.key import GraphKey, Kind, is_bucket
from graphcache_wire.lease import (
    ClaimRequest,
    ClaimResponse,
    CompleteRequest,
    CompleteResponse,
    FailRequest,
    FailResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    Lease,
    ReleaseRequest,
)
from graphcache_wire.manifest import ManifestEntry, ManifestRequest, ManifestStatus
from graphcache_wire.resolve import (
    Failed,
    Granted,
    Outcome,
    Pending,
    Ready,
    ResolveManyRequest,
    ResolveManyResponse,
    ResolveRequest,
)
from graphcache_wire.stats import Stats, StatsRow, UsageHit, UsageRequest

__all__ = [
    "Artifact",
    "Attempt",
    "ClaimRequest",
    "ClaimResponse",
    "CompleteRequest",
    "CompleteResponse",
    "ErrorBody",
    "ErrorCode",
    "FailRequest",
    "FailResponse",
    "Failed",
    "Failure",
    "FailureClass",
    "Granted",
    "GraphKey",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "Kind",
    "Lease",
    "ManifestEntry",
    "ManifestRequest",
    "ManifestStatus",
    "Outcome",
    "Pending",
    "Published",
    "Ready",
    "ReleaseRequest",
    "ResolveManyRequest",
    "ResolveManyResponse",
    "ResolveRequest",
    "Signature",
    "Stats",
    "StatsRow",
    "UsageHit",
    "UsageRequest",
    "is_bucket",
    "signed_statement",
]
