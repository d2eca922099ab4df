"""Layers to test with, on eager graphs, and one run through a layer with its gradients."""

from collections.abc import Sequence
from typing import Any

import torch

from fakes.dense_reference import Problem, Result
from fakes.torch_graphs import VERSION, TorchGraphs
from graphcache_runtime.autograd import backward_kind, run_layer
from graphcache_runtime.calls import Chooser
from graphcache_runtime.graph_table import GraphTable
from graphcache_runtime.host.arena import Arena
from graphcache_runtime.keys import ExpertKeys
from graphcache_runtime.ladder import LADDERS, Ladder
from graphcache_runtime.layer import HotLayer
from graphcache_runtime.planning.costs import RNGD
from graphcache_runtime.planning.measured import CostMeter
from graphcache_runtime.shared import Shared
from graphcache_runtime.weights.uploader import Uploader


def layer_for(
    p: Problem,
    hot: Sequence[int],
    *,
    graphs: Any = None,
    version: str = VERSION,
    ladder: Ladder = LADDERS["packed"],
    **shared: Any,
) -> HotLayer:
    """A layer of the problem's shapes. ``graphs``: a loader or a table of ``version``; eager graphs otherwise."""
    own = {name: shared.pop(name) for name in ("policy", "overflow", "tiers") if name in shared}
    chooser = Chooser(ladder, **own)
    graphs = TorchGraphs() if graphs is None else graphs
    table = graphs if isinstance(graphs, GraphTable) else GraphTable(graphs)
    experts, h, f = p.down.shape
    settings: dict[str, Any] = {"uploader": Uploader(), "arena": Arena(), "costs": CostMeter(RNGD)} | shared
    return HotLayer(
        "layers.0.mlp.experts",
        experts,
        ExpertKeys(version, h, f, p.down.dtype),
        hot,
        Shared(table, chooser, **settings),
    )


def run(layer: HotLayer, p: Problem, *, full: bool = True) -> Result:
    """Forward and backward; gradients that nobody asked for are zeros."""
    x, weights = p.x_TH.detach().clone().requires_grad_(), p.weights_TK.detach().clone().requires_grad_()
    gate_up, down = (w.detach().requires_grad_(full) for w in (p.gate_up, p.down))
    kind = backward_kind(x, gate_up, down)
    plan = layer.plan(p.index_TK, gate_up, down, kind)
    out = run_layer(x, weights, gate_up, down, layer, plan)
    out.backward(p.dout_TH)
    grads = [torch.zeros_like(t) if t.grad is None else t.grad for t in (x, weights, gate_up, down)]
    return Result(out.detach(), *grads)
