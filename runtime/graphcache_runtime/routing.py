"""Where each routed row runs: which slot and place of which device call, or on the host. Decided without touching rows.

Legend: T tokens, K experts a token, E experts of the layer, A = T x K assignments (one token to one expert; assignment
``t * K + k``), P packed rows of one call, C rows on the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class DeviceCall:
    """One call: of ``slots`` slots from ``first_slot`` the rows of each from ``first_row``, at most ``bucket``."""

    first_slot: int
    slots: int
    first_row: int
    bucket: int


@dataclass(frozen=True)
class PackedRows:
    """The rows of one device call. ``place_P`` is slot x bucket + row inside ``[slots, bucket]``."""

    call: DeviceCall
    token_P: Tensor
    assignment_P: Tensor
    place_P: Tensor

    @cached_property
    def source_SB(self) -> Tensor:
        """For each place the token whose row lies there, or -1 where padding lies."""
        source = torch.full((self.call.slots * self.call.bucket,), -1, dtype=torch.int64)
        source[self.place_P] = self.token_P
        return source


@dataclass(frozen=True, slots=True)
class HostRows:
    """The rows that the host runs, sorted by expert: ``counts[i]`` rows of expert ``experts[i]``, one after another."""

    token_C: Tensor
    assignment_C: Tensor
    experts: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def rows(self) -> int:
        return self.token_C.numel()


@dataclass(frozen=True)
class Routing:
    """What the router chose: ``index_TK`` and the rows of each expert, sorted once for every later decision."""

    index_TK: Tensor
    experts: int

    @cached_property
    def by_expert(self) -> tuple[Tensor, Tensor]:
        """Experts in ascending order, and the assignment of each."""
        flat_A = self.index_TK.flatten().to(torch.int64)
        expert_A, assignment_A = torch.sort(flat_A, stable=True)
        return expert_A, assignment_A

    @cached_property
    def counts_E(self) -> Tensor:
        """Rows of each expert."""
        return torch.bincount(self.index_TK.flatten(), minlength=self.experts)

    @cached_property
    def row_of_expert_A(self) -> Tensor:
        """The how-manieth row of its expert each assignment of ``by_expert`` is."""
        expert_A, _ = self.by_expert
        starts_E = torch.cumsum(self.counts_E, 0) - self.counts_E
        return torch.arange(expert_A.numel()) - starts_E[expert_A]


@dataclass(frozen=True)
class Plan:
    """One forward's routing, split into device calls and host rows. Backward and a recomputed forward reuse it."""

    tokens: int
    top_k: int
    index_TK: Tensor
    hot: tuple[int, ...]
    packed: tuple[PackedRows, ...]
    host: HostRows
    reason: str = ""
    """Why the calls are as they are: the name of the chosen way, or why nothing runs hot."""

    @property
    def hot_rows(self) -> int:
        return sum(rows.token_P.numel() for rows in self.packed)


def check_expert_ids(index_TK: Tensor, experts: int, layer: str) -> None:
    """Refuse ids that name no expert.

    Raises:
        ValueError: names the layer and the value.
    """
    if index_TK.numel() == 0:
        return
    low, high = torch.aminmax(index_TK)
    for value in (int(low), int(high)):
        if not 0 <= value < experts:
            raise ValueError(
                f"{layer}: the router chose expert {value}, and the layer has experts 0 to {experts - 1}; "
                "check top_k_index, and that expert parallelism is off"
            )


def slot_rows(routing: Routing, hot: Sequence[int]) -> list[int]:
    """Rows waiting for each slot. An expert in several slots shares its rows among them, the first get one more."""
    counts = routing.counts_E.tolist()
    times: dict[int, int] = {}
    for expert in hot:
        times[expert] = times.get(expert, 0) + 1
    seen: dict[int, int] = {}
    rows = []
    for expert in hot:
        nth = seen[expert] = seen.get(expert, -1) + 1
        rows.append((counts[expert] + times[expert] - 1 - nth) // times[expert])
    return rows


def make_plan(routing: Routing, hot: Sequence[int], calls: Sequence[DeviceCall], reason: str = "") -> Plan:
    """Lay every assignment into one of ``calls``, or on the host where none takes it.

    The n-th slot of an expert that has m slots takes the expert's rows n, n + m, n + 2m, ...
    """
    expert_A, assignment_A = routing.by_expert
    tokens, top_k = routing.index_TK.shape
    token_A = torch.div(assignment_A, max(top_k, 1), rounding_mode="floor")
    slot_A, row_A = _slots_and_rows(routing, expert_A, hot)
    on_host_A = torch.ones_like(expert_A, dtype=torch.bool)
    packed = []
    for call in calls:
        rows = _packed(call, slot_A, row_A, token_A, assignment_A)
        on_host_A[rows[1]] = False
        if rows[0].token_P.numel():
            packed.append(rows[0])
    host = _host_rows(expert_A[on_host_A], token_A[on_host_A], assignment_A[on_host_A])
    return Plan(tokens, top_k, routing.index_TK, tuple(hot), tuple(packed), host, reason)


def _slots_and_rows(routing: Routing, expert_A: Tensor, hot: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The slot of each assignment (-1: cold) and its row there."""
    most = max((list(hot).count(expert) for expert in set(hot)), default=1)
    slots_EM = torch.full((routing.experts, most), -1, dtype=torch.int64)
    times_E = torch.zeros(routing.experts, dtype=torch.int64)
    for slot, expert in enumerate(hot):
        slots_EM[expert, times_E[expert]] = slot
        times_E[expert] += 1
    times_A = times_E.clamp(min=1)[expert_A]
    row_A = routing.row_of_expert_A
    return slots_EM[expert_A, row_A % times_A], torch.div(row_A, times_A, rounding_mode="floor")


def _packed(
    call: DeviceCall, slot_A: Tensor, row_A: Tensor, token_A: Tensor, assignment_A: Tensor
) -> tuple[PackedRows, Tensor]:
    slot, row = slot_A - call.first_slot, row_A - call.first_row
    inside = (slot_A >= 0) & (slot >= 0) & (slot < call.slots) & (row >= 0) & (row < call.bucket)
    at = inside.nonzero().squeeze(1)
    return PackedRows(call, token_A[at], assignment_A[at], slot[at] * call.bucket + row[at]), at


def _host_rows(expert_C: Tensor, token_C: Tensor, assignment_C: Tensor) -> HostRows:
    experts, counts = torch.unique_consecutive(expert_C, return_counts=True)
    return HostRows(token_C, assignment_C, tuple(experts.tolist()), tuple(counts.tolist()))
