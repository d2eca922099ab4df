"""Residency: a layer's stacked hot weights stay on the device, and travel again only when they must."""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from graphcache_runtime.weights.stamps import WeightStamp, stamp_of
from graphcache_runtime.weights.uploader import StackBuffers, Uploader

UPLOAD_TIMEOUT_S: Final = 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which weights should be resident, and what they were like when that was asked."""

    hot: tuple[int, ...]
    gate_up: Tensor
    down: Tensor
    device: torch.device
    stamps: tuple[WeightStamp, WeightStamp]


def wanted(hot: Sequence[int], gate_up: Tensor, down: Tensor, device: torch.device) -> Wanted:
    """The experts ``hot`` of ``gate_up[E, 2F, H]`` and ``down[E, H, F]`` as they are now."""
    stamps = (stamp_of(gate_up, hot), stamp_of(down, hot))
    return Wanted(tuple(hot), gate_up.detach(), down.detach(), device, stamps)


@dataclass(frozen=True, slots=True)
class Resident:
    """Weights on the device; slot i holds expert ``hot[i]``."""

    stack: StackBuffers
    hot: tuple[int, ...]
    device: torch.device
    stamps: tuple[WeightStamp, WeightStamp]

    def serves(self, want: Wanted) -> bool:
        same = self.hot == want.hot and self.device == want.device
        return same and all(a.same_as(b) for a, b in zip(self.stamps, want.stamps, strict=True))


class Residency:
    """The device copy of one layer's hot weights. Not thread-safe: a layer runs in one thread at a time.

    An upload fills memory that nothing runs from and is swapped in when it is whole. Host stacks are never made: each
    expert is copied straight into its slot.

    Args:
        timeout_s: the longest a forward waits for an upload. Then it runs on the host, and so do later ones, without
            waiting, until the upload has ended.
    """

    def __init__(self, layer: str, uploader: Uploader, timeout_s: float = UPLOAD_TIMEOUT_S) -> None:
        self._layer, self._uploader, self._timeout_s = layer, uploader, timeout_s
        self._current: Resident | None = None
        self._pending: Future[Resident] | None = None
        self._gave_up = False

    @property
    def hot(self) -> tuple[int, ...]:
        """The experts on the device now; none before the first upload."""
        return self._current.hot if self._current else ()

    def ensure(self, want: Wanted) -> StackBuffers | None:
        """The wanted weights on the device; None when their upload did not end in time."""
        if self._current is None or not self._current.serves(want):
            self._take_pending()
        if self._pending is None and (self._current is None or not self._current.serves(want)):
            self._begin(want)
            self._take_pending()
        return self._current.stack if self._current and self._current.serves(want) else None

    def prefetch(self, want: Wanted) -> None:
        """Start the upload that ``ensure`` of the same would wait for, and return at once."""
        if self._pending is None and (self._current is None or not self._current.serves(want)):
            self._begin(want)

    def drop(self) -> None:
        """Forget the device copy, and give its memory back."""
        if self._current is not None:
            self._uploader.give_back(self._current.stack)
        self._current = None

    def _begin(self, want: Wanted) -> None:
        self._gave_up = False
        self._pending = self._uploader.submit(lambda: self._upload(want))

    def _take_pending(self) -> None:
        """Wait for the upload under way, once, and swap it in."""
        if self._pending is None:
            return
        try:
            resident = self._pending.result(timeout=0 if self._gave_up else self._timeout_s)
        except FutureTimeout:
            if not self._gave_up:
                log.warning("upload_late layer=%s waited_s=%.1f effect=runs_on_host", self._layer, self._timeout_s)
                self._uploader.counts.late += 1
            self._gave_up = True
            return
        except BaseException:
            self._pending = None
            raise
        self.drop()
        self._pending, self._current = None, resident

    def _upload(self, want: Wanted) -> Resident:
        began = time.perf_counter()
        slots = len(want.hot)
        stack = self._uploader.buffers(
            (slots, *want.gate_up.shape[1:]), (slots, *want.down.shape[1:]), want.gate_up.dtype, want.device
        )
        for slot, expert in enumerate(want.hot):
            self._uploader.copy(stack.gate_up[slot], want.gate_up[expert])
            self._uploader.copy(stack.down[slot], want.down[expert])
        self._uploader.counts.add(time.perf_counter() - began, stack.size_bytes())
        return Resident(stack, want.hot, want.device, want.stamps)
