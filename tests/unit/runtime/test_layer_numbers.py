"""A layer against the fp64 oracle: outputs, and gradients of x, router weights, gate_up and down."""

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes.dense_reference import Problem, error, problem, reference
from fakes.moe_layers import layer_for, run
from fakes.torch_graphs import TorchGraph, TorchGraphs

from graphcache_runtime.calls import Overflow
from graphcache_runtime.ladder import Ladder
from graphcache_runtime.planning.costs import Costs
from graphcache_runtime.planning.measured import CostMeter

BOUNDS = {torch.float32: 2e-5, torch.bfloat16: 4e-2}
"""Largest difference over largest value. bf16 rounds at 2^-9 = 0.2 %, several times on the way to a gradient."""

HOT = {"hot only": range(8), "cold only": (0,), "mixed": (6, 1, 3), "one hot": (2,), "twice": (1, 4, 1)}


def assert_like_oracle(p: Problem, hot: Iterable[int], **options: Any) -> None:
    got, want = run(layer_for(p, tuple(hot), **options), p), reference(p)
    for field in fields(want):
        wrong = error(getattr(got, field.name), getattr(want, field.name))
        assert wrong <= BOUNDS[p.x_TH.dtype], (field.name, wrong)


@pytest.mark.parametrize("hot", HOT.values(), ids=HOT)
@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_output_and_gradients_agree_with_the_oracle(hot: range | tuple[int, ...], dtype: torch.dtype) -> None:
    assert_like_oracle(problem(37, dtype=dtype), hot)


def test_all_tokens_cold_make_no_device_call() -> None:
    p = problem(12)
    p = replace(p, index_TK=p.index_TK % 4 + 4)
    layer = layer_for(p, (0, 1))
    assert error(run(layer, p).dx, reference(p).dx) < 1e-5
    assert (layer.stats.forward_calls, layer.stats.backward_calls) == (0, 0)
    assert layer.shared.graphs.keys() == []


def test_no_tokens_give_empty_outputs_zero_gradients_and_no_call() -> None:
    p = problem(0)
    layer = layer_for(p, (0, 1))
    got = run(layer, p)
    assert got.out.shape == got.dx.shape == (0, 16)
    assert not got.dgate_up.any()
    assert layer.stats.forward_calls == 0


@pytest.mark.parametrize("rows", [7, 8, 9, 15, 16, 17, 31, 32, 33, 1025])
def test_rows_one_below_at_and_above_each_bucket(rows: int) -> None:
    p = problem(rows, experts=2, top_k=1, h=8, f=8)
    p = replace(p, index_TK=torch.zeros_like(p.index_TK))
    assert_like_oracle(p, (0,))


def test_chunks_of_a_short_ladder_equal_the_oracle_and_ask_for_its_rungs_alone() -> None:
    p, graphs = problem(90, experts=3), TorchGraphs()
    assert_like_oracle(p, (0, 2), ladder=Ladder((8, 16)), graphs=graphs)
    assert set(graphs.buckets()) <= {8, 16}


def test_an_expert_without_rows_has_exactly_zero_weight_gradient() -> None:
    p = problem(20)
    p = replace(p, index_TK=p.index_TK.clamp(max=5))
    got = run(layer_for(p, (0, 6)), p)
    for cold_or_hot in (6, 7):
        assert not got.dgate_up[cold_or_hot].any()
        assert not got.ddown[cold_or_hot].any()


def test_padding_and_staging_full_of_nan_change_no_bit() -> None:
    p = problem(21)
    layer = layer_for(p, (1, 3, 5))
    before = run(layer, p)
    for buffer in layer.shared.arena._of_thread.buffers.values():
        buffer.fill_(float("nan"))
    after = run(layer, p)
    assert all(torch.equal(getattr(before, f.name), getattr(after, f.name)) for f in fields(before))


def test_a_real_nan_reaches_its_own_token_and_no_other() -> None:
    p = problem(16)
    x = p.x_TH.clone()
    x[5, 0] = float("nan")
    out = run(layer_for(p, (0, 1, 2)), replace(p, x_TH=x)).out
    assert out.isnan().all(1).nonzero().flatten().tolist() == [5]


