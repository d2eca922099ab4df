"""Whether weights changed since they were uploaded, without reading them all.

A tensor's ``_version`` is not enough: fused AdamW, ``.data`` and numpy leave it alone. So a stamp has three parts: the
version and address; an epoch that a hook on every torch optimizer advances; and a sample of the content, which finds a
``.data.copy_`` or a file read into place. What no part finds is a change of single elements through ``.data``: say so
with ``MoeHandle.weights_changed``.
"""

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

SAMPLES_AN_EXPERT: Final = 64
"""Elements of each matrix of each expert that a stamp reads: 4,096 reads for 32 experts, about 0.1 ms."""

_INTEGERS: Final = {2: torch.int16, 4: torch.int32}
_epochs: Any = WeakIdKeyDictionary()
_counter = itertools.count()
_hook_lock = threading.Lock()
_hook: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class WeightStamp:
    """What a weight was like when it was uploaded."""

    version: int
    address: int
    epoch: int
    sample: Tensor

    def same_as(self, other: "WeightStamp") -> bool:
        facts = (self.version, self.address, self.epoch) == (other.version, other.address, other.epoch)
        return facts and torch.equal(self.sample, other.sample)


def watch_optimizers() -> None:
    """From now on a step of any torch optimizer advances the epoch of the weights it changed. Safe to repeat."""
    global _hook
    with _hook_lock:
        if _hook is None:
            _hook = register_optimizer_step_post_hook(_stepped)


def epoch_of(weight: Tensor) -> int:
    """A number that no other tensor object has, and that grows with each optimizer step.

    A weight that is computed anew for each forward (an adapter on the experts) is another tensor each time, so it never
    passes for the one before, even at the same address.
    """
    if weight not in _epochs:
        _epochs[weight] = next(_counter)
    epoch: int = _epochs[weight]
    return epoch


def advance_epoch(weight: Tensor) -> None:
    """Say that ``weight`` changed."""
    _epochs[weight] = next(_counter)


def _stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if weight.grad is not None and weight in _epochs:
                advance_epoch(weight)


def stamp_of(weight: Tensor, experts: Sequence[int]) -> WeightStamp:
    """The stamp of ``weight[E, rows, columns]`` as far as ``experts`` go; any strides."""
    at = torch.tensor(experts, dtype=torch.int64)[:, None]
    _, rows, columns = weight.shape
    # Odd multipliers spread the samples over rows and columns whatever the shape.
    n = torch.arange(SAMPLES_AN_EXPERT)
    row, column = (n * 2_654_435_761) % rows, (n * 40_503 + 7) % columns
    plain = weight.detach()
    sample = plain[at, row[None], column[None]].view(_INTEGERS[plain.element_size()])
    return WeightStamp(plain._version, plain.data_ptr(), epoch_of(weight), sample)
