"""WeightGradients: the gradients of a layer's stacked experts, each written once, in the parameter's layout."""

import torch
from torch import Tensor


class WeightGradients:
    """``gate_up[E, 2F, H]`` and ``down[E, H, F]`` with the strides and dtype of the parameters.

    Fresh memory of this size (1.2 GB for 128 experts of Qwen3-30B-A3B in bf16) is slow to touch, so nothing is zeroed
    first: the first part of an expert is written, later parts are added, and what has no part is zeroed at the end.
    """

    def __init__(self, gate_up: Tensor, down: Tensor) -> None:
        self._gate_up, self._down = torch.empty_like(gate_up), torch.empty_like(down)
        self._written: set[int] = set()

    def add(self, expert: int, dgate_up: Tensor, ddown: Tensor) -> None:
        """Add one part: ``dgate_up[2F, H]``, ``ddown[H, F]``, of any float dtype."""
        for whole, part in ((self._gate_up, dgate_up), (self._down, ddown)):
            if expert in self._written:
                whole[expert].add_(part.to(whole.dtype))
            else:
                whole[expert].copy_(part)
        self._written.add(expert)

    def add_products(self, expert: int, dh: Tensor, x: Tensor, dy: Tensor, a: Tensor) -> None:
        """Add ``dh^T @ x`` and ``dy^T @ a``; straight into place where the dtypes allow it."""
        dense = self._gate_up[expert].is_contiguous() and self._down[expert].is_contiguous()
        if dense and expert not in self._written and self._gate_up.dtype == dh.dtype:
            torch.mm(dh.t(), x, out=self._gate_up[expert])
            torch.mm(dy.t(), a, out=self._down[expert])
            self._written.add(expert)
        else:
            self.add(expert, dh.t() @ x, dy.t() @ a)

    def finish(self) -> tuple[Tensor, Tensor]:
        """Both gradients; an expert without rows has exactly zero."""
        for expert in range(self._gate_up.shape[0]):
            if expert not in self._written:
                self._gate_up[expert].zero_()
                self._down[expert].zero_()
        return self._gate_up, self._down
