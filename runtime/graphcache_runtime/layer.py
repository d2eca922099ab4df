"""HotLayer: one MoE layer's rows through its device calls and its host kernel, forward and backward.

Legend: T tokens, K experts a token, A = T x K assignments, H model size.
"""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from graphcache_runtime import packing
from graphcache_runtime.calls import HOST, Choice, Policy
from graphcache_runtime.device_calls import DeviceCalls
from graphcache_runtime.host.path import HostPath
from graphcache_runtime.host.weight_gradients import WeightGradients
from graphcache_runtime.keys import ExpertKeys
from graphcache_runtime.planning.costs import Costs
from graphcache_runtime.planning.hotset import RouterCounts, replanned
from graphcache_runtime.planning.manifest_plan import Training, planned_keys
from graphcache_runtime.recompute import PlanMemory
from graphcache_runtime.routing import DeviceCall, Plan, Routing, check_expert_ids, make_plan, slot_rows
from graphcache_runtime.shared import Shared
from graphcache_runtime.stats import LayerStats
from graphcache_runtime.weights.residency import Residency, wanted
from graphcache_runtime.weights.uploader import StackBuffers
from graphcache_wire import GraphKey, Kind

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Kept:
    """gate_up's products, for backward: the host's rows, and ``h[slots, bucket, 2F]`` of each device call, on its
    device; without the latter the backward graph computes them again."""

    h_C2F: Tensor
    of_calls: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Rows:
    """What a forward computed: ``y_AH``, a row an assignment, and what backward needs of it."""

    y_AH: Tensor
    kept: Kept


