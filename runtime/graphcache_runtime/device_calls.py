"""A layer's calls on the device: rows packed, sent, run against the resident weights, and laid back.

Legend: T tokens, K experts a token, A = T x K assignments, H model size, F expert size.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from graphcache_runtime import packing
from graphcache_runtime.host.weight_gradients import WeightGradients
from graphcache_runtime.keys import ExpertKeys
from graphcache_runtime.routing import PackedRows, Plan
from graphcache_runtime.shared import Shared
from graphcache_runtime.stats import LayerStats
from graphcache_runtime.weights.residency import Residency, wanted
from graphcache_runtime.weights.uploader import StackBuffers
from graphcache_wire import GraphKey, Kind


class DeviceCalls:
    """The device side of one layer."""

    def __init__(self, layer: str, keys: ExpertKeys, shared: Shared, residency: Residency, stats: LayerStats) -> None:
        self._layer, self._keys, self._shared, self._residency, self._stats = layer, keys, shared, residency, stats

    def forward(
        self, x_TH: Tensor, plan: Plan, gate_up: Tensor, down: Tensor, y_AH: Tensor, *, keep: bool
    ) -> tuple[Tensor, ...]:
        """Fills the rows of ``y_AH`` that run hot.

        Returns ``h[slots, bucket, 2F]`` of each call, on its device, where ``keep`` asks for it.
        """
        arena, stats = self._shared.arena, self._stats
        rows = packing.with_zero_row(x_TH, gate_up.dtype, arena, "x")
        of_calls: list[Tensor] = []
        for packed in plan.packed:
            call = packed.call
            key = self._keys.key(Kind.EXPERTS_FORWARD, call.slots, call.bucket, keep=keep)
            graph = self._shared.graphs.get(key)
            stack = self._must_stack(plan, gate_up, down, graph.device)
            x = packing.pack(rows, packed, arena, "x packed")
            y, *kept = graph(x.to(graph.device), *_slots(stack, packed))
            packing.unpack(y.to("cpu"), packed, y_AH)
            of_calls += kept
            stats.forward_calls += 1
            stats.padded_rows += call.slots * call.bucket
        stats.kept_bytes = max(stats.kept_bytes, sum(h.numel() * h.element_size() for h in of_calls))
        return tuple(of_calls)

    def probe(self, key: GraphKey, stack: StackBuffers) -> Tensor:
        """One forward call of ``key`` on rows of zeros, there and back: what a call of its size takes."""
        graph = self._shared.graphs.get(key)
        x = torch.zeros(key.e_hot, key.bucket, key.h, dtype=stack.down.dtype)
        return graph(x.to(graph.device), stack.gate_up[: key.e_hot], stack.down[: key.e_hot])[0].to("cpu")

    def backward(
        self,
        x_TH: Tensor,
        weights_TK: Tensor,
        dout_TH: Tensor,
        of_calls: Sequence[Tensor],
        plan: Plan,
        gate_up: Tensor,
        down: Tensor,
        kind: Kind,
        dx_AH: Tensor,
        grads: WeightGradients | None,
    ) -> None:
        """Fills the rows of ``dx_AH`` that ran hot, and adds to ``grads``. ``of_calls``: what forward returned."""
        arena, keep = self._shared.arena, bool(of_calls)
        # With h kept and experts frozen, nothing reads x any more.
        needs_x = grads is not None or not keep
        x_rows = packing.with_zero_row(x_TH, gate_up.dtype, arena, "x") if needs_x else None
        dout_rows = packing.with_zero_row(dout_TH, gate_up.dtype, arena, "dout")
        for number, packed in enumerate(plan.packed):
            call = packed.call
            graph = self._shared.graphs.get(self._keys.key(kind, call.slots, call.bucket, keep=keep))
            stack = self._must_stack(plan, gate_up, down, graph.device)
            dy = packing.pack(dout_rows, packed, arena, "dy packed")
            packing.weigh(dy, packed, weights_TK.flatten())
            rows = [*of_calls[number : number + 1]]
            if x_rows is not None:
                rows.append(packing.pack(x_rows, packed, arena, "x packed"))
            first, *last = [tensor.to(graph.device) for tensor in rows]
            outputs = graph(first, *_slots(stack, packed), dy.to(graph.device), *last)
            packing.unpack(outputs[0].to("cpu"), packed, dx_AH)
            if grads is not None:
                _add_slots(grads, plan, packed, outputs[1].to("cpu"), outputs[2].to("cpu"))
            self._stats.backward_calls += 1

    def _must_stack(self, plan: Plan, gate_up: Tensor, down: Tensor, device: torch.device) -> StackBuffers:
        stack = self._residency.ensure(wanted(plan.hot, gate_up, down, device))
        if stack is None:
            raise TimeoutError(
                f"{self._layer}: the weights of {len(plan.hot)} hot experts did not reach {device} within "
                f"{self._shared.upload_timeout_s} s, and this call was planned for them; check the device"
            )
        return stack


def _slots(stack: StackBuffers, packed: PackedRows) -> tuple[Tensor, Tensor]:
    first, slots = packed.call.first_slot, packed.call.slots
    return stack.gate_up[first : first + slots], stack.down[first : first + slots]


def _add_slots(grads: WeightGradients, plan: Plan, packed: PackedRows, dgate_up: Tensor, ddown: Tensor) -> None:
    call = packed.call
    for slot in torch.unique(torch.div(packed.place_P, call.bucket, rounding_mode="floor")).tolist():
        grads.add(plan.hot[call.first_slot + slot], dgate_up[slot], ddown[slot])
