"""LocalCompiler: compiles on this machine, for all where it holds a lease, for itself where the service is away."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from graphcache_client.disk import DiskStore
from graphcache_client.errors import (
    CompileAttemptFailed,
    LeaseLost,
    RequestRefused,
)
from graphcache_client.lease import HeldLease
from graphcache_client.outages import keep_trying
from graphcache_client.signing import Signer
from graphcache_client.transport import ServiceClient
from graphcache_client.verify import file_digest
from graphcache_wire import Artifact, GraphKey, Lease

logger = logging.getLogger(__name__)

ReportPhase = Callable[[str, float | None], None]
CompileHere = Callable[[GraphKey, Path, ReportPhase], Path]
"""Compiles a key inside an empty folder and returns the file. Raises ``CompileAttemptFailed`` where it cannot."""

NOBODY = "0" * 32
"""The producer's id of a graph that was compiled without a service."""


class LocalCompiler:
    """Compiles with ``compile_here`` and keeps what came out in the node's store."""

    def __init__(
        self,
        compile_here: CompileHere,
        store: DiskStore,
        service: ServiceClient | None,
        signer: Signer | None,
        *,
        patience_s: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._compile_here = compile_here
        self._store = store
        self._service = service
        self._signer = signer
        self._patience_s = patience_s
        self._sleep = sleep

    def alone(self, key: GraphKey) -> tuple[Path, Artifact]:
        """Compile for this node: nobody is told.

        Raises:
            CompileAttemptFailed: there is no graph.
        """
        with self._store.temporary_folder() as folder:
            began = time.monotonic()
            compiled = self._compile_here(key, folder, _ignore)
            artifact = self._unpublished(key, compiled, time.monotonic() - began)
            return self._store.write(artifact, compiled), artifact

    def under_lease(self, service: ServiceClient, lease: Lease) -> tuple[Path | None, Artifact]:
        """Compile for all: heartbeat, publish, or say why there is no graph.

        Returns:
            The path in the store and the artifact; None and another's artifact, where that was published first.

        Raises:
            CompileAttemptFailed: there is no graph; the service was told.
        """
        with HeldLease(service, lease, signer=self._signer) as held, self._store.temporary_folder() as folder:
            began = time.monotonic()
            try:
                compiled = self._compile_here(lease.key, folder, held.report)
            except CompileAttemptFailed as error:
                held.fail(error.failure_class, error.message, log_tail=error.log_tail)
                raise
            artifact = self._published(held, compiled, time.monotonic() - began)
            if artifact.blob != file_digest(compiled)[0]:
                return None, artifact
            return self._store.write(artifact, compiled), artifact

    def _published(self, held: HeldLease, compiled: Path, compile_s: float) -> Artifact:
        """Publish; an outage is waited out for a while, for the others would compile for long what is here.

        A longer one, a full store or a lost lease costs the others this graph, never this process.
        """
        key = held.lease.key
        try:
            published = keep_trying(
                lambda: held.publish(compiled, toolchain=key.toolchain, compile_s=compile_s),
                give_up=lambda: held.lost,
                pause=self._sleep,
                for_s=self._patience_s,
            )
            if published:
                return published
            why = "the service stayed away"
        except (LeaseLost, RequestRefused) as error:
            why = str(error)
        logger.warning("%s is compiled and used here, but not published: %s", key.label(), why)
        return self._unpublished(key, compiled, compile_s)

    def _unpublished(self, key: GraphKey, compiled: Path, compile_s: float) -> Artifact:
        digest, size_bytes = file_digest(compiled)
        signature = self._signer.sign(key.digest, digest, size_bytes, key.toolchain) if self._signer else None
        return Artifact(
            key_digest=key.digest,
            blob=digest,
            size_bytes=size_bytes,
            toolchain=key.toolchain,
            compile_s=compile_s,
            producer=self._service.holder if self._service else "local",
            producer_id=self._service.owner if self._service else NOBODY,
            created_at=datetime.now(UTC),
            signature=signature,
        )


def _ignore(phase: str, progress: float | None) -> None:
    """Nobody watches a compile that has no lease."""
