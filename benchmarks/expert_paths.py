"""The ways in which ``experts.py`` runs a layer's experts: transformers' own, a loop, padded, oneDNN's, and ours.

Legend: R rows, one a token, sorted by nothing; E experts, H model size, F expert size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphcache_runtime.autograd import backward_kind, run_layer
from graphcache_runtime.calls import Chooser
from graphcache_runtime.graph_table import GraphTable
from graphcache_runtime.host.arena import Arena
from graphcache_runtime.keys import ExpertKeys
from graphcache_runtime.ladder import LADDERS
from graphcache_runtime.layer import HotLayer
from graphcache_runtime.planning.costs import RNGD
from graphcache_runtime.planning.measured import CostMeter
from graphcache_runtime.shared import Shared
from graphcache_runtime.toolchains.base import LoadedGraph
from graphcache_runtime.toolchains.inductor import InductorToolchain
from graphcache_runtime.weights.uploader import Uploader
from graphcache_wire import GraphKey

Forward = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``forward(x, gate_up, down)``."""


@dataclass(frozen=True)
class Case:
    """Experts of a layer, and the rows that ``tokens`` tokens send them, each row as a token of its own."""

    name: str
    tokens: int
    x_RH: Tensor
    index_R1: Tensor
    gate_up: Tensor
    down: Tensor

    @property
    def experts(self) -> int:
        return self.down.shape[0]


def gated(h: Tensor) -> Tensor:
    gate, up = h.chunk(2, dim=-1)
    return functional.silu(gate) * up


def transformers_path(implementation: str, case: Case) -> Forward:
    """``eager`` and ``grouped_mm``."""
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

    _, h, f = case.down.shape
    sizes = SimpleNamespace(num_experts=0, hidden_size=h, moe_intermediate_size=f, hidden_act="silu")
    module: Any = Qwen3MoeExperts(sizes)
    module.num_experts, sizes._experts_implementation = case.experts, implementation
    ones = torch.ones(case.index_R1.shape, dtype=case.x_RH.dtype)

    def forward(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        module._parameters.update(gate_up_proj=gate_up, down_proj=down)
        out: Tensor = module(x, case.index_R1, ones)
        return out

    return forward


def loop_path(case: Case) -> Forward:
    """A loop over the experts, with ``unbind``: the gradient of all experts is written once, not E times."""
    order = case.index_R1.flatten().argsort(stable=True)
    back, counts = order.argsort(), torch.bincount(case.index_R1.flatten(), minlength=case.experts).tolist()

    def forward(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        parts = zip(x[order].split(counts), gate_up.unbind(0), down.unbind(0), strict=True)
        return torch.cat([gated(rows @ up.t()) @ out.t() for rows, up, out in parts])[back]

    return forward


def padded_path(case: Case) -> Forward:
    """One bmm a product, every expert padded to the busiest one's rows."""
    counts = torch.bincount(case.index_R1.flatten(), minlength=case.experts)
    order, most = case.index_R1.flatten().argsort(stable=True), int(counts.max())
    expert = case.index_R1.flatten()[order]
    place = expert * most + torch.arange(len(order)) - (counts.cumsum(0) - counts)[expert]
    back = order.argsort()

    def forward(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        packed = x.new_zeros(case.experts * most, x.shape[1]).index_copy(0, place, x[order])
        a = gated(torch.bmm(packed.view(case.experts, most, -1), gate_up.transpose(1, 2)))
        return torch.bmm(a, down.transpose(1, 2)).flatten(0, 1)[place][back]

    return forward


class _PackedLinear(torch.autograd.Function):
    """``x @ weight^T`` through weights that oneDNN packed, and the gradient of x through a packed transposed copy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Tensor, packed_back: Tensor) -> Tensor:
        ctx.packed_back = packed_back
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        dx = torch.ops.mkldnn._linear_pointwise(grads[0].contiguous(), ctx.packed_back, None, "none", [], "")
        return dx, None, None


def prepacked_path(case: Case) -> Forward:
    """The loop over frozen weights that oneDNN packed beforehand: two more copies of them. Private names of torch."""
    counts = torch.bincount(case.index_R1.flatten(), minlength=case.experts).tolist()
    order = case.index_R1.flatten().argsort(stable=True)
    back = order.argsort()

    def packed(weight: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        pack = torch.ops.mkldnn._reorder_linear_weight
        return pack(weight, max(rows, 1)), pack(weight.t().contiguous(), max(rows, 1))

    weights = [(packed(case.gate_up[e], n), packed(case.down[e], n)) for e, n in enumerate(counts)]

    def forward(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        outs = []
        for rows, (up, out) in zip(x[order].split(counts), weights, strict=True):
            if len(rows):
                outs.append(_PackedLinear.apply(gated(_PackedLinear.apply(rows, *up)), *out))
        return torch.cat(outs)[back]

    return forward


def our_path(case: Case, hot: int, graphs: GraphTable, version: str) -> Forward:
    """``hot`` experts through graphs, the others through the host kernel."""
    shared = Shared(graphs, Chooser(LADDERS["packed"]), Uploader(), Arena(), CostMeter(RNGD))
    _, h, f = case.down.shape
    layer = HotLayer(case.name, case.experts, ExpertKeys(version, h, f, case.down.dtype), range(hot), shared)
    ones = torch.ones(case.index_R1.shape, dtype=case.x_RH.dtype)

    def forward(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        plan = layer.plan(case.index_R1, gate_up, down, backward_kind(x, gate_up, down))
        return run_layer(x, ones, gate_up, down, layer, plan)

    return forward


def no_graphs(key: GraphKey) -> LoadedGraph:
    raise LookupError(f"{key.label()} was asked for, and this run has no graphs")


def local_graphs(folder: Path) -> tuple[GraphTable, str]:
    """Compiled by inductor, once into ``folder``."""
    toolchain = InductorToolchain()

    def load(key: GraphKey) -> LoadedGraph:
        kept, work = folder / f"{key.digest}.pt2", folder / key.digest
        if not kept.exists():
            print(f"compiling {key.label()}", flush=True)
            work.mkdir(parents=True)
            toolchain.compile(key, work, lambda phase, progress: None).path.rename(kept)
        return toolchain.load(kept, key)

    return GraphTable(load), toolchain.version()


def stepping(forward: Forward, case: Case, mode: str) -> Callable[[], None]:
    """One step: forward alone, or with its backward; its gradients are dropped at the end, as an optimizer does."""
    x = case.x_RH.clone().requires_grad_(mode != "forward")
    gate_up, down = (nn.Parameter(weight, requires_grad=mode == "full") for weight in (case.gate_up, case.down))

    def step() -> None:
        out = forward(x, gate_up, down)
        if mode != "forward":
            out.backward(case.x_RH)
        x.grad = gate_up.grad = down.grad = None

    return step
