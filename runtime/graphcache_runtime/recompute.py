"""Plans of forwards that activation checkpointing will run again: the second run uses the first one's plan.

A router may choose otherwise in the recomputation (a tie, another thread's rounding). Its gradients would then belong
to another function than the output did, and the saved tensors would not fit. Legend: T tokens, K experts a token.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from graphcache_runtime.routing import Plan

SAMPLES: Final = 64
KEPT_WITHOUT_GRAPH: Final = 2
"""Reentrant checkpointing runs the first forward without a graph, so nothing else keeps its plan alive."""

_INTEGERS: Final = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def in_backward() -> bool:
    """Whether this thread runs a backward: a forward inside one is a recomputation. The private name is torch's own."""
    task: int = torch._C._current_graph_task_id()
    return task != -1


@dataclass(frozen=True, slots=True)
class _Remembered:
    fingerprint: tuple[tuple[int, ...], bytes]
    plan: ReferenceType[Plan]


class PlanMemory:
    """The plans of one layer whose graphs are still alive."""

    def __init__(self) -> None:
        self._remembered: list[_Remembered] = []
        self._kept: deque[Plan] = deque(maxlen=KEPT_WITHOUT_GRAPH)

    def remember(self, x_TH: Tensor, plan: Plan) -> None:
        """Keep the plan for as long as the graph of its forward lives."""
        self._remembered = [old for old in self._remembered if old.plan() is not None]
        self._remembered.append(_Remembered(_fingerprint(x_TH), ref(plan)))
        if not torch.is_grad_enabled():
            self._kept.append(plan)

    def recall(self, x_TH: Tensor) -> Plan | None:
        """The plan of the forward that these rows repeat.

        The rows decide; where none are equal to the bit, the only plan of as many rows does.
        """
        fingerprint = _fingerprint(x_TH)
        alive = [(old.fingerprint, plan) for old in self._remembered if (plan := old.plan()) is not None]
        equal = [plan for known, plan in alive if known == fingerprint]
        same_shape = [plan for known, plan in alive if known[0] == fingerprint[0]]
        if equal:
            return equal[-1]
        return same_shape[0] if len(same_shape) == 1 else None


def align(weights_TK: Tensor, index_TK: Tensor, plan: Plan) -> Tensor:
    """Router weights in the order of the plan's experts, from those of a router that chose ``index_TK``.

    An expert that was not chosen again takes a weight that is left over: routers change their minds between experts of
    all but equal weight.
    """
    if torch.equal(index_TK, plan.index_TK):
        return weights_TK
    position_TK = torch.arange(index_TK.shape[1]).expand_as(index_TK).clone()
    for t in (index_TK != plan.index_TK).any(1).nonzero().flatten().tolist():
        position_TK[t] = torch.tensor(_positions(index_TK[t].tolist(), plan.index_TK[t].tolist()))
    return weights_TK.gather(1, position_TK)


def _positions(now: list[int], then: list[int]) -> list[int]:
    """For each expert chosen then, where its weight stands now."""
    left = list(range(len(now)))
    found: list[int | None] = []
    for expert in then:
        at = next((position for position in left if now[position] == expert), None)
        found.append(at)
        if at is not None:
            left.remove(at)
    return [left.pop(0) if at is None else at for at in found]


def _fingerprint(x_TH: Tensor) -> tuple[tuple[int, ...], bytes]:
    flat = x_TH.detach().flatten()
    at = torch.linspace(0, max(flat.numel() - 1, 0), min(SAMPLES, flat.numel())).long()
    sample = flat[at].view(_INTEGERS[flat.element_size()])
    return tuple(x_TH.shape), bytes(sample.numpy().data)
