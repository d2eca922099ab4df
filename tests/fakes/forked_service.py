"""A real service that starts in a moment, being forked from a process that has loaded it, and may die at a given step.

    python forked_service.py

Reads orders as lines of JSON; for each it forks a service and prints its pid.
"""

import asyncio
import functools
import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

START_LIMIT_S = 60


@dataclass(frozen=True)
class Step:
    """A function of the service, and whether the service dies before or after its first call."""

    function: str
    moment: str

    def __str__(self) -> str:
        return f"{self.moment} {self.function}"


class Forker:
    """The process that services are forked from."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def fork(self, order: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class ForkedService:
    """A service of one folder; ``start`` after its death keeps its data."""

    def __init__(self, forker: Forker, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self._forker = forker
        self._pid: int | None = None
        folder.mkdir(parents=True)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self, die_at: Step | None = None) -> None:
        ready = self.folder / f"ready-{uuid4().hex}"
        order = {"data_dir": str(self.data), "ready_file": str(ready), "log": str(self.folder / "log")}
        if die_at is not None:
            order |= {"function": die_at.function, "moment": die_at.moment}
        self._pid = self._forker.fork(order)
        deadline = time.monotonic() + START_LIMIT_S
        while not ready.exists():
            if not self.lives() or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text(errors="replace")[-3000:])
            time.sleep(0.01)
        self.url = ready.read_text().strip()

    def lives(self) -> bool:
        try:
            os.kill(self._pid or 0, 0)
        except ProcessLookupError:
            return False
        return self._pid is not None

    def wait_for_death(self) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while self.lives():
            assert time.monotonic() < deadline, "the service never came to the step"
            time.sleep(0.005)
        self._pid = None

    def kill(self) -> None:
        if self._pid is not None and self.lives():
            os.kill(self._pid, signal.SIGKILL)
            self.wait_for_death()


def die_at(step: Step) -> None:
    """Make this process kill itself before or after the first call of a function."""
    path = step.function.split(".")
    place = next(n for n in range(len(path) - 1, 0, -1) if _is_module(path[:n]))
    owner: Any = importlib.import_module(".".join(["graphcache_service", *path[:place]]))
    for name in path[place:-1]:
        owner = getattr(owner, name)
    setattr(owner, path[-1], _deadly(getattr(owner, path[-1]), step.moment))


def _is_module(path: list[str]) -> bool:
    try:
        importlib.import_module(".".join(["graphcache_service", *path]))
    except ModuleNotFoundError:
        return False
    return True


def _deadly(call: Callable[..., Any], moment: str) -> Callable[..., Any]:
    def die(when: str) -> None:
        if when == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    @functools.wraps(call)
    def plain(*args: Any, **kwargs: Any) -> Any:
        die("before")
        result = call(*args, **kwargs)
        die("after")
        return result

    @functools.wraps(call)
    async def waiting(*args: Any, **kwargs: Any) -> Any:
        die("before")
        result = await call(*args, **kwargs)
        die("after")
        return result

    return waiting if inspect.iscoroutinefunction(call) else plain


def serve(order: dict[str, str]) -> None:
    from graphcache_service.serving import loop_factory, run
    from graphcache_service.settings import load_settings

    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((null, log, log)):
        os.dup2(descriptor, number)
    settings = load_settings(environment={}, data_dir=order["data_dir"], port=0)
    if "function" in order:
        die_at(Step(order["function"], order["moment"]))
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run(settings, Path(order["ready_file"])))


def main() -> None:
    # Loaded once; a fork then has it.
    import alembic.command
    import uvloop

    import graphcache_service.serving

    loaded = (alembic.command, uvloop, graphcache_service.serving)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the children
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                serve(json.loads(line))
            finally:
                os._exit(len(loaded))
        print(pid, flush=True)


if __name__ == "__main__":
    main()
