"""DaemonThread: one background thread that runs jobs in order; a job that hangs never keeps the process from ending."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

R = TypeVar("R")


class DaemonThread:
    """The thread starts with the first job."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], R]) -> "Future[R]":
        """Run ``job`` behind those submitted before."""
        future: Future[R] = Future()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._jobs.put((job, future))
        return future

    def close(self) -> None:
        """End the thread after what was submitted."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, future = item
            try:
                future.set_result(job())
            except BaseException as error:  # noqa: BLE001 - carried to whoever waits for the future
                future.set_exception(error)
            # A job holds tensors: let go of the last one before waiting for the next.
            del item, job, future
