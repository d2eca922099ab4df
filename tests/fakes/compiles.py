"""Keys for the stub toolchain, and what tests of compiles share."""

import os
import time
from glob import glob
from pathlib import Path
from uuid import uuid4

from graphcache_wire import GraphKey

WAIT_S = 60


def stub_key(behave: str = "well", **more) -> GraphKey:
    """A key of its own, whose compile behaves as it says."""
    fields = {"kind": "moe-experts-fwd", "e_hot": 2, "h": 16, "f": 8, "bucket": 8, "toolchain": "stub-1.0"}
    options = {"behave": behave, "flags": uuid4().hex, "dtype": "fp32"}
    return GraphKey.model_validate(fields | {"options": options} | more)


def ignore(phase: str, progress: float | None) -> None:
    """A report that nobody reads."""


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and is not yet reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def session_of(leader: int) -> list[int]:
    """The living processes of the session that ``leader`` leads or led."""
    found = (Path(entry).parent for entry in glob("/proc/[0-9]*/stat"))
    return [int(process.name) for process in found if is_alive(int(process.name)) and _session(process) == leader]


def _session(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[3])
    except FileNotFoundError:
        return None


def until(condition, what: str) -> None:
    """Wait for another process; fails with ``what`` instead of hanging."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S} s until {what}"
        time.sleep(0.02)


def pids_in(file: Path) -> list[int]:
    until(lambda: file.exists() and len(file.read_text().split()) == 2, f"{file} names two processes")
    return [int(text) for text in file.read_text().split()]


def environment(**more: str) -> dict[str, str]:
    """This process's variables without graphcache's own, and with more."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GRAPHCACHE_")} | more
