"""Packed rows: padding is exact zeros, whatever the staging held."""

import torch

from graphcache_runtime.host.arena import Arena
from graphcache_runtime.packing import pack, sum_of_experts, unpack, weigh, with_zero_row
from graphcache_runtime.routing import DeviceCall, PackedRows, Routing, make_plan

INDEX = torch.tensor([[0, 1], [1, 2], [1, 0]])
X = torch.arange(6.0).view(3, 2) + 1


def packed_rows() -> PackedRows:
    return make_plan(Routing(INDEX, 3), (0, 1), (DeviceCall(0, 2, 0, 4),)).packed[0]


def test_padding_is_exact_zeros_even_over_nan() -> None:
    arena = Arena()
    arena.take("x packed", (8, 2), torch.float32).fill_(float("nan"))
    arena.take("x", (4, 2), torch.float32).fill_(float("nan"))
    x_SBH = pack(with_zero_row(X, X.dtype, arena, "x"), packed_rows(), arena, "x packed")
    assert torch.equal(x_SBH[0], torch.stack([X[0], X[2], X[0] * 0, X[0] * 0]))
    assert torch.equal(x_SBH[1, 3], torch.zeros(2))


def test_unpacking_gives_each_assignment_its_row() -> None:
    arena, packed = Arena(), packed_rows()
    y_AH = torch.full((6, 2), -1.0)
    unpack(pack(with_zero_row(X, X.dtype, arena, "x"), packed, arena, "x packed"), packed, y_AH)
    assert torch.equal(y_AH, torch.stack([X[0], X[0], X[1], torch.tensor([-1.0, -1.0]), X[2], X[2]]))


def test_weights_multiply_real_rows_and_leave_padding_zero() -> None:
    arena, packed = Arena(), packed_rows()
    staging = pack(with_zero_row(torch.ones(3, 2), X.dtype, arena, "x"), packed, arena, "x packed")
    weigh(staging, packed, torch.arange(6.0))
    assert staging[:, :, 0].tolist() == [[0, 5, 0, 0], [1, 2, 4, 0]]


def test_a_sum_keeps_fp32_precision_over_bf16_rows() -> None:
    rows_AH = torch.tensor([[256.0], [1.0], [1.0]]).bfloat16()
    assert sum_of_experts(rows_AH, None, 1, Arena()).item() == 258.0


def test_an_arena_hands_out_the_same_memory_again() -> None:
    arena = Arena()
    first = arena.take("x", (4, 8), torch.float32)
    assert arena.take("x", (2, 8), torch.float32).data_ptr() == first.data_ptr()
    assert arena.take("y", (2, 8), torch.float32).data_ptr() != first.data_ptr()
