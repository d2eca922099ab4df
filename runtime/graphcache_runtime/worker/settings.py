"""WorkerSettings: how many compiles run at once, and with how much memory. Decided from facts about the machine."""

import os
from dataclasses import dataclass
from typing import Final

from graphcache_runtime.compiling.cgroup import memory_limit_bytes
from graphcache_runtime.compiling.run import DEFAULT_TIME_LIMIT_S, CompileLimits

SYSTEM_SHARE: Final = 0.9
"""The part of the machine's memory that compiles may take."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a worker has: processors it may run on, and memory in bytes, a container's limit counted."""

    cores: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """``memory_limit_bytes`` and ``threads`` are for one compile; one that runs alone may take what all may."""

    toolchains: tuple[str, ...]
    jobs: int
    memory_limit_bytes: int
    time_limit_s: float = DEFAULT_TIME_LIMIT_S
    drain: bool = False
    threads: int = 1

    def limits(self, alone: bool) -> CompileLimits:
        shares = self.jobs if alone else 1
        return CompileLimits(self.time_limit_s, self.memory_limit_bytes * shares, self.threads * shares)


def settings_for(
    machine: Machine,
    toolchains: tuple[str, ...],
    *,
    jobs: int | None = None,
    memory_limit_bytes: int | None = None,
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
    drain: bool = False,
) -> WorkerSettings:
    """As many jobs as asked for (default: one), but no more than there are cores, or than fit into memory at once.

    Raises:
        ValueError: one compile alone would have no room.
    """
    whole_bytes = int(machine.memory_bytes * SYSTEM_SHARE)
    wished = min(jobs or 1, machine.cores)
    limit_bytes = memory_limit_bytes or whole_bytes // wished
    if limit_bytes > whole_bytes:
        raise ValueError(
            f"a memory limit of {limit_bytes / 2**30:.1f} GiB is more than compiles may take here: "
            f"{whole_bytes / 2**30:.1f} of {machine.memory_bytes / 2**30:.1f} GiB"
        )
    fitting = max(1, min(wished, whole_bytes // limit_bytes))
    return WorkerSettings(
        toolchains, fitting, limit_bytes, time_limit_s, drain, threads=max(1, machine.cores // fitting)
    )


def this_machine() -> Machine:
    """The cores of this process's affinity; the smaller of the machine's memory and the container's limit."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(len(os.sched_getaffinity(0)), min(memory_bytes, memory_limit_bytes() or memory_bytes))
