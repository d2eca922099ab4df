"""Failure: why a compile did not give a graph, and what follows from each class."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from graphcache_wire.base import CompileId, Count, Int, LogTail, Name, Seconds, Text, WireModel


class FailureClass(StrEnum):
    """Only ``rejected`` is the compiler's own word about the graph; all others are tried again."""

    REJECTED = "rejected"
    """The compiler refused the graph: kept as failed for a time, or until somebody asks to retry."""
    CRASHED = "crashed"
    """The compiler died of a signal or an exception that is not a refusal."""
    OUT_OF_MEMORY = "out_of_memory"
    TIME_LIMIT = "time_limit"
    LOST = "lost"
    """The lease expired: the holder died or could not reach the service."""
    CANCELLED = "cancelled"
    """The holder gave the lease back."""


class Failure(WireModel):
    """A compile that ended as failed."""

    failure_class: FailureClass
    message: Text
    log_tail: LogTail = ""
    attempts: Count


class Attempt(WireModel):
    """One try under one lease, kept for the record."""

    compile_id: CompileId
    generation: Int
    holder: Name
    toolchain: str
    started_at: datetime
    ended_at: datetime | None
    outcome: Literal["running", "ready", "failed"]
    failure_class: FailureClass | None = None
    message: Text = ""
    compile_s: Seconds | None = None
    cpu_s: Seconds | None = None
    peak_memory_bytes: Count | None = None
    log_tail: LogTail = ""
