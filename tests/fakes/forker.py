"""Processes that start in a moment, forked from one that has loaded what they need, and may die at a given step.

A module calls :func:`serve_orders`; tests start it by a ``Forker``, which sends an order as a line of JSON for each
process.
"""

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

LIMIT_S = 60
TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Step:
    """A function, and whether the process dies before or after its first call. ``package``: where its path begins.

    After the call of a generator is after the first that it yields.
    """

    function: str
    moment: str
    package: str = "graphcache_service"

    def __str__(self) -> str:
        return f"{self.moment} {self.function}"


class Forker:
    """The process that others are forked from."""

    def __init__(self, module: str, *paths: Path) -> None:
        """``paths``: beside the tests' own folder, where it and what it starts find modules."""
        found = os.pathsep.join(map(str, (TESTS, *paths)))
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": found},
        )

    def fork(self, order: dict[str, Any], die_at: Step | None = None) -> "Forked":
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        step = {} if die_at is None else {"die_at": [die_at.function, die_at.moment, die_at.package]}
        self._process.stdin.write(json.dumps(order | step) + "\n")
        self._process.stdin.flush()
        return Forked(int(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Forked:
    """A process that was forked."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def lives(self) -> bool:
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return False
        return True

    def wait_for_death(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self.lives():
            assert time.monotonic() < deadline, "the process never came to the step"
            time.sleep(0.005)

    def kill(self) -> None:
        if self.lives():
            os.kill(self._pid, signal.SIGKILL)
            self.wait_for_death()


def serve_orders(run: Callable[[dict[str, Any]], None]) -> None:
    """Fork a process for each order, and print its pid. Its output goes to the file that the order calls ``log``."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the children
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                order = json.loads(line)
                _redirect(order["log"])
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                if "die_at" in order:
                    _die_at(Step(*order["die_at"]))
                run(order)
                status = 0
            finally:
                os._exit(status)
        print(pid, flush=True)


def _redirect(path: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((null, log, log)):
        os.dup2(descriptor, number)


def _die_at(step: Step) -> None:
    """Make this process kill itself before or after the first call of a function."""
    path = [step.package, *step.function.split(".")]
    place = next(n for n in range(len(path) - 1, 0, -1) if _is_module(path[:n]))
    owner: Any = importlib.import_module(".".join(path[:place]))
    for name in path[place:-1]:
        owner = getattr(owner, name)
    setattr(owner, path[-1], _deadly(getattr(owner, path[-1]), step.moment))


def _is_module(path: list[str]) -> bool:
    try:
        importlib.import_module(".".join(path))
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

    @functools.wraps(call)
    def yielding(*args: Any, **kwargs: Any) -> Any:
        die("before")
        for one in call(*args, **kwargs):
            yield one
            die("after")

    if inspect.isgeneratorfunction(call):
        return yielding
    return waiting if inspect.iscoroutinefunction(call) else plain
