"""Cold experts on the host: rows sorted by expert through one product an expert, or one grouped product for all.

Legend: C rows on the host, H model size, F expert size, E experts. Which kernel is fastest depends on the CPU: without
bf16 arithmetic torch's bf16 products are up to a hundred times slower than fp32 ones (on AVX2 ``dh @ gate_up`` of
one expert, 16 rows, 343 ms in bf16, 5 ms in fp32, 27 ms with the conversion), so ``kernels`` measures.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from graphcache_runtime.host.arena import Arena
from graphcache_runtime.host.weight_gradients import WeightGradients
from graphcache_runtime.routing import HostRows


@dataclass(frozen=True, slots=True)
class HostForward:
    """``y_CH``, and ``h_C2F``, gate_up's product, which backward needs: 2F values a row for a third of its products."""

    y_CH: Tensor
    h_C2F: Tensor


class HostKernel(Protocol):
    """Runs sorted rows through their experts. ``x_CH`` and ``dy_CH`` have the dtype ``rows_dtype``."""

    name: str

    def rows_dtype(self, weights: torch.dtype) -> torch.dtype:
        """In which dtype it takes and gives rows."""
        ...

    def forward(self, x_CH: Tensor, rows: HostRows, gate_up: Tensor, down: Tensor) -> HostForward:
        """``x_CH -> y_CH``; the latter may be a buffer that lives until the next call."""
        ...

    def backward(
        self,
        x_CH: Tensor | None,
        h_C2F: Tensor,
        dy_CH: Tensor,
        rows: HostRows,
        gate_up: Tensor,
        down: Tensor,
        grads: WeightGradients | None,
    ) -> Tensor:
        """``dx_CH``, until the next call; adds the weights' gradients to ``grads``, for which it needs ``x_CH``."""
        ...


def gated(h_C2F: Tensor, arena: Arena) -> Tensor:
    """``silu(gate) * up``, in a buffer that lives until the next call."""
    gate, up = h_C2F.chunk(2, dim=-1)
    a_CF = arena.take("a", tuple(gate.shape), gate.dtype)
    torch.ops.aten.silu.out(gate, out=a_CF)
    return a_CF.mul_(up)


def gated_backward(h_C2F: Tensor, da_CF: Tensor, arena: Arena) -> Tensor:
    """``dh_C2F`` from ``da_CF``, in a buffer that lives until the next call."""
    gate, up = h_C2F.chunk(2, dim=-1)
    dh_C2F = arena.take("dh", tuple(h_C2F.shape), h_C2F.dtype)
    dgate, dup = dh_C2F.chunk(2, dim=-1)
    dsilu = torch.mul(da_CF, up, out=arena.take("dsilu", tuple(da_CF.shape), da_CF.dtype))
    torch.ops.aten.silu_backward.grad_input(dsilu, gate, grad_input=dgate)
    torch.ops.aten.silu.out(gate, out=dup)
    dup.mul_(da_CF)
    return dh_C2F


def _spans(rows: HostRows) -> list[tuple[int, int, int]]:
    """``(expert, first row, one past the last row)`` of each expert."""
    spans, start = [], 0
    for expert, count in zip(rows.experts, rows.counts, strict=True):
        spans.append((expert, start, start + count))
        start += count
    return spans


def _add_products(
    grads: WeightGradients, rows: HostRows, dh_C2F: Tensor, x_CH: Tensor, dy_CH: Tensor, a_CF: Tensor
) -> None:
    for expert, start, end in _spans(rows):
        grads.add_products(expert, dh_C2F[start:end], x_CH[start:end], dy_CH[start:end], a_CF[start:end])


BLOCK_VALUES = 512 * 1024
"""Weights converted at a time, 2 MB in fp32, stay in the cache: 3 rows through 1536 x 2048 bf16 weights took 2.9 ms,
with the whole matrix converted first 4.9 ms, and fp32 weights 3.8 ms (AVX2)."""

FEW_ROWS = 3
"""So many rows times transposed bf16 weights are faster in bf16 (1 row 0.9 ms, 3 rows 2.3): nothing is converted."""


