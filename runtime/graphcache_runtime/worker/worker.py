"""Worker: claims compiles from the service, runs a few at once, and publishes. Speaks HTTP alone."""

import logging
import random
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from graphcache_client import GraphcacheError, ServiceClient, Signer
from graphcache_runtime.worker.claims import Answer, Claims
from graphcache_runtime.worker.job import CompileJob
from graphcache_runtime.worker.left import reasons_left
from graphcache_runtime.worker.settings import WorkerSettings
from graphcache_wire import ClaimRequest, ClaimResponse, Lease

logger = logging.getLogger(__name__)

IDLE_WAIT_S: Final = 30.0
"""How long the claim of an idle worker is held open; the service wakes it when there is work."""
BUSY_WAIT_S: Final = 5.0
"""The same while others run, or with ``drain``: for so long it does not see that they ended or that nothing is left."""


class Worker:
    """A loop over what happens: a claim was answered, a compile ended, it was told to stop.

    It claims while there is room, and each compile has a thread. A compile that failed before is claimed only when
    nothing else runs, and then runs alone with all the memory: it may have failed for want of it.

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
        # The one way in for other threads and signal handlers: put() of a SimpleQueue may interrupt its own get().
        self._happened: SimpleQueue[Answer | Future[bool] | None] = SimpleQueue()
        self._claims = Claims(service, self._happened.put, jitter=jitter)
        self._asking = False
        self._done = False
        self._running: dict[Future[bool], CompileJob] = {}
        self._alone = False
        self._published = 0
        self._queued = 0

    def stop(self) -> None:
        """Give all leases back and end. Safe to call from a signal handler or another thread, and again."""
        self._happened.put(None)

    def run(self) -> int:
        """Work until stopped or, with ``drain``, until nothing is queued that this worker could take, now or later.

        Returns how many graphs were published.

        Raises:
            RequestRefused: the service refuses this worker's claims, for its token or its toolchains.
        """
        with ThreadPoolExecutor(self._settings.jobs, thread_name_prefix="compile") as pool:
            try:
                while not self._done:
                    self._claim_if_there_is_room()
                    self._take(self._happened.get(), pool)
            finally:
                self._give_everything_back()
        for ended in list(self._running):
            self._end(ended)
        return self._published

    def _claim_if_there_is_room(self) -> None:
        if not self._asking and len(self._running) < (1 if self._alone else self._settings.jobs):
            self._asking = True
            self._claims.ask(self._question())

    def _take(self, happened: Answer | Future[bool] | None, pool: ThreadPoolExecutor) -> None:
        if isinstance(happened, ClaimResponse):
            self._asking, self._queued = False, happened.queued
            if happened.lease:
                self._start(pool, happened.lease)
            elif self._settings.drain and not self._running and happened.queued == 0:
                self._done = True
                self._say_what_is_left()
        elif isinstance(happened, Future):
            self._end(happened)
        elif isinstance(happened, Exception):
            raise happened
        else:
            self._done = True

    def _question(self) -> ClaimRequest:
        alone = not self._running
        patient_s = IDLE_WAIT_S if alone and not self._settings.drain else BUSY_WAIT_S
        at_once = self._settings.drain and alone and self._queued == 0
        return ClaimRequest(
            owner=self._service.owner,
            holder=self._service.holder,
            toolchains=list(self._versions),
            wait_s=0.0 if at_once else patient_s,
            max_memory_bytes=self._settings.limits(alone).memory_limit_bytes,
            alone=alone,
        )

    def _start(self, pool: ThreadPoolExecutor, lease: Lease) -> None:
        self._alone = not self._running and lease.attempt > 1
        toolchain = self._versions[lease.key.toolchain]
        job = CompileJob(self._service, lease, toolchain, self._settings.limits(self._alone), signer=self._signer)
        future = pool.submit(job.run, self._root)
        self._running[future] = job
        future.add_done_callback(self._happened.put)

    def _end(self, ended: Future[bool]) -> None:
        """Forget a compile that ended, and count it if it published. What it raised is logged here."""
        job = self._running.pop(ended)
        if error := ended.exception():
            logger.error("%s ended with an error of the worker", job.lease.key.label(), exc_info=error)
        else:
            self._published += ended.result()
        self._alone = self._alone and bool(self._running)

    def _give_everything_back(self) -> None:
        self._claims.give_up()
        for job in self._running.values():
            job.stop()
        while not self._happened.empty():
            unread = self._happened.get()
            if isinstance(unread, ClaimResponse) and unread.lease:
                self._claims.give_back(unread.lease)

    def _say_what_is_left(self) -> None:
        try:
            page = self._service.graphs(state="queued")
        except GraphcacheError as error:
            logger.warning("the queue is drained; what else is queued cannot be told: %s", error)
            return
        for reason in reasons_left(page.graphs, self._versions):
            logger.info("left to others: %s", reason)
        if page.next_cursor:
            logger.info("left to others: these are the first %d; there are more", len(page.graphs))
