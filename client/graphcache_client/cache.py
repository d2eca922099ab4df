"""GraphCache: memory -> disk -> service -> wait -> compile here. What training code asks for a graph."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from graphcache_client.disk import DiskStore
from graphcache_client.errors import (
    BadArtifact,
    CompileFailed,
    GraphcacheError,
    GraphMissing,
    GraphNotReady,
    ServiceUnavailable,
)
from graphcache_client.local_compile import CompileHere, LocalCompiler
from graphcache_client.signing import Signer
from graphcache_client.transport import ServiceClient
from graphcache_client.usage import UsageCounter
from graphcache_client.verify import check_file
from graphcache_wire import Artifact, Failed, Granted, GraphKey, Lease, Pending, Ready, ResolveRequest
from graphcache_wire.graphs import ReportRequest
from graphcache_wire.resolve import Purpose

logger = logging.getLogger(__name__)

Tier = Literal["memory", "disk", "service", "joined", "compiled"]
Mode = Literal["normal", "require_hit"]

WAIT_S = 50.0
"""How long one resolve is held open; the loop asks again until the deadline."""
GRACE_S = 2.0
"""How long after the deadline an answer may still arrive: the service answers a held resolve at the deadline itself."""
PATIENCE_S = 60.0
"""A restart of the service takes seconds; a compile takes many minutes, on every node that does not wait."""
OUTAGE_POLL_S = 0.5
BAD_DOWNLOADS = 2
"""After so many downloads with wrong bytes the caller is told: the service quarantines what it finds bad itself."""


@dataclass(frozen=True, slots=True)
class CachedGraph:
    """A checked graph on this node's disk, and where it came from.

    ``tier``: memory, disk, service (was there, or a worker made it because this one asked first), joined (waited for a
    compile that another asked for), compiled (here).
    """

    key: GraphKey
    path: Path
    artifact: Artifact
    tier: Tier
    seconds: float


class GraphCache:
    """Finds a graph, or has it compiled once for the whole cluster.

    Args:
        service: None works from disk and compiles here alone.
        store: the node's disk store.
        compile_here: compiles on this machine what nobody else compiles; None leaves that to workers.
        mode: ``require_hit`` never waits for a compile and never starts one.
        trusted_keys: public keys whose signatures are accepted; None accepts unsigned graphs.
        signer: signs what is compiled here.
        on_pending: told what the service says while a graph is not ready, for a progress display.
        patience_s: an outage is waited out this long before a compile here, or the error; and before a graph that was
            compiled here for all is used here alone.

    Safe to use from several threads and, over the same store, from several processes.
    """

    def __init__(
        self,
        service: ServiceClient | None,
        store: DiskStore,
        *,
        compile_here: CompileHere | None = None,
        mode: Mode = "normal",
        trusted_keys: Iterable[str] | None = None,
        signer: Signer | None = None,
        on_pending: Callable[[GraphKey, Pending], None] = lambda key, pending: None,
        patience_s: float = PATIENCE_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.service = service
        self.store = store
        self._compiler = (
            LocalCompiler(compile_here, store, service, signer, patience_s=patience_s, sleep=sleep)
            if compile_here
            else None
        )
        self._mode = mode
        self._trusted_keys = None if trusted_keys is None else frozenset(trusted_keys)
        self._on_pending = on_pending
        self._patience_s = patience_s
        self._sleep = sleep
        self._memory: dict[str, CachedGraph] = {}
        self._usage = UsageCounter(service) if service else None
        self._counts: dict[str, int] = dict.fromkeys(("memory", "disk", "service", "joined", "compiled", "broken"), 0)
        self._lock = threading.Lock()

    def get(self, key: GraphKey, *, purpose: Purpose = "train", deadline_s: float | None = None) -> CachedGraph:
        """The graph, from the nearest place; waits for its compile up to ``deadline_s`` (None: as long as it takes).

        Raises:
            ServiceUnavailable: the service cannot be asked, and nothing here can compile.
            GraphNotReady: the deadline passed.
            GraphMissing: mode require_hit.
            CompileFailed, CompileAttemptFailed: there is no graph to be had.
            BadArtifact: the service's bytes do not fit what it announced, or no trusted key signed them.
        """
        started = time.monotonic()
        if found := self._remembered(key):
            return found
        deadline = None if deadline_s is None else started + deadline_s
        with self.store.lock(key.digest, deadline):
            if found := self._remembered(key) or self._on_disk(key, started):
                return found
            return self._elsewhere(key, purpose, started, deadline)

    def try_get(self, key: GraphKey, *, purpose: Purpose = "train") -> CachedGraph | None:
        """The graph if it can be had now. Otherwise None, and workers are asked to compile it.

        Raises:
            ServiceUnavailable, CompileFailed, BadArtifact: as for ``get``.
        """
        started = time.monotonic()
        if found := self._remembered(key) or self._on_disk(key, started):
            return found
        if self.service is None:
            return None
        outcome = self.service.resolve(self._question(key, purpose, wait_s=0.0, can_compile=False))
        if isinstance(outcome, Ready):
            return self._fetch(key, outcome.artifact, "service", started)
        if isinstance(outcome, Failed):
            raise CompileFailed(key, outcome.failure, outcome.retry_after_s)
        return None

    def report_unusable(self, found: CachedGraph, reason: Literal["load_failed", "wrong_result"], message: str) -> None:
        """Forget a graph that could not be used and tell the service, which compiles it anew once reports agree."""
        self._memory.pop(found.key.digest, None)
        self.store.forget(found.key.digest)
        self._report(found.key, found.artifact.blob, reason, message)

    def count_memory_hit(self, key: GraphKey) -> None:
        """Count a use of a graph that the caller keeps loaded, so that the statistics know what it is worth."""
        self._count("memory")
        if self._usage:
            self._usage.hit(key.digest, "memory")

    def counts(self) -> dict[str, int]:
        """How many gets each place served, and how many disk entries were broken."""
        with self._lock:
            return dict(self._counts)

    def close(self) -> None:
        """Tell the service the last counts. The service client stays open: it is the caller's."""
        if self._usage:
            self._usage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _remembered(self, key: GraphKey) -> CachedGraph | None:
        found = self._memory.get(key.digest)
        if found is None:
            return None
        if not self.store.still_holds(found.artifact):
            self._memory.pop(key.digest, None)
            return None
        self.count_memory_hit(key)
        return found

    def _on_disk(self, key: GraphKey, started: float) -> CachedGraph | None:
        found = self.store.read(key.digest, self._trusted_keys, on_broken=self._broken)
        if found is None:
            return None
        if self._usage:
            self._usage.hit(key.digest, "disk")
        return self._keep(key, found[0], found[1], "disk", started)

    def _elsewhere(self, key: GraphKey, purpose: Purpose, started: float, deadline: float | None) -> CachedGraph:
        if self.service is None:
            return self._compiled_alone(key, started)
        try:
            return self._patiently(self.service, key, purpose, started, deadline)
        except ServiceUnavailable as error:
            if self._compiler is None or self._mode == "require_hit":
                raise
            logger.warning("%s; compiling %s here", error, key.label())
            return self._compiled_alone(key, started)

    def _patiently(
        self, service: ServiceClient, key: GraphKey, purpose: Purpose, started: float, deadline: float | None
    ) -> CachedGraph:
        """Ask the service; a short outage, such as a restart, is waited out, for a compile costs far more.

        Raises:
            ServiceUnavailable: the outage outlasted ``patience_s``, or the deadline.
        """
        away_since: float | None = None
        while True:
            try:
                return self._from_service(service, key, purpose, started, deadline)
            except ServiceUnavailable as error:
                now = time.monotonic()
                away_since = now if away_since is None or service.answered_since(away_since) else away_since
                over = now - away_since >= self._patience_s
                if over or (deadline is not None and now >= deadline):
                    raise
                logger.info("%s; asking again for %s", error, key.label())
                self._sleep(OUTAGE_POLL_S)

    def _from_service(
        self, service: ServiceClient, key: GraphKey, purpose: Purpose, started: float, deadline: float | None
    ) -> CachedGraph:
        can_compile = self._compiler is not None and self._mode == "normal"
        tier: Tier = "service"
        bad_downloads = 0
        while True:
            wait_s = 0.0 if self._mode == "require_hit" else _wait_s(deadline)
            question = self._question(key, purpose, wait_s=wait_s, can_compile=can_compile)
            outcome = service.resolve(question, deadline=None if deadline is None else deadline + GRACE_S)
            match outcome:
                case Ready(artifact=artifact, joined=joined):
                    try:
                        return self._fetch(key, artifact, "joined" if joined else tier, started)
                    except BadArtifact:
                        bad_downloads += 1
                        if bad_downloads == BAD_DOWNLOADS:
                            raise
                case Granted(lease=lease):
                    return self._compiled_for_all(service, lease, started)
                case Failed(failure=failure, retry_after_s=retry_after_s):
                    raise CompileFailed(key, failure, retry_after_s)
                case Pending() if self._mode == "require_hit":
                    raise GraphMissing(key)
                case Pending():
                    tier = "joined"
                    self._on_pending(key, outcome)
                    if deadline is not None and time.monotonic() >= deadline:
                        raise GraphNotReady(key, outcome, time.monotonic() - started)

    def _question(self, key: GraphKey, purpose: Purpose, *, wait_s: float, can_compile: bool) -> ResolveRequest:
        assert self.service is not None
        return ResolveRequest(
            key=key,
            owner=self.service.owner,
            holder=self.service.holder,
            wait_s=wait_s,
            can_compile=can_compile,
            purpose=purpose,
        )

    def _fetch(self, key: GraphKey, artifact: Artifact, tier: Tier, started: float) -> CachedGraph:
        assert self.service is not None
        if artifact.key_digest != key.digest or artifact.toolchain != key.toolchain:
            raise BadArtifact("bad_digest", f"the service answered {key.label()} with an artifact of another key")
        with self.store.temporary_file() as temporary:
            self.service.download(artifact.blob, artifact.size_bytes, temporary)
            try:
                check_file(temporary, artifact, self._trusted_keys)
            except BadArtifact as error:
                self._report(key, artifact.blob, error.reason, str(error))
                raise
            path = self.store.write(artifact, temporary)
        return self._keep(key, path, artifact, tier, started)

    def _compiled_for_all(self, service: ServiceClient, lease: Lease, started: float) -> CachedGraph:
        assert self._compiler is not None, "a lease is asked for only where something here compiles"
        path, artifact = self._compiler.under_lease(service, lease)
        if path is None:
            return self._fetch(lease.key, artifact, "joined", started)
        return self._keep(lease.key, path, artifact, "compiled", started)

    def _compiled_alone(self, key: GraphKey, started: float) -> CachedGraph:
        if self._mode == "require_hit":
            raise GraphMissing(key)
        if self._compiler is None:
            raise ServiceUnavailable(f"{key.label()} is not on this node; no service is set, and nothing here compiles")
        path, artifact = self._compiler.alone(key)
        return self._keep(key, path, artifact, "compiled", started)

    def _keep(self, key: GraphKey, path: Path, artifact: Artifact, tier: Tier, started: float) -> CachedGraph:
        self._count(tier)
        found = CachedGraph(key, path, artifact, tier, time.monotonic() - started)
        self._memory[key.digest] = CachedGraph(key, path, artifact, "memory", 0.0)
        return found

    def _report(self, key: GraphKey, blob: str, reason: str, message: str) -> None:
        if self.service is None:
            return
        facts = {"blob": blob, "owner": self.service.owner, "holder": self.service.holder, "reason": reason}
        try:
            request = ReportRequest.model_validate(facts | {"message": message[:2_000]})
            self.service.report(key.digest, request)
        except GraphcacheError as error:
            logger.warning("the service was not told that %s is unusable: %s", key.label(), error)

    def _broken(self, reason: str) -> None:
        self._count("broken")
        logger.warning("an entry of the local cache cannot be used: %s", reason)

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1


def _wait_s(deadline: float | None) -> float:
    return WAIT_S if deadline is None else min(WAIT_S, max(0.0, deadline - time.monotonic()))
