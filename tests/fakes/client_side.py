"""What tests of the client share: keys that no other test has, a compiler that writes given bytes, the clock."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from fakes.running_service import RunningService
from graphcache_client import DiskStore, GraphCache, ServiceClient
from graphcache_wire import GraphKey


def new_key() -> GraphKey:
    fields = {"kind": "moe-experts-fwd", "e_hot": 4, "h": 64, "f": 32, "bucket": 8, "toolchain": "stub-1.0"}
    return GraphKey.model_validate(fields | {"options": {"flags": uuid4().hex}})


def writes(content: bytes, calls: list[GraphKey] | None = None) -> Callable[..., Path]:
    """A compiler that gives these bytes, and notes what it was asked for."""

    def compile_here(key: GraphKey, folder: Path, report) -> Path:
        if calls is not None:
            calls.append(key)
        report("compile", 0.5)
        path = folder / "graph"
        path.write_bytes(content)
        return path

    return compile_here


def publish(service: ServiceClient, key: GraphKey, content: bytes, folder: Path, **more) -> None:
    with GraphCache(service, DiskStore(folder / uuid4().hex), compile_here=writes(content), **more) as cache:
        assert cache.get(key).tier == "compiled"


def advance_clock(running: RunningService, seconds: float) -> None:
    """Move the database's clock; no process sleeps."""
    database = running.folder / "data" / "graphcache.db"
    with sqlite3.connect(database, timeout=10) as connection:
        connection.execute("UPDATE clock SET offset_s = offset_s + ?", (seconds,))
