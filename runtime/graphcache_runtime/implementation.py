"""The experts implementation ``graphcache`` in transformers' registry: finds the layer of a module and runs it.

transformers 5 dispatches experts modules by ``config._experts_implementation``, so nothing of a model is rewritten.
"""

import threading
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from graphcache_runtime.autograd import backward_kind, run_layer
from graphcache_runtime.layer import HotLayer
from graphcache_runtime.recompute import align, in_backward
from graphcache_runtime.routing import Plan

IMPLEMENTATION: Final = "graphcache"

_layers: WeakKeyDictionary[nn.Module, HotLayer] = WeakKeyDictionary()
_following: WeakKeyDictionary[nn.Module, "ref[nn.Module]"] = WeakKeyDictionary()
_register_lock = threading.Lock()


def register() -> None:
    """Make the implementation known to transformers. Safe to repeat."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    with _register_lock:
        if IMPLEMENTATION not in ALL_EXPERTS_FUNCTIONS:
            ALL_EXPERTS_FUNCTIONS.register(IMPLEMENTATION, _eager(run_experts))


def attach(module: Any, layer: HotLayer, following: nn.Module | None) -> None:
    """From now on ``module`` runs on ``layer``; ``following`` is the module that runs next, whose uploads may start."""
    _layers[module] = layer
    if following is not None:
        _following[module] = ref(following)
    module.config._experts_implementation = IMPLEMENTATION


def detach(module: Any, implementation: str | None) -> None:
    """Give ``module`` its former implementation back."""
    _layers.pop(module, None)
    _following.pop(module, None)
    module.config._experts_implementation = implementation


def run_experts(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """The implementation: called by transformers with the module as ``self``.

    Raises:
        LookupError: the module belongs to no enabled model.
    """
    layer = _layers.get(self)
    if layer is None:
        raise LookupError(
            f"{type(self).__name__} is set to the experts implementation {IMPLEMENTATION!r} but was not enabled: "
            "call graphcache_runtime.enable(model, ...)"
        )
    gate_up, down = self.gate_up_proj, self.down_proj
    x_TH = hidden_states.reshape(-1, hidden_states.shape[-1])
    plan, weights_TK = _planned(layer, self.training, x_TH, top_k_index.detach(), top_k_weights, gate_up, down)
    _prefetch_following(self)
    return run_layer(x_TH, weights_TK, gate_up, down, layer, plan).view_as(hidden_states)


def _planned(
    layer: HotLayer, training: bool, x_TH: Tensor, index_TK: Tensor, weights_TK: Tensor, gate_up: Tensor, down: Tensor
) -> tuple[Plan, Tensor]:
    """A new plan; or the first run's, and the router weights in its order, where checkpointing runs a forward again."""
    backward = backward_kind(x_TH, gate_up, down)
    if in_backward():
        plan = layer.plans.recall(x_TH)
        if plan is not None:
            layer.stats.recomputed += 1
            plan = layer.plan_again(plan, backward)
            return plan, align(weights_TK, index_TK, plan)
    with torch.no_grad():
        if training:
            layer.observe(index_TK, gate_up, down)
        plan = layer.plan(index_TK, gate_up, down, backward)
    if training:
        layer.plans.remember(x_TH, plan)
    return plan, weights_TK


def _prefetch_following(module: nn.Module) -> None:
    """Let the next layer's weights travel while this one computes. What an adapter computes is not there yet."""
    following: Any = _following.get(module, lambda: None)()
    layer = _layers.get(following) if following is not None else None
    if layer is not None and {"gate_up_proj", "down_proj"} <= following._parameters.keys():
        layer.prefetch(following.gate_up_proj, following.down_proj)


def _eager(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A ``torch.compile`` of the model breaks its graph here: plans are made of values, not of shapes."""
    disable: Callable[..., Callable[..., Tensor]] = torch.compiler.disable
    return disable(function)