def test_the_same_expert_twice_for_a_token_counts_both_weights() -> None:
    p = problem(9)
    p = replace(p, index_TK=p.index_TK[:, :1].repeat(1, 2))
    assert_like_oracle(p, (0, 1, 2, 3))


def test_five_runs_are_equal_to_the_bit() -> None:
    p = problem(64, dtype=torch.bfloat16)
    layer = layer_for(p, (0, 3, 5))
    first, *others = [run(layer, p) for _ in range(5)]
    for other in others:
        assert all(torch.equal(getattr(first, f.name), getattr(other, f.name)) for f in fields(first))


@pytest.mark.parametrize(("h", "f"), [(10, 6), (17, 5), (24, 40)])
def test_sizes_that_are_no_multiple_of_8(h: int, f: int) -> None:
    assert_like_oracle(problem(19, h=h, f=f), (0, 4))


def test_transposed_weights_get_gradients_in_their_own_layout() -> None:
    p = problem(24)
    gate_up = p.gate_up.transpose(1, 2).contiguous().transpose(1, 2)
    got = run(layer_for(p, (0, 1)), replace(p, gate_up=gate_up))
    assert got.dgate_up.stride() == gate_up.stride()
    assert error(got.dgate_up, reference(p).dgate_up) < 1e-5


def test_memory_mapped_weights_at_an_odd_address(tmp_path: Path) -> None:
    p = problem(24)
    raw = torch.zeros(p.gate_up.numel() * 4 + 4, dtype=torch.uint8)
    path = str(tmp_path / "weights")
    raw.numpy().tofile(path)
    mapped = torch.from_file(path, shared=True, size=raw.numel(), dtype=torch.uint8)[4:].view(torch.float32)
    gate_up = mapped.view_as(p.gate_up)
    gate_up.copy_(p.gate_up)
    assert_like_oracle(replace(p, gate_up=gate_up), (0, 1))


def test_fp32_rows_and_bf16_weights_give_gradients_in_each_ones_dtype() -> None:
    p = problem(24, dtype=torch.bfloat16)
    mixed = replace(p, x_TH=p.x_TH.float(), dout_TH=p.dout_TH.float(), weights_TK=p.weights_TK.float())
    got = run(layer_for(p, (0, 1)), mixed)
    dtypes = (got.out.dtype, got.dx.dtype, got.dweights.dtype, got.dgate_up.dtype)
    assert dtypes == (torch.float32, torch.float32, torch.float32, torch.bfloat16)
    assert error(got.dx, reference(mixed).dx) < 4e-2


def test_autocast_changes_nothing() -> None:
    p = problem(24)
    plain = run(layer_for(p, (0, 1)), p)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = run(layer_for(p, (0, 1)), p)
    assert torch.equal(plain.out, cast.out)
    assert torch.equal(plain.dgate_up, cast.dgate_up)


def test_frozen_experts_use_the_lora_graph_and_give_the_same_gradient_of_x() -> None:
    p, graphs = problem(24), TorchGraphs()
    got = run(layer_for(p, (0, 1), graphs=graphs), p, full=False)
    assert error(got.dx, reference(p).dx) < 1e-5
    assert [key.kind.value for key in graphs.loads] == ["moe-experts-fwd", "moe-experts-bwd-lora"]


def test_a_wrong_expert_id_names_layer_and_value() -> None:
    p = problem(4)
    with pytest.raises(ValueError, match=r"layers\.0\.mlp\.experts: the router chose expert -1"):
        run(layer_for(p, (0,)), replace(p, index_TK=torch.full_like(p.index_TK, -1)))


@pytest.mark.parametrize("full", [False, True], ids=["lora", "full"])
def test_keeping_gate_ups_product_gives_the_same_bits_as_computing_it_again(full: bool) -> None:
    p, graphs = problem(37), TorchGraphs()
    kept = run(layer_for(p, (6, 1, 3), graphs=graphs, keep=True), p, full=full)
    again = run(layer_for(p, (6, 1, 3)), p, full=full)
    assert all(torch.equal(getattr(kept, f.name), getattr(again, f.name)) for f in fields(kept))
    assert [key.keeps_gate_up for key in graphs.loads] == [True, True]


