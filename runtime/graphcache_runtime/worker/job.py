"""One lease's work: compile in a child, then publish, or say why there is no graph."""

import logging
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Final

from graphcache_client import (
    HeldLease,
    LeaseLost,
    RequestRefused,
    ServiceClient,
    Signer,
)
from graphcache_client.outages import keep_trying
from graphcache_runtime.compiling.run import CompileDied, CompileLimits, CompileResult, run_compile
from graphcache_wire import Artifact, FailureClass, Lease

logger = logging.getLogger(__name__)

PUBLISH_FOR_S: Final = 3600.0
"""How long a finished graph is kept for a service that is away: less than the compile of a real one costs again."""


class CompileJob:
    """Holds one lease from claim to end. ``run`` belongs to one thread; ``stop`` may be called from any."""

    def __init__(
        self,
        service: ServiceClient,
        lease: Lease,
        toolchain: str,
        limits: CompileLimits,
        *,
        signer: Signer | None = None,
    ) -> None:
        self.lease = lease
        self._toolchain = toolchain
        self._limits = limits
        self._cancelled = threading.Event()
        self._stopping = False
        self._held = HeldLease(service, lease, signer=signer, on_lost=self._cancelled.set)

    def stop(self) -> None:
        """Kill the compile and give the lease back."""
        self._stopping = True
        self._cancelled.set()

    def run(self, root: Path) -> bool:
        """Whether a graph was published. Nothing is raised for what can go wrong with one compile: it is reported."""
        folder = Path(tempfile.mkdtemp(prefix="compile-", dir=root))
        try:
            with self._held as held:
                return self._compile_and_publish(held, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _compile_and_publish(self, held: HeldLease, folder: Path) -> bool:
        label = self.lease.key.label()
        logger.info("compiling %s, attempt %d", label, self.lease.attempt)
        try:
            compiled = run_compile(
                self._toolchain, self.lease.key, folder, held.report, self._limits, cancelled=self._cancelled
            )
        except CompileDied as death:
            self._report(held, death)
            return False
        logger.info("compiled %s in %.1f s (%s)", label, compiled.compile_s, _facts(compiled))
        return self._publish(held, compiled)

    def _report(self, held: HeldLease, death: CompileDied) -> None:
        if held.lost:
            return
        if self._stopping:
            held.release("the worker is stopping")
            return
        logger.warning("%s: %s", self.lease.key.label(), death)
        held.fail(
            death.failure_class,
            death.message,
            log_tail=death.log_tail,
            compile_s=death.compile_s,
            cpu_s=death.usage.cpu_s,
            peak_memory_bytes=death.usage.peak_memory_bytes,
        )

    def _publish(self, held: HeldLease, compiled: CompileResult) -> bool:
        """Publish, as often as it takes while the service is away and the lease is not another's."""

        def publish() -> Artifact:
            return held.publish(
                compiled.path,
                toolchain=self.lease.key.toolchain,
                compile_s=compiled.compile_s,
                cpu_s=compiled.cpu_s,
                peak_memory_bytes=compiled.peak_memory_bytes,
                log_tail=compiled.log_tail,
            )

        try:
            published = keep_trying(
                publish,
                give_up=lambda: held.lost or self._cancelled.is_set(),
                pause=self._pause,
                for_s=PUBLISH_FOR_S,
            )
        except LeaseLost as error:
            logger.warning("%s is compiled, but the lease was lost: %s", self.lease.key.label(), error)
            return False
        except RequestRefused as error:
            held.fail(FailureClass.CRASHED, f"compiled, but the service refused to store it: {error}")
            return False
        if published is None and not held.lost:
            held.release("compiled, but the service could not be reached")
        return published is not None

    def _pause(self, seconds: float) -> None:
        self._cancelled.wait(seconds)


def _facts(compiled: CompileResult) -> str:
    facts = {"cpu_s": f"{compiled.cpu_s:.1f}", "peak_mib": f"{compiled.peak_memory_bytes / 2**20:.0f}"} | compiled.facts
    return ", ".join(f"{name} {value}" for name, value in facts.items())
