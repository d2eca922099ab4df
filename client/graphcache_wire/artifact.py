"""Artifact: what a key leads to, once its graph is compiled and stored."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import StringConstraints

from graphcache_wire.base import Count, Name, OwnerId, Seconds, Sha256, ToolchainVersion, WireModel

MAX_BLOB_BYTES = 16 * 2**30


class Signature(WireModel):
    """Made by whoever compiled; checked by clients that have trusted keys, before a byte is parsed."""

    algorithm: Literal["ed25519"]
    public_key: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    value: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]


def signed_statement(key_digest: str, blob: str, size_bytes: int, toolchain: str) -> bytes:
    """The bytes that are signed: key, digest, size and toolchain, in one unambiguous form."""
    return f"graphcache artifact v1\n{key_digest}\n{blob}\n{size_bytes}\n{toolchain}\n".encode("ascii")


class Artifact(WireModel):
    """A published graph: where its bytes are and what they cost."""

    key_digest: Sha256
    blob: Sha256
    size_bytes: Count
    toolchain: ToolchainVersion
    compile_s: Seconds
    producer: Name
    producer_id: OwnerId
    created_at: datetime
    signature: Signature | None = None


class Published(WireModel):
    """What a holder says of the graph it compiled and uploaded."""

    blob: Sha256
    size_bytes: Count
    toolchain: ToolchainVersion
    compile_s: Seconds
    cpu_s: Seconds | None = None
    peak_memory_bytes: Count | None = None
    log_tail: Annotated[str, StringConstraints(max_length=64_000)] = ""
    signature: Signature | None = None
