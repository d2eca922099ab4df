"""Graphs that PyTorch runs eagerly from their definition: no compiler, same results, every load and call counted."""

from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor

from graphcache_runtime.experts import graph_definition
from graphcache_runtime.toolchains.base import Weights, check_inputs
from graphcache_wire import GraphKey

VERSION = "eager-1"


class TorchGraph:
    """One graph, run by its definition's module."""

    def __init__(self, key: GraphKey, calls: Counter[GraphKey], weights: Weights | None = None) -> None:
        constants = (weights.gate_up, weights.down) if weights else (None, None)
        self.key, self._calls = key, calls
        self._definition = graph_definition(key, *constants)
        self.device = torch.device("cpu")

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        want = self._definition
        check_inputs(inputs, want.input_shapes, want.input_names, want.dtype)
        self._calls[self.key] += 1
        with torch.no_grad():
            outputs = want.module(*inputs)
        return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


@dataclass
class TorchGraphs:
    """A ``LoadGraph`` and ``LoadBakedGraph``: what it loaded, in order, and how often each graph ran."""

    loads: list[GraphKey] = field(default_factory=list)
    calls: Counter[GraphKey] = field(default_factory=Counter)

    def __call__(self, key: GraphKey, weights: Weights | None = None) -> TorchGraph:
        self.loads.append(key)
        return TorchGraph(key, self.calls, weights)

    def buckets(self) -> list[int]:
        """The bucket of each load, in order."""
        return [key.bucket for key in self.loads]
