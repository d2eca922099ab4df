"""HostPath: the host's rows of one layer, gathered, run through the kernel, and laid back.

Legend: T tokens, K experts a token, A = T x K assignments, C of them on the host, H model size, F expert size.
"""

import torch
from torch import Tensor

from graphcache_runtime.host.arena import Arena
from graphcache_runtime.host.experts import HostKernel
from graphcache_runtime.host.kernels import choose
from graphcache_runtime.host.weight_gradients import WeightGradients
from graphcache_runtime.routing import HostRows


class HostPath:
    """The host side of one layer. Buffers come from the arena, so that no step touches fresh memory for them."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._kernel: HostKernel | None = None

    def kernel(self, gate_up: Tensor, down: Tensor) -> HostKernel:
        """The one that runs these weights, chosen at the first call."""
        if self._kernel is None:
            self._kernel = choose(gate_up, down, self._arena)
        return self._kernel

    def forward(self, x_TH: Tensor, rows: HostRows, gate_up: Tensor, down: Tensor, y_AH: Tensor) -> Tensor:
        """Fills the rows of ``y_AH`` that run on the host. Returns ``h_C2F`` for backward."""
        kernel = self.kernel(gate_up, down)
        x_CH = self._gather(x_TH, rows, kernel.rows_dtype(gate_up.dtype), "host x")
        ran = kernel.forward(x_CH, rows, gate_up.detach(), down.detach())
        y_AH.index_copy_(0, rows.assignment_C, ran.y_CH.to(y_AH.dtype))
        return ran.h_C2F

    def backward(
        self,
        x_TH: Tensor,
        weights_TK: Tensor,
        dout_TH: Tensor,
        h_C2F: Tensor,
        rows: HostRows,
        gate_up: Tensor,
        down: Tensor,
        dx_AH: Tensor,
        grads: WeightGradients | None,
    ) -> None:
        """Fills the rows of ``dx_AH`` that run on the host, and adds to ``grads`` where they are given."""
        kernel = self.kernel(gate_up, down)
        dtype = kernel.rows_dtype(gate_up.dtype)
        dy_CH = self._gather(dout_TH, rows, dtype, "host dy")
        dy_CH.mul_(weights_TK.flatten()[rows.assignment_C, None].to(dtype))
        x_CH = self._gather(x_TH, rows, dtype, "host x") if grads is not None else None
        dx_CH = kernel.backward(x_CH, h_C2F, dy_CH, rows, gate_up.detach(), down.detach(), grads)
        dx_AH.index_copy_(0, rows.assignment_C, dx_CH.to(dx_AH.dtype))

    def _gather(self, rows_TH: Tensor, rows: HostRows, dtype: torch.dtype, role: str) -> Tensor:
        shape = (rows.rows, rows_TH.shape[1])
        gathered = self._arena.take(role, shape, rows_TH.dtype)
        torch.index_select(rows_TH.detach(), 0, rows.token_C, out=gathered)
        if gathered.dtype == dtype:
            return gathered
        return self._arena.take(role, shape, dtype).copy_(gathered)
