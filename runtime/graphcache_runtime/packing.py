"""Packing: routed rows into ``[slots, bucket, H]`` and back, the same bits every time.

Legend: T tokens, K experts a token, A = T x K assignments, H model size. All sums are in fp32 in the order of k, so
 results depend neither on threads nor on which rows ran where.
"""

import torch
from torch import Tensor

from graphcache_runtime.host.arena import Arena
from graphcache_runtime.routing import PackedRows


def with_zero_row(x_TH: Tensor, dtype: torch.dtype, arena: Arena, role: str) -> Tensor:
    """``[T + 1, H]`` in ``dtype``: the rows, and behind them the row of exact zeros that padding is gathered from."""
    rows = arena.take(role, (x_TH.shape[0] + 1, x_TH.shape[1]), dtype)
    rows[:-1].copy_(x_TH)
    rows[-1].zero_()
    return rows


def pack(rows: Tensor, packed: PackedRows, arena: Arena, role: str) -> Tensor:
    """Gather ``rows`` (from ``with_zero_row``) into staging ``[slots, bucket, H]``.

    Every place is written, padding with exact zeros, so what staging held before, NaN included, is gone.
    """
    call, h = packed.call, rows.shape[1]
    staging = arena.take(role, (call.slots * call.bucket, h), rows.dtype)
    source = packed.source_SB
    torch.index_select(rows, 0, torch.where(source < 0, rows.shape[0] - 1, source), out=staging)
    return staging.view(call.slots, call.bucket, h)


def weigh(staging_SBH: Tensor, packed: PackedRows, weights_A: Tensor) -> None:
    """Multiply each packed row by its router weight, in place; padding by 0."""
    weights = torch.zeros(staging_SBH.shape[0] * staging_SBH.shape[1], dtype=staging_SBH.dtype)
    weights[packed.place_P] = weights_A[packed.assignment_P].to(staging_SBH.dtype)
    staging_SBH.mul_(weights.view(*staging_SBH.shape[:2], 1))


def unpack(y_SBH: Tensor, packed: PackedRows, into_AH: Tensor) -> None:
    """Write each packed row to its assignment's row; padding is dropped."""
    into_AH.index_copy_(0, packed.assignment_P, y_SBH.flatten(0, 1).index_select(0, packed.place_P))


def sum_of_experts(rows_AH: Tensor, weights_TK: Tensor | None, tokens: int, arena: Arena) -> Tensor:
    """``out[t] = sum over k of weights[t, k] * rows[t * K + k]`` in fp32, ``[T, H]``; without weights the plain sum.

    Returns a buffer of the arena: cast or copy it before the next call.
    """
    h = rows_AH.shape[1]
    total = arena.take("sum", (tokens, h), torch.float32).zero_()
    if not tokens:
        return total
    rows_TKH = rows_AH.view(tokens, -1, h)
    weights = None if weights_TK is None else weights_TK.float()
    rows_TH = arena.take("rows to add", (tokens, h), torch.float32)  # mixed dtypes would go through fresh memory
    for k in range(rows_TKH.shape[1]):
        rows_TH.copy_(rows_TKH[:, k])
        if weights is None:
            total.add_(rows_TH)
        else:
            total.addcmul_(rows_TH, weights[:, k, None])
    return total


def dot_with_experts(dout_TH: Tensor, rows_AH: Tensor, top_k: int) -> Tensor:
    """``[T, K]``: the dot product of each token's output gradient with each of its experts' rows, in fp32."""
    tokens, h = dout_TH.shape
    dout, rows_TKH = dout_TH.float(), rows_AH.view(tokens, top_k, h)
    return torch.stack([(dout * rows_TKH[:, k].float()).sum(-1) for k in range(top_k)], dim=1)
