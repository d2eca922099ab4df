"""Which host kernel runs a layer: measured once a process for each dtype, since CPUs differ a hundredfold in bf16."""

import functools
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from graphcache_runtime.host.arena import Arena
from graphcache_runtime.host.compiled import Compiled, arithmetic_of
from graphcache_runtime.host.experts import Grouped, HostKernel, PerExpert, can_group
from graphcache_runtime.host.products import compiled_products
from graphcache_runtime.routing import HostRows

_CLEARLY_FASTER = 0.7
"""Closer than this the choice would follow the machine's noise, and ranks and runs would round differently."""
_PROBE_E, _PROBE_H, _PROBE_F, _PROBE_ROWS = 2, 512, 192, 8


def choose(gate_up: Tensor, down: Tensor, arena: Arena) -> HostKernel:
    """The fastest kernel that takes these weights."""
    kernels = {kernel.name: kernel for kernel in _that_take(gate_up, down, arena)}
    return kernels[fastest(gate_up.dtype, tuple(kernels))]


def _that_take(gate_up: Tensor, down: Tensor, arena: Arena) -> Iterator[HostKernel]:
    """The one that is expected to be fastest first."""
    products = compiled_products()
    how = products and arithmetic_of(products, gate_up, down)
    if products and how:
        yield Compiled(products, how, arena)
    yield PerExpert(arena)
    if can_group(gate_up) and can_group(down):
        yield Grouped(arena)


@functools.cache
def fastest(dtype: torch.dtype, names: tuple[str, ...]) -> str:
    """Measure forward and backward of each on a small layer, 20 ms, once; the first, unless another clearly is."""
    generator = torch.Generator().manual_seed(0)
    gate_up = torch.randn(_PROBE_E, 2 * _PROBE_F, _PROBE_H, generator=generator).to(dtype)
    down = torch.randn(_PROBE_E, _PROBE_H, _PROBE_F, generator=generator).to(dtype)
    kernels = [kernel for kernel in _that_take(gate_up, down, Arena()) if kernel.name in names]
    seconds = {kernel.name: _seconds(kernel, gate_up, down) for kernel in kernels}
    best = min(seconds, key=seconds.__getitem__)
    return best if seconds[best] < _CLEARLY_FASTER * seconds[names[0]] else names[0]


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
