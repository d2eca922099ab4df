"""GraphInterface: names, shapes and dtype of what goes into a graph and comes out, from its key alone."""

from dataclasses import dataclass

import torch

from graphcache_runtime.experts import graph_definition
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
