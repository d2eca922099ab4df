"""Checks of bytes, in the order that matters: size, digest, signature; only then may anyone parse them."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from graphcache_client.errors import BadArtifact
from graphcache_client.signing import check_signature
from graphcache_wire import Artifact

READ_BYTES = 1 << 20


def file_digest(path: Path) -> tuple[str, int]:
    """sha256 and size in bytes of a file, read in pieces of 1 MiB."""
    hasher = hashlib.sha256()
    size_bytes = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(READ_BYTES):
            hasher.update(piece)
            size_bytes += len(piece)
    return hasher.hexdigest(), size_bytes


def check_file(path: Path, artifact: Artifact, trusted_keys: Iterable[str] | None) -> None:
    """Check a file against what the service said of it.

    Args:
        trusted_keys: public keys in hexadecimal; None accepts unsigned artifacts, an empty set accepts none.

    Raises:
        BadArtifact: names which of size, digest and signature is wrong.
    """
    found_bytes = path.stat().st_size
    if found_bytes != artifact.size_bytes:
        raise BadArtifact("bad_size", f"{path}: {found_bytes} bytes, announced were {artifact.size_bytes}")
    digest, _ = file_digest(path)
    if digest != artifact.blob:
        raise BadArtifact("bad_digest", f"{path}: sha256 is {digest}, announced was {artifact.blob}")
    if trusted_keys is not None:
        check_signature(artifact, trusted_keys)
