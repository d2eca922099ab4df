"""Judges how a compile ended: a good graph, or the class of its failure. Decisions alone, no I/O."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphcache_wire import FailureClass


@dataclass(frozen=True, slots=True)
class Killed:
    """Why we ended a compile ourselves: a class and a sentence."""

    failure_class: FailureClass
    message: str


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds of all processes of a compile, and the most memory that they took at once."""

    cpu_s: float
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class Death:
    """How the child ended: its exit code (negative: the signal), and what is known beside it.

    ``killed``: we did it. ``oom_counted_in``: the file in which the kernel counted, meanwhile, that it killed a process
    for want of memory; None where it counted none.
    """

    exit_code: int
    killed: Killed | None
    oom_counted_in: Path | None
    usage: Usage


def judged(death: Death, said: Mapping[str, Any]) -> Killed | None:
    """None for a good graph. ``said`` is the child's own result, empty where it died before it had one.

    A result counts even if a limit was reached after it was written: the graph is whole and checked.
    """
    if said:
        failure_class = said["failure_class"]
        return None if failure_class is None else Killed(FailureClass(failure_class), said["message"])
    if death.killed:
        return death.killed
    if death.exit_code == -signal.SIGKILL and death.oom_counted_in:
        message = f"the system ran out of memory and killed the compile (counted in {death.oom_counted_in})"
        return Killed(FailureClass.OUT_OF_MEMORY, message)
    if death.exit_code < 0:
        return Killed(FailureClass.CRASHED, f"the compiler died of {_signal_name(-death.exit_code)}")
    return Killed(FailureClass.CRASHED, f"the compile ended with status {death.exit_code} and without a result")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
