"""Finds compiled graphs for training code and speaks to the service. Imports neither torch nor the service."""

from graphcache_client.cache import CachedGraph, GraphCache
from graphcache_client.disk import DiskStore
from graphcache_client.errors import (
    BadArtifact,
    CompileAttemptFailed,
    CompileFailed,
    GraphcacheError,
    GraphMissing,
    GraphNotReady,
    InvalidInput,
    LeaseLost,
    RequestRefused,
    ServiceUnavailable,
    StoreUnusable,
)
from graphcache_client.lease import HeldLease
from graphcache_client.local_compile import CompileHere
from graphcache_client.signing import Signer
from graphcache_client.transport import ServiceClient

__all__ = [
    "BadArtifact",
    "CachedGraph",
    "CompileAttemptFailed",
    "CompileFailed",
    "CompileHere",
    "DiskStore",
    "GraphCache",
    "GraphMissing",
    "GraphNotReady",
    "GraphcacheError",
    "HeldLease",
    "InvalidInput",
    "LeaseLost",
    "RequestRefused",
    "ServiceClient",
    "ServiceUnavailable",
    "Signer",
    "StoreUnusable",
]
