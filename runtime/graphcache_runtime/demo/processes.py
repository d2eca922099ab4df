"""The demo's processes: started, watched, and ended by their pid, whatever happens."""

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

END_S = 20.0
POLL_S = 0.05


class ProcessFailed(Exception):
    """A process ended that should not have; the message holds the end of its log."""


class Process:
    """A child whose standard error goes to a log, and whose lines of JSON arrive in ``events``."""

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        self.name = name
        self.log = log
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        with log.open("wb") as errors:
            self._child = subprocess.Popen(
                [sys.executable, "-u", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            with contextlib.suppress(json.JSONDecodeError):
                event = json.loads(line)
                if isinstance(event, dict):
                    self.events.put(event)

    @property
    def pid(self) -> int:
        return self._child.pid

    def ended(self) -> int | None:
        """Its exit status, once it ended and its last event arrived."""
        status = self._child.poll()
        if status is not None:
            self._reader.join()
        return status

    def failure(self) -> ProcessFailed:
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
        return ProcessFailed(f"{self.name} ended with status {self._child.returncode}; the end of {self.log}:\n{tail}")

    def stop(self) -> None:
        """SIGTERM, time to give its leases back, then SIGKILL."""
        self._child.terminate()
        try:
            self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


@contextlib.contextmanager
def running(name: str, arguments: list[str], log: Path) -> Iterator[Process]:
    process = Process(name, arguments, log)
    try:
        yield process
    finally:
        process.stop()


def wait_for_file(path: Path, process: Process, within_s: float) -> str:
    """What a process writes into ``path`` once it is ready.

    Raises:
        ProcessFailed: it ended first, or took too long.
    """
    deadline = time.monotonic() + within_s
    while not path.exists():
        if process.ended() is not None or time.monotonic() > deadline:
            raise process.failure()
        time.sleep(POLL_S)
    return path.read_text().strip()
