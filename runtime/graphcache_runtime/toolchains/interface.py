"""GraphInterface: names, shapes and dtype of what goes into a graph and comes out, from its key alone; HostGraph."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from graphcache_runtime.experts import GraphDefinition, graph_definition
from graphcache_runtime.toolchains.base import Weights, check_inputs
from graphcache_wire import GraphKey


@dataclass(frozen=True, slots=True)
class GraphInterface:
    """The order of inputs and outputs is the order of a call. A baked graph takes ``x`` alone."""

    input_names: tuple[str, ...]
    input_shapes: tuple[tuple[int, ...], ...]
    output_names: tuple[str, ...]
    output_shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype


def inputs_mode(key: GraphKey) -> GraphKey:
    """The key of the same graph with its weights as inputs: what a baked key is without its weights."""
    kept = {name: value for name, value in key.options.items() if name not in ("mode", "weights")}
    return GraphKey(
        kind=key.kind, e_hot=key.e_hot, h=key.h, f=key.f, bucket=key.bucket, toolchain=key.toolchain, options=kept
    )


def interface_of(key: GraphKey) -> GraphInterface:
    """The interface of the graph that ``key`` names; needs no weights, in baked mode neither."""
    whole = graph_definition(inputs_mode(key))
    taken = 1 if key.mode == "baked" else len(whole.input_names)
    return GraphInterface(
        whole.input_names[:taken], whole.input_shapes[:taken], whole.output_names, whole.output_shapes, whole.dtype
    )


def definition_of(key: GraphKey, weights: Weights | None) -> GraphDefinition:
    """The graph that ``key`` names, with the constants of a baked one.

    Raises:
        ValueError: a baked key without weights, or weights of another shape than the key says.
    """
    return graph_definition(key, *((weights.gate_up, weights.down) if weights else ()))


class HostGraph:
    """A loaded graph that takes and gives host tensors, wherever it runs.

    Args:
        run: called with contiguous inputs of the right shapes, which no compiled code checks by itself.
    """

    def __init__(self, run: Callable[..., Any], key: GraphKey) -> None:
        self._run = run
        self._interface = interface_of(key)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        want = self._interface
        check_inputs(inputs, want.input_shapes, want.input_names, want.dtype)
        outputs = self._run(*(tensor.detach().contiguous() for tensor in inputs))
        return (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)
