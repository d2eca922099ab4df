"""Hot sets: worth their uploads, and the same on every rank."""

from dataclasses import replace

import pytest
import torch
from fakes.dense_reference import Problem, error, problem
from fakes.moe_layers import layer_for, run

from graphcache_runtime.planning.costs import RNGD, rngd_costs
from graphcache_runtime.planning.hotset import Replanning, RouterCounts, first_hot_set, replanned, saved_s
from graphcache_runtime.planning.measured import CostMeter

LAYER_BYTES = 302_000_000


def test_the_first_hot_set_is_the_busiest_experts_busiest_first() -> None:
    assert first_hot_set([1.0, 9.0, 3.0, 9.0], 3) == (1, 3, 2)


def test_counts_decay_and_average_over_forwards() -> None:
    counts = RouterCounts(2, decay=0.5)
    for rows in ([8, 0], [0, 8]):
        counts.add(torch.tensor(rows))
    assert counts.mean_E() == pytest.approx([4 / 1.5, 8 / 1.5])


def test_a_swap_that_saves_less_than_its_upload_is_not_made() -> None:
    # 146 ms of upload against 100 forwards that save 10 rows x 0.0425 ms, and the reading of a rarely used expert.
    assert replanned((0, 1), [5.0, 2.0, 3.0], Replanning(100), RNGD, LAYER_BYTES) == (0, 1)


def test_the_same_swap_is_made_where_it_lasts_longer() -> None:
    assert replanned((0, 1), [5.0, 2.0, 3.0], Replanning(10_000), RNGD, LAYER_BYTES) == (0, 2)


def test_several_swaps_share_one_upload() -> None:
    mean = [20.0, 1.0, 1.0, 9.0, 9.0]
    gain = saved_s(9.0, RNGD) - saved_s(1.0, RNGD)
    once, both = (0, 1), (0, 1, 2)
    forwards = int(RNGD.upload_s(LAYER_BYTES) / gain * 0.75)
    assert replanned(once, [*mean[:2], *mean[3:4]], Replanning(forwards), RNGD, LAYER_BYTES) == once
    assert replanned(both, mean, Replanning(forwards), RNGD, LAYER_BYTES) == (0, 4, 3)


def test_who_stays_keeps_its_slot() -> None:
    assert replanned((3, 0, 1), [9.0, 0.0, 8.0, 7.0], Replanning(10**6), RNGD, LAYER_BYTES) == (3, 0, 2)


def test_a_busy_expert_gets_a_second_slot_where_that_lowers_the_bucket() -> None:
    mean = [400.0] + [20.0] * 31
    hot = replanned(tuple(range(32)), mean, Replanning(10**6, second_slots=True), RNGD, LAYER_BYTES)
    assert hot.count(0) > 1
    assert len(hot) == 32
    alone = replanned(tuple(range(32)), mean, Replanning(10**6), RNGD, LAYER_BYTES)
    assert alone == tuple(range(32))


def test_ties_are_broken_by_the_experts_number() -> None:
    assert first_hot_set([1.0] * 8, 4) == (0, 1, 2, 3)
    assert replanned((0, 1), [1.0] * 8, Replanning(10**6), RNGD, LAYER_BYTES) == (0, 1)


def test_costs_grow_with_the_experts_size() -> None:
    assert rngd_costs(4096, 768).host_row_s == pytest.approx(2 * RNGD.host_row_s)
    assert rngd_costs(2048, 768) == RNGD


def observed(p: Problem, every: int, forwards: int) -> tuple[tuple[int, ...], int]:
    layer = layer_for(p, (0, 1), replanning=Replanning(every), costs=CostMeter(replace(RNGD, upload_byte_s=0.0)))
    for _ in range(forwards):
        layer.observe(p.index_TK, p.gate_up, p.down)
    return layer.hot, layer.stats.replans


def test_a_layer_looks_at_its_hot_set_at_each_interval_only() -> None:
    p = problem(30)
    busy = replace(p, index_TK=p.index_TK % 2 + 5)
    assert observed(busy, every=3, forwards=2) == ((0, 1), 0)
    hot, replans = observed(busy, every=3, forwards=7)
    assert (set(hot), replans) == ({5, 6}, 1)


def test_a_layer_gives_its_busiest_expert_a_second_slot_and_stays_right() -> None:
    p = problem(60, top_k=1)
    p = replace(p, index_TK=torch.tensor([0] * 40 + [1] * 10 + [2] * 9 + [3]).view(-1, 1))
    dear_padding = replace(RNGD, device_row_s=3e-5, upload_byte_s=0.0)
    layer = layer_for(p, (0, 1, 2, 3), replanning=Replanning(1, second_slots=True), costs=CostMeter(dear_padding))
    before = run(layer, p)
    layer.observe(p.index_TK, p.gate_up, p.down)
    assert layer.hot == (0, 1, 2, 0)
    after = run(layer, p)
    assert set(layer.stats.busiest) == {40, 20}
    assert error(after.dgate_up, before.dgate_up.double()) < 1e-5
    layer.observe(p.index_TK, p.gate_up, p.down)
    assert layer.stats.replans == 1


def test_an_expert_that_is_no_longer_busy_loses_its_second_slot() -> None:
    dear_padding = replace(RNGD, device_row_s=1e-3)
    hot = replanned((0, 1, 2, 0), [5.0, 5.0, 5.0, 4.0], Replanning(10**6, second_slots=True), dear_padding, LAYER_BYTES)
    assert hot == (0, 1, 2, 3)


def test_an_interval_of_zero_never_replans() -> None:
    p = problem(30)
    assert observed(replace(p, index_TK=p.index_TK % 2 + 5), every=0, forwards=9) == ((0, 1), 0)
