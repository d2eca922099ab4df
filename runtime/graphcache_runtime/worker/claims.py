"""Claims: asks the service for compiles in a thread, so that a worker that is told to stop need not wait for it."""

import logging
import random
import threading
import time
from collections.abc import Callable

from graphcache_client import HeldLease, ServiceClient, ServiceUnavailable
from graphcache_client.outages import growing_pauses
from graphcache_wire import ClaimRequest, ClaimResponse, Lease

logger = logging.getLogger(__name__)

Answer = ClaimResponse | Exception


class Claims:
    """One claim at a time. An outage of the service is waited out with growing pauses.

    Args:
        answered: called from the thread with the answer, or with the error that keeps this worker from asking again.
    """

    def __init__(
        self,
        service: ServiceClient,
        answered: Callable[[Answer], None],
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._service = service
        self._answered = answered
        self._jitter = jitter
        self._lock = threading.Lock()
        self._given_up = False

    def ask(self, question: ClaimRequest) -> None:
        threading.Thread(target=self._ask, args=(question,), name="claim", daemon=True).start()

    def give_up(self) -> None:
        """Nothing is answered any more; a lease that still comes goes back at once.

        Once this process is gone, the service sees the closed connection and grants nothing on it.
        """
        with self._lock:
            self._given_up = True

    def give_back(self, lease: Lease) -> None:
        HeldLease(self._service, lease).release("the worker is stopping")

    def _ask(self, question: ClaimRequest) -> None:
        try:
            answer: Answer = self._claimed(question)
        # Whatever it is, the worker's own thread must hear of it.
        except Exception as error:  # noqa: BLE001
            answer = error
        with self._lock:
            if not self._given_up:
                self._answered(answer)
                return
        if isinstance(answer, ClaimResponse) and answer.lease:
            self.give_back(answer.lease)

    def _claimed(self, question: ClaimRequest) -> ClaimResponse:
        pauses = growing_pauses()
        while True:
            try:
                return self._service.claim(question)
            except ServiceUnavailable as error:
                if self._given_up:
                    raise
                pause_s = next(pauses) * (0.5 + self._jitter())
                logger.warning("%s; claiming again in %.1f s", error, pause_s)
            time.sleep(pause_s)