class PerExpert:
    """fp32 products an expert; bf16 weights are converted a block at a time, into memory that stays in the cache.

    Takes weights of any strides and alignment.
    """

    name = "per-expert"

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    def rows_dtype(self, weights: torch.dtype) -> torch.dtype:
        return torch.float32

    def forward(self, x_CH: Tensor, rows: HostRows, gate_up: Tensor, down: Tensor) -> HostForward:
        h_C2F = x_CH.new_empty(x_CH.shape[0], gate_up.shape[1])
        y_CH = self._arena.take("y", tuple(x_CH.shape), x_CH.dtype)
        for expert, start, end in _spans(rows):
            self._times_transposed(x_CH[start:end], gate_up[expert], h_C2F[start:end])
        a_CF = gated(h_C2F, self._arena)
        for expert, start, end in _spans(rows):
            self._times_transposed(a_CF[start:end], down[expert], y_CH[start:end])
        return HostForward(y_CH, h_C2F)

    def backward(
        self,
        x_CH: Tensor | None,
        h_C2F: Tensor,
        dy_CH: Tensor,
        rows: HostRows,
        gate_up: Tensor,
        down: Tensor,
        grads: WeightGradients | None,
    ) -> Tensor:
        da_CF = self._arena.take("da", (dy_CH.shape[0], down.shape[2]), dy_CH.dtype)
        dx_CH = self._arena.take("dx", tuple(dy_CH.shape), dy_CH.dtype)
        for expert, start, end in _spans(rows):
            self._times(dy_CH[start:end], down[expert], da_CF[start:end])
        dh_C2F = gated_backward(h_C2F, da_CF, self._arena)
        for expert, start, end in _spans(rows):
            self._times(dh_C2F[start:end], gate_up[expert], dx_CH[start:end])
        if grads is not None and x_CH is not None:
            _add_products(grads, rows, dh_C2F, x_CH, dy_CH, gated(h_C2F, self._arena))
        return dx_CH

    def _times_transposed(self, rows: Tensor, matrix: Tensor, out: Tensor) -> None:
        """``out = rows @ matrix^T``."""
        if matrix.dtype == torch.bfloat16 and len(rows) <= FEW_ROWS:
            out.copy_(rows.bfloat16() @ matrix.t())
            return
        for start, end, block in self._blocks(matrix):
            torch.mm(rows, block.t(), out=out[:, start:end])

    def _times(self, rows: Tensor, matrix: Tensor, out: Tensor) -> None:
        """``out = rows @ matrix``, the blocks added up in order."""
        for start, end, block in self._blocks(matrix):
            if start == 0:
                torch.mm(rows[:, start:end], block, out=out)
            else:
                out.addmm_(rows[:, start:end], block)

    def _blocks(self, matrix: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """``(first row, one past the last, those rows in fp32)``; fp32 weights are one block, as they are."""
        rows, columns = matrix.shape
        if matrix.dtype == torch.float32:
            yield 0, rows, matrix
            return
        height = max(1, BLOCK_VALUES // columns)
        for start in range(0, rows, height):
            block = matrix[start : start + height]
            converted = self._arena.take("fp32 weights", tuple(block.shape), torch.float32).copy_(block)
            yield start, start + len(block), converted


class Grouped:
    """``F.grouped_mm``, one product for all experts, in the weights' dtype: the fastest where bf16 is in hardware.

    It reads each expert's rows by offsets into all E experts, so no weights are gathered. It leaves rows behind the
    last offset uninitialised and takes offsets past the end without a word, so they are checked here.
    """

    name = "grouped"

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    def rows_dtype(self, weights: torch.dtype) -> torch.dtype:
        return weights

    def forward(self, x_CH: Tensor, rows: HostRows, gate_up: Tensor, down: Tensor) -> HostForward:
        offsets = group_offsets(rows, gate_up.shape[0])
        h_C2F = functional.grouped_mm(x_CH, gate_up.transpose(1, 2), offs=offsets)
        return HostForward(functional.grouped_mm(gated(h_C2F, self._arena), down.transpose(1, 2), offs=offsets), h_C2F)

    def backward(
        self,
        x_CH: Tensor | None,
        h_C2F: Tensor,
        dy_CH: Tensor,
        rows: HostRows,
        gate_up: Tensor,
        down: Tensor,
        grads: WeightGradients | None,
    ) -> Tensor:
        offsets = group_offsets(rows, gate_up.shape[0])
        da_CF = functional.grouped_mm(dy_CH, down, offs=offsets)
        dh_C2F = gated_backward(h_C2F, da_CF, self._arena)
        if grads is not None and x_CH is not None:
            _add_products(grads, rows, dh_C2F, x_CH, dy_CH, gated(h_C2F, self._arena))
        return functional.grouped_mm(dh_C2F, gate_up, offs=offsets)


def group_offsets(rows: HostRows, experts: int) -> Tensor:
    """Where each of all ``experts`` groups of sorted rows ends, int32, as ``F.grouped_mm`` takes them.

    Raises:
        ValueError: the counts do not add up to the rows; the product would read or leave memory that is not its own.
    """
    counts = torch.zeros(experts, dtype=torch.int32)
    counts[list(rows.experts)] = torch.tensor(rows.counts, dtype=torch.int32)
    offsets = counts.cumsum(0, dtype=torch.int32)
    if experts and int(offsets[-1]) != rows.rows:
        raise ValueError(f"{rows.rows} host rows, but the experts' counts add up to {int(offsets[-1])}")
    return offsets


def can_group(weight: Tensor) -> bool:
    """Whether ``F.grouped_mm`` takes ``weight``: dense rows, strides and address in multiples of 16 bytes."""
    size = weight.element_size()
    strides_fit = all(stride * size % 16 == 0 for stride in weight.stride()[:-1])
    return weight.stride(-1) == 1 and strides_fit and weight.data_ptr() % 16 == 0
