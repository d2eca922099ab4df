"""Compiled: cold experts through products that read each weight once, where it lies. See ``native/products.cpp``.

Legend: C rows on the host, H model size, F expert size. Beside torch's own, which reorder the weights each time
(one thread, avx512_bf16, 1536 x 2048 bf16): forward of 3 rows 0.22 ms instead of 0.34, their gradient 0.24 instead of
0.65, the weights' gradient 0.21 instead of 0.69; of 22 rows 0.48, 0.54, 0.46 instead of 0.56, 0.88, 0.76.
"""

import torch
from torch import Tensor

from graphcache_runtime.host.arena import Arena
from graphcache_runtime.host.experts import HostForward, gated, gated_backward
from graphcache_runtime.host.products import Arithmetic, Products
from graphcache_runtime.host.weight_gradients import WeightGradients
from graphcache_runtime.routing import HostRows


def arithmetic_of(products: Products, gate_up: Tensor, down: Tensor) -> Arithmetic | None:
    """How the products of these weights are computed; None where they cannot be: rows that are not dense."""
    if gate_up.stride(-1) != 1 or down.stride(-1) != 1 or gate_up.device.type != "cpu":
        return None
    if gate_up.dtype is torch.float32:
        return "fp32"
    if gate_up.dtype is not torch.bfloat16:
        return None
    even = gate_up.shape[2] % 2 == 0 and down.shape[2] % 2 == 0  # bf16 arithmetic takes values by twos
    return "pairs" if even and products.has("pairs") else "widened"


class Compiled:
    """Rows and what is kept of them are bf16 where the CPU computes in bf16, else fp32. Sums are fp32."""

    name = "compiled"

    def __init__(self, products: Products, how: Arithmetic, arena: Arena) -> None:
        self._products, self._how, self._arena = products, how, arena

    def rows_dtype(self, weights: torch.dtype) -> torch.dtype:
        return torch.bfloat16 if self._how == "pairs" else torch.float32

    def forward(self, x_CH: Tensor, rows: HostRows, gate_up: Tensor, down: Tensor) -> HostForward:
        h_C2F = x_CH.new_empty(x_CH.shape[0], gate_up.shape[1])
        y_CH = self._arena.take("y", tuple(x_CH.shape), x_CH.dtype)
        self._products.times_transposed(self._how, x_CH, rows, gate_up, h_C2F)
        self._products.times_transposed(self._how, gated(h_C2F, self._arena), rows, down, y_CH)
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
        self._products.times(self._how, dy_CH, rows, down, da_CF)
        dh_C2F = gated_backward(h_C2F, da_CF, self._arena)
        self._products.times(self._how, dh_C2F, rows, gate_up, dx_CH)
        if grads is not None and x_CH is not None:
            dgate_up, ddown, add = grads.parts(rows.experts)
            self._products.outer_products(self._how, dh_C2F, x_CH, rows, dgate_up, add)
            self._products.outer_products(self._how, dy_CH, gated(h_C2F, self._arena), rows, ddown, add)
        return dx_CH
