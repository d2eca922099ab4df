"""Hot sets: which experts of a layer are worth a slot on the device, chosen from what the router did.

Every decision is a function of counts and costs alone, so ranks that add their counts up choose alike.
"""

import math
from collections import Counter
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
        second_slots: let a busy expert have several slots where that lowers the bucket.
    """

    every: int
    second_slots: bool = False


def first_hot_set(mean_E: Sequence[float], slots: int) -> tuple[int, ...]:
    """The busiest experts, busiest first, so that neighbouring slots have like rows."""
    return tuple(sorted(range(len(mean_E)), key=lambda expert: (-mean_E[expert], expert))[:slots])


def saved_s(rows: float, costs: Costs) -> float:
    """What the host saves a forward when an expert of so many expected rows is hot. Rows arrive at random (Poisson)."""
    return costs.host_s(1.0 - math.exp(-rows), rows)


def forward_s(hot: Sequence[int], mean_E: Sequence[float], costs: Costs) -> float:
    """What a forward is expected to cost beside its call: the padding that the busiest slot asks for, and the host."""
    slots = Counter(hot)
    busiest = max(mean_E[expert] / times for expert, times in slots.items())
    cold_s = sum(saved_s(rows, costs) for expert, rows in enumerate(mean_E) if expert not in slots)
    return len(hot) * busiest * costs.device_row_s + cold_s


def replanned(
    current: Sequence[int], mean_E: Sequence[float], plan: Replanning, costs: Costs, upload_bytes: int
) -> tuple[int, ...]:
    """The hot set for the next ``plan.every`` forwards.

    Expert e takes the slot of f if that saves host time; and all swaps together must save more than the one upload of
    the layer that they cost. Who stays keeps its slot. With ``plan.second_slots`` the padding that the busiest slot
    costs is weighed too.
    """
    hot = _swapped(current, mean_E, costs)
    gain_s = sum(saved_s(mean_E[e], costs) for e in set(hot)) - sum(saved_s(mean_E[e], costs) for e in set(current))
    if plan.second_slots:
        hot = _share_busiest(hot, mean_E, costs)
        gain_s = forward_s(current, mean_E, costs) - forward_s(hot, mean_E, costs)
    return tuple(hot) if plan.every * gain_s > costs.upload_s(upload_bytes) else tuple(current)


def _swapped(current: Sequence[int], mean_E: Sequence[float], costs: Costs) -> list[int]:
    """Each slot whose expert the host would miss less than another; a second slot of an expert goes first."""
    worth = [0.0 if expert in current[:slot] else saved_s(mean_E[expert], costs) for slot, expert in enumerate(current)]
    outside = [expert for expert in first_hot_set(mean_E, len(mean_E)) if expert not in set(current)]
    hot = list(current)
    for slot, expert in zip(sorted(range(len(hot)), key=lambda slot: (worth[slot], -hot[slot])), outside, strict=False):
        if saved_s(mean_E[expert], costs) <= worth[slot]:
            break
        hot[slot] = expert
    return hot


def _share_busiest(hot: Sequence[int], mean_E: Sequence[float], costs: Costs) -> list[int]:
    """Give the busiest expert the slot of the least busy one while that pays."""
    best = list(hot)
    while len(best) > 1:
        slots = Counter(best)
        rows = [mean_E[expert] / slots[expert] for expert in best]
        busiest, least = max(range(len(best)), key=rows.__getitem__), min(range(len(best)), key=rows.__getitem__)
        shared = [*best]
        shared[least] = best[busiest]
        if shared == best or forward_s(shared, mean_E, costs) >= forward_s(best, mean_E, costs):
            break
        best = shared
    return best
