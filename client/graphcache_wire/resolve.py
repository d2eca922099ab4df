"""Resolve: one question, "may I have this graph", and its four answers."""

from typing import Annotated, Literal

from pydantic import Field

from graphcache_wire.artifact import Artifact
from graphcache_wire.base import Bool, Count, Fraction, Name, OwnerId, Seconds, Sha256, WireModel
from graphcache_wire.failure import Failure
from graphcache_wire.key import GraphKey
from graphcache_wire.lease import Lease, Phase, WaitSeconds

Purpose = Literal["train", "prewarm"]
"""A trainer that waits goes before prewarm."""

MAX_RESOLVE_MANY = 1_024


class ResolveRequest(WireModel):
    """``can_compile``: the asker takes a lease if nobody compiles it yet; otherwise workers do.

    Safe to repeat: the owner of a live lease that asks again is granted the same lease.
    """

    key: GraphKey
    owner: OwnerId
    holder: Name
    wait_s: WaitSeconds = 0.0
    can_compile: Bool = False
    purpose: Purpose = "train"
    retry_failed: Bool = False
    """Clear a kept failure and compile again."""


class Ready(WireModel):
    """``joined``: the answer was held open for a compile that another had asked for; else the graph was there, or this
    asker was the first."""

    state: Literal["ready"] = "ready"
    artifact: Artifact
    joined: Bool = False


class Granted(WireModel):
    state: Literal["granted"] = "granted"
    lease: Lease


class Pending(WireModel):
    """Somebody compiles it, or it waits for a worker. ``eta_s`` comes from the history of the same kind and size."""

    state: Literal["pending"] = "pending"
    key_digest: Sha256
    compile_state: Literal["queued", "leased"]
    holder: Name | None = None
    phase: Phase | None = None
    progress: Fraction | None = None
    heartbeat_age_s: Seconds | None = None
    waiters: Count = 0
    queued_before: Count = 0
    attempt: Count = 0
    eta_s: Seconds | None = None


class Failed(WireModel):
    """``retry_after_s``: when the kept failure is forgotten and a resolve compiles again."""

    state: Literal["failed"] = "failed"
    key_digest: Sha256
    failure: Failure
    retry_after_s: Seconds | None = None


Outcome = Annotated[Ready | Granted | Pending | Failed, Field(discriminator="state")]


class ResolveManyRequest(WireModel):
    """Many keys in one round trip. Never waits, never grants: it says what stands and queues what is missing.

    ``enqueue`` false only looks: a key that nobody asked for is then ``absent``.
    """

    keys: Annotated[list[GraphKey], Field(min_length=1, max_length=MAX_RESOLVE_MANY)]
    owner: OwnerId
    holder: Name
    purpose: Purpose = "train"
    enqueue: Bool = True


class Absent(WireModel):
    """Not stored and not asked for."""

    state: Literal["absent"] = "absent"
    key_digest: Sha256


ManyOutcome = Annotated[Ready | Pending | Failed | Absent, Field(discriminator="state")]


class ResolveManyResponse(WireModel):
    """One outcome a key, in the order asked."""

    outcomes: list[ManyOutcome]
