"""enable: a loaded transformers model's MoE layers run on compiled graphs, with nothing of the model rewritten.

transformers 5 dispatches experts modules by ``config._experts_implementation``; the implementation ``graphcache`` is
registered there, finds the layer that ``enable`` made for the module, and runs it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from graphcache_runtime.arena import Arena
from graphcache_runtime.autograd import backward_kind, run_layer
from graphcache_runtime.calls import Policy
from graphcache_runtime.graph_table import GraphTable, LoadGraph
from graphcache_runtime.keys import ExpertKeys
from graphcache_runtime.ladder import LADDERS, Ladder
from graphcache_runtime.layer import HotLayer, Shared
from graphcache_runtime.layouts import experts_modules, shapes_of
from graphcache_runtime.recompute import align, in_backward
from graphcache_runtime.residency import UPLOAD_TIMEOUT_S
from graphcache_runtime.routing import Plan
from graphcache_runtime.stats import summary
from graphcache_runtime.uploader import Uploader
from graphcache_runtime.weight_stamps import advance_epoch, watch_optimizers
from graphcache_wire import GraphKey

IMPLEMENTATION: Final = "graphcache"
Training = Literal["lora", "full"]

_layers: WeakKeyDictionary[nn.Module, HotLayer] = WeakKeyDictionary()
_handles: WeakSet["MoeHandle"] = WeakSet()
_register_lock = threading.Lock()


class MoeHandle:
    """A model that runs on graphs: its counts, its keys, and the way back. Made by ``enable``."""

    def __init__(self, layers: Mapping[str, HotLayer], modules: Mapping[str, Any], shared: Shared) -> None:
        self.layers, self._modules, self._shared = dict(layers), dict(modules), shared
        self._before = {name: module.config._experts_implementation for name, module in self._modules.items()}
        self._turn_on()

    def stats(self) -> dict[str, Any]:
        """What all layers did since ``enable``; see ``graphcache_runtime.stats``."""
        return summary((layer.stats for layer in self.layers.values()), self._shared.uploader.counts)

    def keys_used(self) -> list[GraphKey]:
        """The graphs that were asked for, in the order of the first asking."""
        return self._shared.graphs.keys()

    def hot_sets(self) -> dict[str, tuple[int, ...]]:
        """The hot experts of each layer, by the module's name."""
        return {name: layer.hot for name, layer in self.layers.items()}

    def weights_changed(self) -> None:
        """Upload all hot weights at their next use. Only a change of single elements through ``.data`` needs it."""
        for module in self._modules.values():
            advance_epoch(module.gate_up_proj)
            advance_epoch(module.down_proj)

    def disable(self) -> None:
        """Back to the experts implementation that the model had. Safe to repeat."""
        for name, module in self._modules.items():
            module.config._experts_implementation = self._before[name]
            _layers.pop(module, None)
        self._shared.graphs.close()
        self._shared.uploader.close()

    def _turn_on(self) -> None:
        for name, module in self._modules.items():
            _layers[module] = self.layers[name]
            module.config._experts_implementation = IMPLEMENTATION
        _handles.add(self)