class HotLayer:
    """The experts of one layer: some hot, on the device; the others on the host. One thread at a time.

    ``gate_up[E, 2F, H]`` and ``down[E, H, F]`` are passed to each call, since a forward may compute them anew.
    """

    def __init__(self, name: str, experts: int, keys: ExpertKeys, hot: Sequence[int], shared: Shared) -> None:
        self.name, self.experts, self.keys, self.shared = name, experts, keys, shared
        self.hot = tuple(hot)
        self.stats = LayerStats()
        self.residency = Residency(name, shared.uploader, shared.upload_timeout_s)
        self.calls = DeviceCalls(name, keys, shared, self.residency, self.stats)
        self.host = HostPath(shared.arena)
        self.plans = PlanMemory()
        self.counts = RouterCounts(experts)
        self._device: torch.device | None = None
        self._counted = 0

    # --- deciding -----------------------------------------------------------------------------------------------------

    def plan(self, index_TK: Tensor, gate_up: Tensor, down: Tensor, backward: Kind | None) -> Plan:
        """Split what the router chose. ``backward`` is the kind of graph that backward will need, None without one.

        Uploads the hot weights if they are not resident; where that does not end in time, all rows go to the host.

        Raises:
            ValueError: an expert id that the layer does not have.
        """
        check_expert_ids(index_TK, self.experts, self.name)
        routing = Routing(index_TK, self.experts)
        rows = slot_rows(routing, self.hot)
        self._measure(backward, gate_up, down)
        choice = self._choose(rows, routing, backward)
        if choice.calls and self._stack(self._key(choice.calls[0], backward), gate_up, down) is None:
            choice = replace(HOST, lacking="upload late")
        plan = make_plan(routing, self.hot, choice.calls, choice.way)
        self._count(plan, rows, routing, choice)
        return plan

    def prefetch(self, gate_up: Tensor, down: Tensor) -> None:
        """Start the upload that the next plan would wait for, if there is one."""
        if self._device is not None:
            self.residency.prefetch(wanted(self.hot, gate_up, down, self._device))

    def plan_again(self, plan: Plan, backward: Kind | None) -> Plan:
        """``plan`` for a forward that is run again; all on the host where a graph that it needs now is not ready.

        Reentrant checkpointing plans without a backward, so nobody has asked for the backward's graphs before.
        """
        sizes = {(rows.call.slots, rows.call.bucket) for rows in plan.packed}
        if self.shared.chooser.policy is Policy.WAIT or all(self._ask(backward, *size) for size in sizes):
            return plan
        self.stats.not_ready["a graph of the recomputation not ready"] += 1
        return make_plan(Routing(plan.index_TK, self.experts), plan.hot, (), "host")

    def _choose(self, slot_rows: Sequence[int], routing: Routing, backward: Kind | None) -> Choice:
        def ask(slots: int, bucket: int) -> bool:
            return self._ask(backward, slots, bucket)

        def is_there(slots: int, bucket: int) -> bool:
            return all(map(self.shared.graphs.is_loaded, self._keys(backward, slots, bucket)))

        costs = self.shared.costs.costs
        cold_s = self._cold_s(routing, costs) if self.is_beside else None
        return self.shared.chooser.choose(slot_rows, ask, is_there, costs, cold_s)

    def _cold_s(self, routing: Routing, costs: Costs) -> float:
        """What the host takes for the experts that are not hot."""
        hot = set(self.hot)
        cold = [n for expert, n in enumerate(routing.counts_E.tolist()) if n and expert not in hot]
        return costs.host_s(len(cold), sum(cold))

    @property
    def is_beside(self) -> bool:
        """Whether device calls run while the host does its part. Before the first call the device is not known."""
        if self.shared.beside is not None:
            return self.shared.beside
        return self._device is not None and self._device.type != "cpu"

    def _measure(self, backward: Kind | None, gate_up: Tensor, down: Tensor) -> None:
        """Measure the host once, and a call of each size once its graph is there; only where that is asked for."""
        meter = self.shared.costs
        if not meter.measures:
            return
        meter.measure_host(self.host.kernel(gate_up, down), gate_up, down)
        for bucket in self.shared.chooser.ladder.rungs:
            size = (len(self.hot), bucket)
            key = self._keys(backward, *size)[0]
            if size in meter.calls_s or not self.shared.graphs.is_loaded(key):
                continue
            stack = self._stack(key, gate_up, down)
            if stack is not None:
                meter.measure_call(size, functools.partial(self.calls.probe, key, stack))

    def _ask(self, backward: Kind | None, slots: int, bucket: int) -> bool:
        found = [self.shared.graphs.try_get(key) for key in self._keys(backward, slots, bucket)]
        return all(graph is not None for graph in found)

    def _keys(self, backward: Kind | None, slots: int, bucket: int) -> list[GraphKey]:
        """The graphs of a forward, and of the backward behind it."""
        if backward is None:
            return [self.keys.key(Kind.EXPERTS_FORWARD, slots, bucket)]
        kinds = (Kind.EXPERTS_FORWARD, backward)
        return [self.keys.key(kind, slots, bucket, keep=self.shared.keep) for kind in kinds]

    def _key(self, call: DeviceCall, backward: Kind | None) -> GraphKey:
        return self._keys(backward, call.slots, call.bucket)[0]

    def _stack(self, key: GraphKey, gate_up: Tensor, down: Tensor) -> StackBuffers | None:
        """The resident weights on the device of the graph ``key``; None when their upload does not end in time."""
        if self._device is None:
            self._device = self.shared.graphs.get(key).device
        return self.residency.ensure(wanted(self.hot, gate_up, down, self._device))

    def observe(self, index_TK: Tensor, gate_up: Tensor, down: Tensor) -> None:
        """Count what the router chose in a training forward, and every so often choose the hot set anew."""
        check_expert_ids(index_TK, self.experts, self.name)
        self.counts.add(Routing(index_TK, self.experts).counts_E)
        self._counted += 1
        replanning = self.shared.replanning
        if replanning is None or not replanning.every or self._counted % replanning.every:
            return
        upload_bytes = len(self.hot) * (gate_up[0].numel() + down[0].numel()) * gate_up.element_size()
        mean_E, costs = self.counts.summed_over_ranks(), self.shared.costs.of_rank_0()
        hot = replanned(self.hot, mean_E, replanning, costs, upload_bytes)
        if hot != self.hot:
            self.hot = hot
            self.stats.replans += 1

    def _count(self, plan: Plan, rows: Sequence[int], routing: Routing, choice: Choice) -> None:
        stats, hot_rows = self.stats, plan.hot_rows
        stats.rows += plan.tokens * plan.top_k
        stats.hot_rows += hot_rows
        stats.host_rows += plan.host.rows
        stats.overflow_rows += sum(rows) - hot_rows
        stats.ways[plan.reason] += 1
        for way, seconds in choice.weighed:
            sums = stats.weighed_s.setdefault(plan.reason, {})
            sums[way] = sums.get(way, 0.0) + seconds
        stats.busiest[max(rows, default=0)] += 1
        stats.routed.update(Counter({e: n for e, n in enumerate(routing.counts_E.tolist()) if n}))
        if choice.lacking:
            stats.not_ready[choice.lacking] += 1

    # --- running ------------------------------------------------------------------------------------------------------

    def forward(self, x_TH: Tensor, plan: Plan, gate_up: Tensor, down: Tensor, *, backward: Kind | None) -> Rows:
        """Every assignment's row, ``y_AH`` in the weights' dtype, not yet weighed. ``backward`` as in ``plan``."""
        self.stats.forwards += 1
        y_AH = torch.empty(plan.tokens * plan.top_k, x_TH.shape[1], dtype=gate_up.dtype)
        keep = self.shared.keep and backward is not None
        of_calls = self._device_part(plan, lambda: self.calls.forward(x_TH, plan, gate_up, down, y_AH, keep=keep))
        h_C2F = torch.empty(0)
        if plan.host.rows:
            h_C2F = self.host.forward(x_TH, plan.host, gate_up, down, y_AH)
        return Rows(y_AH, Kept(h_C2F, of_calls() or ()))

    def backward(
        self,
        x_TH: Tensor,
        weights_TK: Tensor,
        dout_TH: Tensor,
        kept: Kept,
        plan: Plan,
        gate_up: Tensor,
        down: Tensor,
        kind: Kind,
    ) -> tuple[Tensor, WeightGradients | None]:
        """``dx[T, H]`` in fp32 (a buffer of the arena), and the weights' gradients where ``kind`` is the full one."""
        self.stats.backwards += 1
        full = kind is Kind.EXPERTS_BACKWARD_FULL
        grads = WeightGradients(gate_up, down, self.shared.gradient_memory) if full else None
        dx_AH = self.shared.arena.take("dx rows", (plan.tokens * plan.top_k, x_TH.shape[1]), gate_up.dtype)

        def on_device() -> None:
            self.calls.backward(x_TH, weights_TK, dout_TH, kept.of_calls, plan, gate_up, down, kind, dx_AH, grads)

        # Weight gradients of a hot expert's overflow come from both parts, and are added in this order alone.
        device_done = self._device_part(plan, on_device, apart=grads is not None)
        if plan.host.rows:
            self.host.backward(x_TH, weights_TK, dout_TH, kept.h_C2F, plan.host, gate_up, down, dx_AH, grads)
        device_done()
        return packing.sum_of_experts(dx_AH, None, plan.tokens, self.shared.arena), grads

    def _device_part(self, plan: Plan, job: Callable[[], R], *, apart: bool = False) -> Callable[[], R | None]:
        """Run the device's part of a plan, beside the host's where both have rows; returns how to wait for it.

        The two write different rows, so results are the same to the bit. ``apart``: it must have ended first.
        """
        if not plan.packed:
            return lambda: None
        if apart or not self.is_beside or not plan.host.rows:
            done = job()
            return lambda: done
        return self.shared.device_thread.submit(_without_graph(job)).result

    def planned_keys(self, tokens: int, training: Training | None) -> list[GraphKey]:
        """Every key that calls of up to ``tokens`` tokens can ask for."""
        chooser = self.shared.chooser
        return planned_keys(self.keys, len(self.hot), chooser.ladder, tokens, training, chooser.tiers, self.shared.keep)


def _without_graph(job: Callable[[], R]) -> Callable[[], R]:
    """Autograd is off inside an autograd function, but each thread has a switch of its own."""

    def run() -> R:
        with torch.no_grad():
            return job()

    return run
