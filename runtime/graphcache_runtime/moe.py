"""enable: a loaded transformers model's MoE layers run on compiled graphs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import nn

from graphcache_client import GraphCache
from graphcache_runtime.cached_graphs import CachedGraphs
from graphcache_runtime.calls import Chooser, Overflow, Policy
from graphcache_runtime.graph_table import GraphTable, LoadGraph
from graphcache_runtime.handle import MoeHandle
from graphcache_runtime.host.arena import Arena
from graphcache_runtime.host.gradient_memory import GradientMemory
from graphcache_runtime.implementation import register
from graphcache_runtime.keys import ExpertKeys
from graphcache_runtime.ladder import LADDERS, Ladder
from graphcache_runtime.layer import HotLayer
from graphcache_runtime.layouts import Shapes, experts_modules, shapes_of
from graphcache_runtime.planning.costs import Costs, rngd_costs
from graphcache_runtime.planning.hotset import Replanning
from graphcache_runtime.planning.manifest_plan import Training
from graphcache_runtime.planning.measured import CostMeter
from graphcache_runtime.shared import Shared
from graphcache_runtime.toolchains.base import Toolchain
from graphcache_runtime.weights.residency import UPLOAD_TIMEOUT_S
from graphcache_runtime.weights.stamps import watch_optimizers
from graphcache_runtime.weights.uploader import Uploader

__all__ = ["Backward", "Hot", "MoeHandle", "enable"]

Backward = Literal["recompute", "keep"]


@dataclass(frozen=True, slots=True)
class Hot:
    """How many experts of each layer are hot: ``e_hot``, else what ``size_bytes`` for all layers hold, else a share.

    All layers have the same number, for each number is one more set of graphs to compile.
    """

    e_hot: int | None = None
    size_bytes: int | None = None
    fraction: float = 0.25

    def slots(self, shapes: Sequence[Shapes]) -> int:
        """The number for layers of these shapes.

        Raises:
            ValueError: not even one expert a layer fits.
        """
        if self.e_hot is not None:
            slots = self.e_hot
        elif self.size_bytes is not None:
            slots = self.size_bytes // sum(3 * s.h * s.f * s.dtype.itemsize for s in shapes)
        else:
            slots = max(1, round(self.fraction * shapes[0].experts))
        if slots < 1:
            raise ValueError(f"{self} leaves no hot expert a layer: give more, or do not enable this model")
        return min(slots, *(s.experts for s in shapes))


def enable(
    model: nn.Module,
    *,
    graphs: GraphTable | LoadGraph | GraphCache,
    toolchain: Toolchain | None = None,
    toolchain_version: str | None = None,
    e_hot: int | None = None,
    hot_fraction: float = 0.25,
    hot_bytes: int | None = None,
    hot_sets: Mapping[int, Sequence[int]] | None = None,
    training: Training | None = None,
    ladder: Ladder = LADDERS["packed"],
    policy: Policy | str = Policy.READY_BUCKETS,
    overflow: Overflow | str = Overflow.COST,
    tiers: Sequence[int] = (),
    costs: Costs | Literal["measured"] | None = None,
    backward: Backward = "recompute",
    replan_every: int = 0,
    second_slots: bool = False,
    strict_tokens: int | None = None,
    beside: bool | None = None,
    upload_timeout_s: float = UPLOAD_TIMEOUT_S,
    keep_gradient_memory: bool = True,
) -> MoeHandle:
    """Run the experts of every MoE layer of ``model`` on graphs: the hot ones on the device, the others on the host.

    Args:
        graphs: where compiled graphs come from: the cluster's cache (with ``toolchain``), a table, or a loader.
        toolchain: loads what the cache finds, and names its version.
        toolchain_version: a part of each key; needed where there is no ``toolchain``.
        e_hot, hot_bytes, hot_fraction: hot experts a layer; bytes for all layers' hot weights; or a share of experts.
        hot_sets: the hot experts of each MoE layer, by its number among the MoE layers; the first ones otherwise.
        training: ``lora``, the experts' own weights are frozen; or ``full``. None: what the parameters say.
        policy: what to do while a graph is not ready.
        overflow: which calls to make for rows of very different numbers: ``cost``, the cheapest by ``costs``, which for
            small models is none at all; or ``bucket``, one that holds every row.
        tiers: groups of slots, such as 2 and 4, that ``overflow="cost"`` may split a layer's call into; each number is
            one more set of graphs.
        costs: what device and host cost; ``measured``: found out here, as graphs arrive; an RNGD's and its host's
            otherwise.
        backward: ``recompute``: the backward graph computes gate_up's product again, and nothing is kept on the device;
            or ``keep``: forward keeps it there, 2F values for each row of the buckets.
        replan_every: training forwards of a layer between two looks at its hot set; 0 keeps hot sets as they are.
        second_slots: let a look give a busy expert a second slot, where the smaller bucket saves more than the host
            then has to do.
        strict_tokens: make any graph an error that steps of so many tokens cannot need.
        beside: run device calls while the host runs its experts; None: where the device is not the host's own CPU.
        upload_timeout_s: the longest a forward waits for an upload before it runs on the host.
        keep_gradient_memory: full fine-tuning writes the experts' gradients into the last step's memory, which stays
            taken between steps.

    Raises:
        UnsupportedExperts: a layer's layout is none that the graphs have; names class and reason.
        ValueError: the model has no MoE layer, a hot set names no expert, ``training`` contradicts the parameters, or
            a setting has no effect without another.
    """
    modules = experts_modules(model)
    if not modules:
        raise ValueError(f"{type(model).__name__} has no experts module that transformers' registry dispatches")
    shapes = {name: shapes_of(module) for name, module in modules}
    training = _training(modules, training)
    first = next(iter(shapes.values()))
    slots = Hot(e_hot, hot_bytes, hot_fraction).slots(list(shapes.values()))
    chooser = Chooser(ladder, Policy(policy), Overflow(overflow), _tiers(tiers, slots, Overflow(overflow)))
    if second_slots and not replan_every:
        raise ValueError("second_slots is decided when a hot set is looked at: set replan_every too")
    if isinstance(costs, str) and costs != "measured":
        raise ValueError(f"costs are Costs(...), 'measured' or None, not {costs!r}")
    uploader = Uploader()
    given = costs if isinstance(costs, Costs) else rngd_costs(first.h, first.f)
    shared = Shared(
        _table(graphs, toolchain),
        chooser,
        uploader,
        Arena(),
        CostMeter(given, costs == "measured", uploader.counts),
        upload_timeout_s,
        Replanning(replan_every, second_slots),
        beside=beside,
        keep=_keeps(backward),
        gradient_memory=GradientMemory() if keep_gradient_memory else None,
    )
    version = toolchain_version if toolchain_version is not None else _version(toolchain)
    layers = {}
    for number, (name, of) in enumerate(shapes.items()):
        hot = _hot_set(name, of.experts, slots, None if hot_sets is None else hot_sets.get(number))
        layers[name] = HotLayer(name, of.experts, ExpertKeys(version, of.h, of.f, of.dtype), hot, shared)
    register()
    watch_optimizers()
    handle = MoeHandle(layers, dict(modules), shared, training, owns_graphs=not isinstance(graphs, GraphTable))
    handle.restrict(strict_tokens)
    return handle


def _tiers(tiers: Sequence[int], slots: int, overflow: Overflow) -> tuple[int, ...]:
    uneven = [groups for groups in tiers if groups < 2 or slots % groups]
    if uneven:
        raise ValueError(f"tiers of {uneven[0]} groups cannot share {slots} hot experts evenly")
    if tiers and overflow is not Overflow.COST:
        raise ValueError('tiers are chosen by cost: set overflow="cost" too')
    return tuple(tiers)


def _keeps(backward: Backward) -> bool:
    if backward not in get_args(Backward):
        raise ValueError(f"backward is one of {', '.join(get_args(Backward))}, not {backward!r}")
    return backward == "keep"


def _table(graphs: GraphTable | LoadGraph | GraphCache, toolchain: Toolchain | None) -> GraphTable:
    if isinstance(graphs, GraphTable):
        return graphs
    if not isinstance(graphs, GraphCache):
        return GraphTable(graphs)
    if toolchain is None:
        raise ValueError("graphs from a GraphCache need the toolchain that loads them: enable(..., toolchain=...)")
    return CachedGraphs(graphs, toolchain)


def _version(toolchain: Toolchain | None) -> str:
    if toolchain is None:
        raise ValueError("name the toolchain: its version is a part of each key (toolchain= or toolchain_version=)")
    return toolchain.version()


def _training(modules: Sequence[tuple[str, Any]], training: Training | None) -> Training:
    """Checked against the parameters; what they say where it is None."""
    for name, module in modules:
        trained = [weight for weight in ("gate_up_proj", "down_proj") if getattr(module, weight).requires_grad]
        if trained and training is None:
            return "full"
        if trained and training == "lora":
            raise ValueError(
                f"{name}: {' and '.join(trained)} require gradients, which training='lora' has no graphs for: "
                "freeze them (requires_grad_(False)), or use training='full'"
            )
    return training or "lora"


def _hot_set(name: str, experts: int, slots: int, given: Sequence[int] | None) -> tuple[int, ...]:
    hot = tuple(range(slots)) if given is None else tuple(given)
    outside = [expert for expert in hot if not 0 <= expert < experts]
    if outside or not hot:
        named = ", ".join(map(str, outside)) or "no expert"
        raise ValueError(f"{name}: the hot set names {named}; the layer has experts 0 to {experts - 1}")
    return hot
