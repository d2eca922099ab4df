"""Which host kernel runs a layer: measured once a process for each dtype, since CPUs differ a hundredfold in bf16."""

import functools
import time
from collections.abc import Callable

import torch
from torch import Tensor

from graphcache_runtime.host.arena import Arena
from graphcache_runtime.host.experts import Grouped, HostKernel, PerExpert, can_group
from graphcache_runtime.routing import HostRows

_CLEARLY_FASTER = 0.7
"""Closer than this the choice would follow the machine's noise, and ranks and runs would round differently."""
_PROBE_E, _PROBE_H, _PROBE_F, _PROBE_ROWS = 2, 512, 192, 8


def choose(gate_up: Tensor, down: Tensor, arena: Arena) -> HostKernel:
    """The fastest kernel that takes these weights."""
    if can_group(gate_up) and can_group(down) and grouped_is_faster(gate_up.dtype):
        return Grouped()
    return PerExpert(arena)


@functools.cache
def grouped_is_faster(dtype: torch.dtype) -> bool:
    """Measure forward and backward of both on a small layer; about 20 ms, once."""
    generator = torch.Generator().manual_seed(0)
    gate_up = torch.randn(_PROBE_E, 2 * _PROBE_F, _PROBE_H, generator=generator).to(dtype)
    down = torch.randn(_PROBE_E, _PROBE_H, _PROBE_F, generator=generator).to(dtype)
    seconds = {kernel.name: _seconds(kernel, gate_up, down) for kernel in (Grouped(), PerExpert(Arena()))}
    return seconds["grouped"] < _CLEARLY_FASTER * seconds["per-expert"]


def _seconds(kernel: HostKernel, gate_up: Tensor, down: Tensor) -> float:
    rows = HostRows(
        torch.arange(_PROBE_E * _PROBE_ROWS),
        torch.arange(_PROBE_E * _PROBE_ROWS),
        tuple(range(_PROBE_E)),
        (_PROBE_ROWS,) * _PROBE_E,
    )
    x = torch.ones(_PROBE_E * _PROBE_ROWS, _PROBE_H, dtype=kernel.rows_dtype(gate_up.dtype))

    def run() -> None:
        h = kernel.forward(x, rows, gate_up, down).h_C2F
        kernel.backward(x, h, x, rows, gate_up, down, None)

    return min(_timed(run) for _ in range(3))


def _timed(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
