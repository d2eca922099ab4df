"""Uploader: one background thread that copies weights to a device, and the spare buffers that its copies go to."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import torch
from torch import Tensor

from graphcache_runtime.daemon_thread import DaemonThread

MAX_SPARES: Final = 2
LAST_UPLOADS: Final = 64

R = TypeVar("R")

Copy = Callable[[Tensor, Tensor], None]
"""``copy(device_slot, host_matrix)``: moves one expert's matrix to its slot."""


class StackBuffers(NamedTuple):
    """Device memory for one layer's hot weights: ``gate_up[slots, 2F, H]``, ``down[slots, H, F]``."""

    gate_up: Tensor
    down: Tensor

    def size_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self)


@dataclass(slots=True)
class UploadCounts:
    """Uploads of layers' weights: how many, seconds, bytes, and how often a forward gave up waiting for one."""

    uploads: int = 0
    seconds: float = 0.0
    size_bytes: int = 0
    late: int = 0
    byte_s: deque[float] = field(default_factory=lambda: deque(maxlen=LAST_UPLOADS))
    """Seconds a byte of the last ones."""

    def add(self, seconds: float, size_bytes: int) -> None:
        self.uploads += 1
        self.seconds += seconds
        self.size_bytes += size_bytes
        self.byte_s.append(seconds / size_bytes)


def copy_tensor(device_slot: Tensor, host_matrix: Tensor) -> None:
    """The copy of every device that torch knows."""
    device_slot.copy_(host_matrix)


class Uploader:
    """Runs uploads one after another on a daemon thread: one that hangs never keeps the process from ending.

    The spares are shared by all layers, so that uploading into a buffer that nothing runs from costs one layer's
    memory, not twice every layer's.
    """

    def __init__(self, copy: Copy = copy_tensor) -> None:
        self.copy = copy
        self.counts = UploadCounts()
        self._spares: list[StackBuffers] = []
        self._lock = threading.Lock()
        self._thread = DaemonThread("graphcache-uploads")

    def submit(self, job: Callable[[], R]) -> "Future[R]":
        """Run ``job`` behind those submitted before."""
        return self._thread.submit(job)

    def buffers(
        self, gate_up: tuple[int, ...], down: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> StackBuffers:
        """A spare of these shapes, or new memory."""
        with self._lock:
            for at, spare in enumerate(self._spares):
                same = (tuple(spare.gate_up.shape), tuple(spare.down.shape)) == (gate_up, down)
                if same and spare.gate_up.dtype == dtype and spare.gate_up.device == device:
                    return self._spares.pop(at)
        return StackBuffers(
            torch.empty(gate_up, dtype=dtype, device=device), torch.empty(down, dtype=dtype, device=device)
        )

    def give_back(self, buffers: StackBuffers) -> None:
        """Hand over memory that nothing runs from any more."""
        with self._lock:
            self._spares = [*self._spares, buffers][-MAX_SPARES:]

    def close(self) -> None:
        """End the thread after what was submitted; free the spares."""
        self._thread.close()
        with self._lock:
            self._spares.clear()
