"""HeldLease: one lease in this process's hands, kept alive by a thread until the compile is published or given up."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import TypeAdapter

from graphcache_client.errors import GraphcacheError, LeaseLost, RequestRefused, ServiceUnavailable
from graphcache_client.signing import Signer
from graphcache_client.transport import ServiceClient
from graphcache_client.verify import file_digest
from graphcache_wire import (
    Artifact,
    CompleteRequest,
    FailRequest,
    FailureClass,
    HeartbeatRequest,
    Lease,
    Published,
    ReleaseRequest,
)
from graphcache_wire.lease import Phase

logger = logging.getLogger(__name__)

HEARTBEATS_A_TTL = 3
_PHASE: TypeAdapter[Phase] = TypeAdapter(Phase)
LOG_TAIL_CHARACTERS = 16_000


class HeldLease:
    """Heartbeats from a thread while the ``with`` block runs.

    The block ends the lease with ``publish``, ``fail`` or ``release``; one that ends without any gives it back, so that
    the next asker need not wait for its expiry. After ``lost`` is true nothing sent under it counts.

    Args:
        on_lost: called once, from the heartbeat's thread, when the lease turns out to be another's.
    """

    def __init__(
        self,
        service: ServiceClient,
        lease: Lease,
        *,
        signer: Signer | None = None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.lease = lease
        self._service = service
        self._signer = signer
        self._on_lost = on_lost
        self._phase: Phase = "starting"
        self._progress: float | None = None
        self._lost = threading.Event()
        self._ended = threading.Event()
        self._beat_now = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease {lease.compile_id[:8]}", daemon=True)

    @property
    def lost(self) -> bool:
        return self._lost.is_set()

    def report(self, phase: str, progress: float | None = None) -> None:
        """Tell waiters where the compile is; a new phase is sent at once, progress with the next heartbeat.

        Raises:
            pydantic.ValidationError: the wire knows no such phase.
        """
        phase = _PHASE.validate_python(phase)
        changed = phase != self._phase
        self._phase, self._progress = phase, progress
        if changed:
            self._beat_now.set()

    def publish(
        self,
        path: Path,
        *,
        toolchain: str,
        compile_s: float,
        cpu_s: float | None = None,
        peak_memory_bytes: int | None = None,
        log_tail: str = "",
    ) -> Artifact:
        """Upload the bytes, then the metadata. Returns the artifact that stands: another's, where one came first.

        Raises:
            LeaseLost, RequestRefused, ServiceUnavailable: nothing was published.
        """
        self.report("upload")
        digest, size_bytes = file_digest(path)
        key_digest = self.lease.key.digest
        signature = self._signer.sign(key_digest, digest, size_bytes, toolchain) if self._signer else None
        self._service.upload(path, digest, size_bytes, self.lease)
        published = Published(
            blob=digest,
            size_bytes=size_bytes,
            toolchain=toolchain,
            compile_s=compile_s,
            cpu_s=cpu_s,
            peak_memory_bytes=peak_memory_bytes,
            log_tail=log_tail[-LOG_TAIL_CHARACTERS:],
            signature=signature,
        )
        request = CompleteRequest(generation=self.lease.generation, published=published)
        answer = self._service.complete(self.lease.compile_id, request)
        self._end()
        return answer.artifact

    def fail(
        self,
        failure_class: FailureClass,
        message: str,
        *,
        log_tail: str = "",
        compile_s: float | None = None,
        cpu_s: float | None = None,
        peak_memory_bytes: int | None = None,
    ) -> None:
        """Say that this attempt gave no graph, and why. An outage is logged: the lease then ends by its expiry."""
        request = FailRequest(
            generation=self.lease.generation,
            failure_class=failure_class,
            message=_printable(message)[:2_000],
            log_tail=log_tail[-LOG_TAIL_CHARACTERS:],
            compile_s=compile_s,
            cpu_s=cpu_s,
            peak_memory_bytes=peak_memory_bytes,
        )
        self._end_with("fail", lambda: self._service.fail(self.lease.compile_id, request))

    def release(self, reason: str) -> None:
        """Give the lease back: somebody else is granted it at once."""
        request = ReleaseRequest(generation=self.lease.generation, reason=_printable(reason)[:2_000])
        self._end_with("release", lambda: self._service.release(self.lease.compile_id, request))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._ended.is_set() and not self.lost:
            self.release(f"ended by {kind.__name__}" if kind else "ended without a result")
        self._end()
        self._thread.join()

    def _end_with(self, name: str, send: Callable[[], object]) -> None:
        try:
            if not self.lost:
                send()
        except GraphcacheError as error:
            logger.warning("%s of the lease on %s did not arrive: %s", name, self.lease.key.label(), error)
        finally:
            self._end()

    def _end(self) -> None:
        self._ended.set()
        self._beat_now.set()

    def _beat(self) -> None:
        pause_s = self.lease.ttl_s / HEARTBEATS_A_TTL
        while True:
            self._beat_now.wait(pause_s)
            self._beat_now.clear()
            if self._ended.is_set():
                return
            request = HeartbeatRequest(generation=self.lease.generation, phase=self._phase, progress=self._progress)
            try:
                self._service.heartbeat(self.lease.compile_id, request)
            except LeaseLost as error:
                if not self._ended.is_set():
                    logger.warning("the lease on %s is lost: %s", self.lease.key.label(), error)
                    self._lost.set()
                    self._on_lost()
                return
            except (ServiceUnavailable, RequestRefused) as error:
                logger.warning("a heartbeat for %s did not arrive: %s", self.lease.key.label(), error)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)
