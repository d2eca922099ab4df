"""Lease: the right to do one compile. Every call under it carries the generation, which fences who came before."""

from typing import Annotated, Literal

from pydantic import Field

from graphcache_wire.artifact import Artifact, Published
from graphcache_wire.base import (
    Bool,
    CompileId,
    Count,
    Fraction,
    Int,
    LogTail,
    Name,
    OwnerId,
    Seconds,
    Text,
    ToolchainVersion,
    WireModel,
)
from graphcache_wire.failure import FailureClass
from graphcache_wire.key import GraphKey

MAX_WAIT_S = 60.0
"""The longest that the service holds a request open."""

Phase = Literal["starting", "export", "lower", "compile", "check", "upload"]
Generation = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
WaitSeconds = Annotated[float, Field(strict=True, ge=0.0, le=MAX_WAIT_S)]


class Lease(WireModel):
    """Held by one owner until it expires; ``expires_in_s`` counts from the answer, by the database's clock."""

    compile_id: CompileId
    generation: Generation
    key: GraphKey
    owner: OwnerId
    ttl_s: Seconds
    expires_in_s: Seconds
    attempt: Int


class ClaimRequest(WireModel):
    """A worker asks for the most urgent compile that one of its toolchains can do.

    ``max_memory_bytes`` lets the service keep an out-of-memory compile for a worker with more.
    """

    owner: OwnerId
    holder: Name
    toolchains: Annotated[list[ToolchainVersion], Field(min_length=1, max_length=16)]
    wait_s: WaitSeconds = 0.0
    max_memory_bytes: Count | None = None
    alone: Bool = True
    """Whether the worker runs nothing else: an out-of-memory compile is tried again only alone or with more memory."""


class ClaimResponse(WireModel):
    """``lease`` is null when nothing is to be done; ``queued`` says how many compiles wait for these toolchains."""

    lease: Lease | None
    queued: Count


class HeartbeatRequest(WireModel):
    generation: Generation
    phase: Phase
    progress: Fraction | None = None


class HeartbeatResponse(WireModel):
    expires_in_s: Seconds
    waiters: Count


class CompleteRequest(WireModel):
    generation: Generation
    published: Published


class CompleteResponse(WireModel):
    """``accepted`` is false where another attempt published first: then ``artifact`` is the one that stands."""

    accepted: Bool
    artifact: Artifact


class FailRequest(WireModel):
    generation: Generation
    failure_class: FailureClass
    message: Text
    log_tail: LogTail = ""
    compile_s: Seconds | None = None
    cpu_s: Seconds | None = None
    peak_memory_bytes: Count | None = None


class FailResponse(WireModel):
    """``state`` is queued where it will be tried again, failed where it will not."""

    state: Literal["queued", "failed", "ready"]
    retry_after_s: Seconds | None = None


class ReleaseRequest(WireModel):
    generation: Generation
    reason: Text = ""
