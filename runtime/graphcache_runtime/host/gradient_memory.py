"""GradientMemory: memory of weight gradients, kept when the optimizer drops them, and lent again in the next backward.

Gradients of 96 experts of Qwen3-30B-A3B (H 2048, F 768, bf16) are 906 MB a layer. Zeroing half of that takes 27 ms, and
330 ms where the pages are fresh. Asking for huge pages made that 50 ms, or 2 s where memory had to be compacted first.
"""

import ctypes
import weakref
from math import prod

import torch
from torch import Tensor


class GradientMemory:
    """Lends tensors whose memory comes back by itself once the last tensor on it is gone.

    Takes what all gradients that live at once take, and keeps it: a training step's peak is as high as without, but
    the memory is not free for others in between. It goes with this object. Any thread may lend and return.
    """

    def __init__(self) -> None:
        self._returned: dict[int, list[Tensor]] = {}

    def like(self, weights: Tensor) -> Tensor:
        """An uninitialised tensor with the shape, strides and dtype of ``weights``, as ``torch.empty_like`` gives."""
        layout = torch.empty_like(weights, device="meta")
        size_bytes = prod(layout.shape) * layout.element_size()
        if not size_bytes:
            return torch.empty_like(weights)
        lent = torch.frombuffer(self._lend(size_bytes), dtype=layout.dtype)
        return lent.as_strided(layout.shape, layout.stride())

    def _lend(self, size_bytes: int) -> ctypes.Array[ctypes.c_char]:
        """The tensor on it holds this array, and dies last: then the memory under it returns."""
        returned = self._returned.setdefault(size_bytes, [])
        try:
            memory = returned.pop()
        except IndexError:
            memory = torch.empty(size_bytes, dtype=torch.uint8)
        array = (ctypes.c_char * size_bytes).from_address(memory.data_ptr())
        weakref.finalize(array, returned.append, memory).atexit = False
        return array

    def returned_bytes(self) -> int:
        """What is kept and lent to nobody."""
        return sum(size_bytes * len(returned) for size_bytes, returned in self._returned.items())
