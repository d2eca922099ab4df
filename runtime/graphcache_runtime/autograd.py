"""MoeExperts: a layer's experts as one autograd function. Two device calls a layer: forward and backward.

Legend: T tokens, K experts a token, H model size, E experts, F expert size.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcache_runtime import packing
from graphcache_runtime.layer import HotLayer, Kept
from graphcache_runtime.routing import Plan
from graphcache_wire import Kind


def backward_kind(x: Tensor, gate_up: Tensor, down: Tensor) -> Kind | None:
    """The graph that a backward through these would need; None when no gradient reaches the experts."""
    if not torch.is_grad_enabled():
        return None
    if gate_up.requires_grad or down.requires_grad:
        return Kind.EXPERTS_BACKWARD_FULL
    return Kind.EXPERTS_BACKWARD_LORA if x.requires_grad else None


def run_layer(x_TH: Tensor, weights_TK: Tensor, gate_up: Tensor, down: Tensor, layer: HotLayer, plan: Plan) -> Tensor:
    """``MoeExperts`` with types: ``out[T, H]`` in the dtype of ``x_TH``."""
    apply: Callable[..., Tensor] = MoeExperts.apply
    return apply(x_TH, weights_TK, gate_up, down, layer, plan, backward_kind(x_TH, gate_up, down))


class MoeExperts(torch.autograd.Function):
    """``out[t] = sum over k of weights[t, k] * expert(index[t, k])(x[t])``.

    Keeps x, the router weights, each assignment's output (only if the router weights need a gradient), the host's
    gate_up product and, where the layer's setting says so, the device's; checkpointing drops them all alike. The
    experts' weights are kept by reference, so that autograd refuses a backward after they were changed in place.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x_TH: Tensor,
        weights_TK: Tensor,
        gate_up: Tensor,
        down: Tensor,
        layer: HotLayer,
        plan: Plan,
        backward: Kind | None,
    ) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            rows = layer.forward(x_TH, plan, gate_up, down, backward=backward)
            total = packing.sum_of_experts(rows.y_AH, weights_TK, plan.tokens, layer.shared.arena)
            out = torch.empty_like(x_TH).copy_(total)
        y_AH = rows.y_AH if ctx.needs_input_grad[1] else rows.y_AH.new_empty(0)
        ctx.save_for_backward(x_TH, weights_TK, gate_up, down, y_AH, rows.kept.h_C2F, *rows.kept.of_calls)
        ctx.layer, ctx.plan = layer, plan
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout_TH: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast("cpu", enabled=False):
            return _backward(ctx, dout_TH)


def _backward(ctx: Any, dout_TH: Tensor) -> tuple[Tensor | None, ...]:
    x_TH, weights_TK, gate_up, down, y_AH, h_C2F, *of_calls = ctx.saved_tensors
    layer: HotLayer = ctx.layer
    plan: Plan = ctx.plan
    needs_x, needs_weights, needs_gate_up, needs_down = ctx.needs_input_grad[:4]
    dweights = dx = dgate_up = ddown = None
    if needs_weights:
        dweights = packing.dot_with_experts(dout_TH, y_AH, plan.top_k).to(weights_TK.dtype)
    if needs_x or needs_gate_up or needs_down:
        full = needs_gate_up or needs_down
        kind = Kind.EXPERTS_BACKWARD_FULL if full else Kind.EXPERTS_BACKWARD_LORA
        kept = Kept(h_C2F, tuple(of_calls))
        total, grads = layer.backward(x_TH, weights_TK, dout_TH, kept, plan, gate_up, down, kind)
        dx = torch.empty_like(x_TH).copy_(total) if needs_x else None
        if grads is not None:
            dgate_up, ddown = grads.finish()
    return (
        dx,
        dweights,
        dgate_up if needs_gate_up else None,
        ddown if needs_down else None,
        None,
        None,
        None,
    )
