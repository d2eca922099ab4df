"""Shares the vendor's cache entries through the service: push what is here, pull what others have."""

import logging
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphcache_client import BadArtifact, HeldLease, ServiceClient, Signer
from graphcache_client.verify import check_file
from graphcache_runtime.vendor.cache import PREFIX, BadVendorEntry, VendorEntry, entries, pack, unpack
from graphcache_wire import Granted, Kind, Ready, ResolveRequest
from graphcache_wire.graphs import GraphSummary

logger = logging.getLogger(__name__)

PAGE: Final = "200"


@dataclass(frozen=True, slots=True)
class Shared:
    """``moved`` entries went up or came down, ``there`` were already; ``skipped`` are with others or were refused."""

    moved: int = 0
    there: int = 0
    skipped: int = 0
    moved_bytes: int = 0
    moved_compile_s: float = 0.0

    def __add__(self, other: "Shared") -> "Shared":
        return Shared(
            self.moved + other.moved,
            self.there + other.there,
            self.skipped + other.skipped,
            self.moved_bytes + other.moved_bytes,
            self.moved_compile_s + other.moved_compile_s,
        )


def push(service: ServiceClient, root: Path, signer: Signer | None = None) -> Shared:
    """Publish every whole entry of the folder that the service lacks. Safe to repeat.

    Raises:
        ServiceUnavailable, RequestRefused: what was pushed before stays.
    """
    return sum((_push_one(service, entry, signer) for entry in entries(root)), Shared())


def pull(service: ServiceClient, root: Path, revision: str, trusted_keys: Iterable[str] | None = None) -> Shared:
    """Fetch every entry of this revision of the vendor's compiler that the folder lacks. Safe to repeat.

    Args:
        trusted_keys: public keys whose signatures are accepted; None accepts unsigned entries.

    Raises:
        ServiceUnavailable, RequestRefused: what was pulled before stays.
    """
    have = {entry.key for entry in entries(root)}
    trusted = None if trusted_keys is None else frozenset(trusted_keys)
    moved = Shared()
    for found in _stored(service, revision):
        moved += Shared(there=1) if found.key in have else _pull_one(service, root, found, trusted)
    return moved


def _push_one(service: ServiceClient, entry: VendorEntry, signer: Signer | None) -> Shared:
    question = ResolveRequest(key=entry.key, owner=service.owner, holder=service.holder, can_compile=True)
    outcome = service.resolve(question)
    if isinstance(outcome, Ready):
        return Shared(there=1)
    if not isinstance(outcome, Granted):
        logger.warning("%s is not pushed: the service says %s", entry.key.label(), outcome.state)
        return Shared(skipped=1)
    with tempfile.TemporaryDirectory(prefix="graphcache-vendor-") as folder:
        packed = Path(folder) / "entry.zip"
        with HeldLease(service, outcome.lease, signer=signer) as held:
            pack(entry, packed)
            held.publish(packed, toolchain=entry.key.toolchain, compile_s=entry.compile_s)
        return Shared(moved=1, moved_bytes=packed.stat().st_size, moved_compile_s=entry.compile_s)


def _pull_one(service: ServiceClient, root: Path, found: GraphSummary, trusted: frozenset[str] | None) -> Shared:
    if found.artifact is None:
        return Shared(skipped=1)
    artifact = found.artifact
    with tempfile.TemporaryDirectory(prefix="graphcache-vendor-") as folder:
        packed = Path(folder) / "entry.zip"
        service.download(artifact.blob, artifact.size_bytes, packed)
        try:
            check_file(packed, artifact, trusted)
            unpack(packed, found.key, root)
        except (BadArtifact, BadVendorEntry) as error:
            logger.warning("%s is not used: %s", found.key.label(), error)
            return Shared(skipped=1)
    return Shared(moved=1, moved_bytes=artifact.size_bytes, moved_compile_s=artifact.compile_s)


def _stored(service: ServiceClient, revision: str) -> Iterator[GraphSummary]:
    filters = {"kind": Kind.VENDOR_ENTRY, "toolchain": f"{PREFIX}{revision}", "state": "ready", "limit": PAGE}
    while True:
        page = service.graphs(**filters)
        yield from page.graphs
        if page.next_cursor is None:
            return
        filters["cursor"] = page.next_cursor
