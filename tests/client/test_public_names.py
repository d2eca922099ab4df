"""The client's public names are exactly these."""

import graphcache_client
import graphcache_wire
from graphcache_client import errors


def test_the_client_exports_what_it_documents():
    assert set(graphcache_client.__all__) == {
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
    }


def test_every_error_stands_in_the_tree_that_the_docstring_draws():
    kinds = [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert [name for name in kinds if name not in errors.__doc__] == []


def test_every_exported_name_of_the_wire_exists():
    assert [name for name in graphcache_wire.__all__ if not hasattr(graphcache_wire, name)] == []