def enable(
    model: nn.Module,
    *,
    graphs: GraphTable | LoadGraph,
    toolchain_version: str,
    e_hot: int | None = None,
    hot_fraction: float = 0.25,
    hot_sets: Mapping[int, Sequence[int]] | None = None,
    training: Training | None = None,
    ladder: Ladder = LADDERS["packed"],
    policy: Policy | str = Policy.WAIT,
    upload_timeout_s: float = UPLOAD_TIMEOUT_S,
) -> MoeHandle:
    """Run the experts of every MoE layer of ``model`` on graphs: the hot ones on the device, the others on the host.

    Args:
        graphs: where compiled graphs come from.
        toolchain_version: the toolchain's version string, a part of each key.
        e_hot: hot experts a layer; ``hot_fraction`` of them where it is left out.
        hot_sets: the hot experts of each MoE layer, by its number among the MoE layers; the first ``e_hot`` otherwise.
        training: ``lora``, the experts' own weights are frozen; or ``full``. None: what the parameters say.
        policy: what to do while a graph is not ready.

    Raises:
        UnsupportedExperts: a layer's layout is none that the graphs have; names class and reason.
        ValueError: the model has no MoE layer, a hot set names no expert, or ``training`` contradicts the parameters.
    """
    modules = experts_modules(model)
    if not modules:
        raise ValueError(f"{type(model).__name__} has no experts module that transformers' registry dispatches")
    _register()
    watch_optimizers()
    table = graphs if isinstance(graphs, GraphTable) else GraphTable(graphs)
    shared = Shared(table, ladder, Policy(policy), Uploader(), Arena(), upload_timeout_s)
    layers = {}
    for number, (name, module) in enumerate(modules):
        shapes = shapes_of(module)
        _check_training(name, module, training)
        slots = e_hot if e_hot is not None else max(1, round(hot_fraction * shapes.experts))
        hot = _hot_set(name, shapes.experts, slots, None if hot_sets is None else hot_sets.get(number))
        keys = ExpertKeys(toolchain_version, shapes.h, shapes.f, shapes.dtype)
        layers[name] = HotLayer(name, shapes.experts, keys, hot, shared)
    return MoeHandle(layers, dict(modules), shared)


def moe_stats(model: nn.Module | None = None) -> dict[str, Any]:
    """The counts of ``model``'s layers, or of every enabled model of this process; see ``MoeHandle.stats``."""
    handles = [
        handle for handle in list(_handles)
        if model is None or any(module in handle._modules.values() for module in model.modules())
    ]
    if len(handles) == 1:
        return handles[0].stats()
    if not handles:
        raise LookupError("no model is enabled: call graphcache_runtime.enable(model, ...) first")
    return {"models": [handle.stats() for handle in handles]}


def run_experts(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """The experts implementation ``graphcache``: called by transformers with the module as ``self``.

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
    return run_layer(x_TH, weights_TK, gate_up, down, layer, plan).view_as(hidden_states)


def _planned(
    layer: HotLayer, training: bool, x_TH: Tensor, index_TK: Tensor, weights_TK: Tensor, gate_up: Tensor, down: Tensor
) -> tuple[Plan, Tensor]:
    """A new plan; or the first run's, and the router weights in its order, where checkpointing runs a forward again."""
    if in_backward():
        plan = layer.plans.recall(x_TH)
        if plan is not None:
            layer.stats.recomputed += 1
            return plan, align(weights_TK, index_TK, plan)
    with torch.no_grad():
        plan = layer.plan(index_TK, gate_up, down, backward_kind(x_TH, gate_up, down))
    if training:
        layer.plans.remember(x_TH, plan)
    return plan, weights_TK


def _register() -> None:
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    with _register_lock:
        if IMPLEMENTATION not in ALL_EXPERTS_FUNCTIONS:
            ALL_EXPERTS_FUNCTIONS.register(IMPLEMENTATION, _eager(run_experts))


def _eager(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A ``torch.compile`` of the model breaks its graph here: plans are made of values, not of shapes."""
    disable: Callable[..., Callable[..., Tensor]] = torch.compiler.disable
    return disable(function)


def _check_training(name: str, module: Any, training: Training | None) -> None:
    trained = [w for w in ("gate_up_proj", "down_proj") if getattr(module, w).requires_grad]
    if training == "lora" and trained:
        raise ValueError(
            f"{name}: {' and '.join(trained)} require gradients, which training='lora' has no graphs for: "
            "freeze them (requires_grad_(False)), or use training='full'"
        )


def _hot_set(name: str, experts: int, slots: int, given: Sequence[int] | None) -> tuple[int, ...]:
    hot = tuple(range(min(slots, experts))) if given is None else tuple(given)
    outside = [expert for expert in hot if not 0 <= expert < experts]
    if outside or not hot:
        named = ", ".join(map(str, outside)) or "no expert"
        raise ValueError(f"{name}: the hot set names {named}; the layer has experts 0 to {experts - 1}")
    return hot
