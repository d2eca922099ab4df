"""Worker: claims compiles from the service, runs a few at once, and publishes. Speaks HTTP alone."""

import logging
import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final

from graphcache_client import HeldLease, ServiceClient, ServiceUnavailable, Signer
from graphcache_runtime.worker.job import CompileJob
from graphcache_runtime.worker.settings import WorkerSettings
from graphcache_wire import ClaimRequest, Lease

logger = logging.getLogger(__name__)

CLAIM_WAIT_S: Final = 5.0
"""How long a claim is held open: also the longest that an idle worker takes to stop."""
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0


class Worker:
    """A loop that claims while there is room, and a thread for each compile.

    A compile that failed before is claimed only when nothing else runs, and then runs alone with all the memory: it may
    have failed for want of it.

    Args:
        versions: from version strings, which are what is claimed, to the names of their toolchains.
        root: the folder that compiles work in; emptied of each as it ends.
    """

    def __init__(
        self,
        service: ServiceClient,
        settings: WorkerSettings,
        versions: Mapping[str, str],
        root: Path,
        *,
        signer: Signer | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._service = service
        self._settings = settings
        self._versions = versions
        self._root = root
        self._signer = signer
        self._jitter = jitter
        self._stopping = threading.Event()
        self._running: dict[Future[bool], CompileJob] = {}
        self._alone = False
        self._published = 0
        self._queued = 0
        self._outage_pause_s = FIRST_PAUSE_S

    def stop(self) -> None:
        """Give all leases back and end. Safe to call from a signal handler, and again."""
        self._stopping.set()
        for job in list(self._running.values()):
            job.stop()

    def run(self) -> int:
        """Work until stopped or, with ``drain``, until the queue is empty. Returns how many graphs were published.

        Raises:
            RequestRefused: the service refuses this worker's claims, for its token or its toolchains.
        """
        with ThreadPoolExecutor(self._settings.jobs, thread_name_prefix="compile") as pool:
            try:
                while not self._stopping.is_set():
                    self._reap(block=not self._has_room())
                    if self._has_room() and not self._claim_one(pool):
                        break
            finally:
                self.stop()
        self._reap(block=False)
        return self._published

    def _claim_one(self, pool: ThreadPoolExecutor) -> bool:
        """Claim and start a compile, if there is one. False when a drained queue says that the work is done."""
        try:
            answer = self._service.claim(self._question())
        except ServiceUnavailable as error:
            self._wait_out(error)
            return True
        self._outage_pause_s, self._queued = FIRST_PAUSE_S, answer.queued
        # What ended while the claim was held open takes no room any more.
        self._reap(block=False)
        if answer.lease:
            self._start(pool, answer.lease)
            return True
        return not self._settings.drain or bool(self._running) or answer.queued > 0

    def _question(self) -> ClaimRequest:
        alone = not self._running
        at_once = self._settings.drain and alone and self._queued == 0
        return ClaimRequest(
            owner=self._service.owner,
            holder=self._service.holder,
            toolchains=list(self._versions),
            wait_s=0.0 if at_once else CLAIM_WAIT_S,
            max_memory_bytes=self._settings.limits(alone).memory_limit_bytes,
            alone=alone,
        )

    def _wait_out(self, outage: ServiceUnavailable) -> None:
        pause_s = self._outage_pause_s * (0.5 + self._jitter())
        logger.warning("%s; claiming again in %.1f s", outage, pause_s)
        self._stopping.wait(pause_s)
        self._outage_pause_s = min(2 * self._outage_pause_s, LONGEST_PAUSE_S)

    def _has_room(self) -> bool:
        return len(self._running) < (1 if self._alone else self._settings.jobs)

    def _start(self, pool: ThreadPoolExecutor, lease: Lease) -> None:
        if self._stopping.is_set():
            HeldLease(self._service, lease).release("the worker is stopping")
            return
        self._alone = not self._running and lease.attempt > 1
        toolchain = self._versions[lease.key.toolchain]
        job = CompileJob(self._service, lease, toolchain, self._settings.limits(self._alone), signer=self._signer)
        self._running[pool.submit(job.run, self._root)] = job

    def _reap(self, *, block: bool) -> None:
        """Forget the compiles that ended, and count those that published. What one raised is logged here."""
        if not self._running:
            return
        done, _ = wait(self._running, timeout=None if block else 0.0, return_when=FIRST_COMPLETED)
        for future in done:
            job = self._running.pop(future)
            if error := future.exception():
                logger.error("%s ended with an error of the worker", job.lease.key.label(), exc_info=error)
            else:
                self._published += future.result()
        self._alone = self._alone and bool(self._running)
