"""Hot sets: which experts of a layer are worth a slot on the device, chosen from what the router did.

Every decision is a function of counts and costs alone, so ranks that add their counts up choose alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from graphcache_runtime.planning.costs import Costs

DECAY: Final = 0.9
"""Of the counts at each forward: what was ten forwards ago weighs a third."""


class RouterCounts:
    """Rows an expert and forward, as a decaying mean."""

    def __init__(self, experts: int, decay: float = DECAY) -> None:
        self._sum_E = torch.zeros(experts, dtype=torch.float64)
        self._weight = 0.0
        self._decay = decay

    def add(self, counts_E: Tensor) -> None:
        """Count one forward."""
        self._sum_E.mul_(self._decay).add_(counts_E)
        self._weight = self._weight * self._decay + 1.0

    def mean_E(self) -> list[float]:
        """Expected rows of each expert in the next forward."""
        mean: list[float] = (self._sum_E / max(self._weight, 1.0)).tolist()
        return mean

    def summed_over_ranks(self) -> list[float]:
        """The mean over all ranks of a torch.distributed job; this rank's own where there is none.

        Every rank must call it at the same forward, as for any collective.
        """
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return self.mean_E()
        total = torch.tensor(self.mean_E(), dtype=torch.float64)
        torch.distributed.all_reduce(total)
        mean: list[float] = (total / torch.distributed.get_world_size()).tolist()
        return mean


@dataclass(frozen=True, slots=True)
class Replanning:
    """When and how hot sets are chosen anew.

    Args:
        every: forwards between two looks; 0 never looks.
        costs: what swaps are weighed by.
        duplicates: let a busy expert have several slots where that lowers the bucket.
    """

    every: int
    costs: Costs
    duplicates: bool = False


def first_hot_set(mean_E: Sequence[float], slots: int) -> tuple[int, ...]:
    """The busiest experts, busiest first, so that neighbouring slots have like rows."""
    return tuple(sorted(range(len(mean_E)), key=lambda expert: (-mean_E[expert], expert))[:slots])


def saved_s(rows: float, costs: Costs) -> float:
    """What the host saves a forward when an expert of so many expected rows is hot. Rows arrive at random (Poisson)."""
    return costs.host_s(1.0 - math.exp(-rows), rows)


def replanned(current: Sequence[int], mean_E: Sequence[float], plan: Replanning, upload_bytes: int) -> tuple[int, ...]:
    """The hot set for the next ``plan.every`` forwards.

    Expert e takes the slot of f if that saves host time; and all swaps together must save more than the one upload of
    the layer that they cost. Who stays keeps its slot.
    """
    outside = [expert for expert in first_hot_set(mean_E, len(mean_E)) if expert not in set(current)]
    by_worth = sorted(range(len(current)), key=lambda slot: (mean_E[current[slot]], -current[slot]))
    hot, gain_s = list(current), 0.0
    for slot, expert in zip(by_worth, outside, strict=False):
        swap_s = saved_s(mean_E[expert], plan.costs) - saved_s(mean_E[current[slot]], plan.costs)
        if swap_s <= 0:
            break
        hot[slot], gain_s = expert, gain_s + swap_s
    if plan.duplicates:
        gain_s += _share_busiest(hot, mean_E, plan.costs)
    return tuple(hot) if plan.every * gain_s > plan.costs.upload_s(upload_bytes) else tuple(current)


def _share_busiest(hot: list[int], mean_E: Sequence[float], costs: Costs) -> float:
    """Give the busiest expert the slot of the least busy one while that pays; returns the seconds saved a forward."""
    gained_s = 0.0
    while len(hot) > 1:
        rows = [mean_E[expert] / hot.count(expert) for expert in hot]
        busiest, least = max(range(len(hot)), key=rows.__getitem__), min(range(len(hot)), key=rows.__getitem__)
        shared = [*hot]
        shared[least] = hot[busiest]
        lower = max(mean_E[expert] / shared.count(expert) for expert in shared)
        saved = len(hot) * (rows[busiest] - lower) * costs.device_row_s - saved_s(rows[least], costs)
        if saved <= 0:
            break
        hot[:], gained_s = shared, gained_s + saved
    return gained_s