@pytest.mark.parametrize("full", [False, True], ids=["lora", "full"])
def test_device_and_host_side_by_side_give_the_same_bits_as_one_after_the_other(full: bool) -> None:
    p = problem(60, top_k=1, dtype=torch.bfloat16)
    p = replace(p, index_TK=torch.tensor([6] * 40 + [1] * 8 + [3] * 7 + [0] * 5).view(-1, 1))
    options = {"overflow": Overflow.COST, "costs": CostMeter(DEAR_CALLS), "ladder": Ladder((8,))}
    beside = layer_for(p, (6, 1, 3), beside=True, **options)
    apart = run(layer_for(p, (6, 1, 3), beside=False, **options), p, full=full)
    for _ in range(3):
        together = run(beside, p, full=full)
        assert all(torch.equal(getattr(together, f.name), getattr(apart, f.name)) for f in fields(apart))
    assert beside.stats.overflow_rows > 0


def test_the_host_computes_while_the_device_does() -> None:
    p, host_began = problem(33), threading.Event()

    class WaitsForHost(TorchGraph):
        def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            assert host_began.wait(20)
            return super().__call__(*inputs)

    layer = layer_for(p, (0, 1, 2), beside=True, graphs=lambda key: WaitsForHost(key, Counter()))
    computes = layer.host.forward

    def host_forward(*arguments: Any) -> torch.Tensor:
        host_began.set()
        return computes(*arguments)

    layer.host.forward = host_forward
    assert error(run(layer, p, full=False).out, reference(p).out) < 1e-5


def test_an_error_of_the_device_reaches_the_training_step() -> None:
    class Breaks(TorchGraph):
        def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            raise OSError("the device fell off the bus")

    layer = layer_for(problem(33), (0, 1, 2), beside=True, graphs=lambda key: Breaks(key, Counter()))
    with pytest.raises(OSError, match="fell off the bus"):
        run(layer, problem(33))


FREE_CALLS = Costs(call_s=0.0, device_row_s=1e-6, host_expert_s=1.0, host_row_s=1.0, upload_byte_s=0.0)
CHEAP_ROWS = Costs(call_s=1.0, device_row_s=1.0, host_expert_s=0.0, host_row_s=1e-6, upload_byte_s=0.0)
CHEAP_EXPERTS = Costs(call_s=0.0, device_row_s=1.0, host_expert_s=0.0, host_row_s=2.5, upload_byte_s=0.0)
DEAR_CALLS = Costs(call_s=100.0, device_row_s=1.0, host_expert_s=0.0, host_row_s=6.0, upload_byte_s=0.0)
WAYS = {"tiers": FREE_CALLS, "host": CHEAP_ROWS, "overflow": CHEAP_EXPERTS}


@pytest.mark.parametrize(("way", "costs"), WAYS.items(), ids=WAYS)
def test_every_way_that_costs_may_choose_agrees_with_the_oracle(way: str, costs: Costs) -> None:
    p = problem(60, experts=4, top_k=1)
    p = replace(p, index_TK=torch.tensor([0] * 40 + [1] * 8 + [2] * 7 + [3] * 5).view(-1, 1))
    options = {"overflow": Overflow.COST, "costs": CostMeter(costs), "tiers": (2,)}
    layer = layer_for(p, (0, 1, 2, 3), **options)
    got, want = run(layer, p), reference(p)
    assert all(error(getattr(got, f.name), getattr(want, f.name)) <= 2e-5 for f in fields(want))
    assert set(layer.stats.ways) == {way}
    assert way in layer.stats.weighed_s[way]


def test_chunks_keep_a_product_each_and_the_statistics_count_their_bytes() -> None:
    p = problem(90, experts=3, f=24)
    assert_like_oracle(p, (0, 2), ladder=Ladder((8, 16)), keep=True)
    layer = layer_for(p, (0, 2), ladder=Ladder((16,)), keep=True)
    run(layer, p)
    assert layer.stats.kept_bytes == layer.stats.padded_rows * 2 * 24 * 4 > 0
