"""Where a blob lies: ``ab/abcdef...`` below the store's root, so that no folder grows beyond a few thousand names."""

from pathlib import PurePosixPath

from graphcache_wire.base import is_sha256

SHARD_DIGITS = 2
"""256 shards: 200,000 blobs are some 780 names a folder."""


def blob_name(digest: str) -> str:
    """The name below the root, the same in a folder and in a bucket.

    Raises:
        ValueError: ``digest`` is not 64 lower-case hexadecimal digits; nothing else ever becomes a path.
    """
    if not is_sha256(digest):
        raise ValueError(f"not a sha256 digest: {digest[:80]!r}")
    return f"{digest[:SHARD_DIGITS]}/{digest}"


def digest_of_name(name: str) -> str | None:
    """The digest that ``name`` stands for, or None for what is no blob's name."""
    digest = PurePosixPath(name).name
    return digest if is_sha256(digest) and name == blob_name(digest) else None
