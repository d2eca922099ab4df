"""Costs of this machine: measured once, on the graphs and the kernel that training uses."""

import dataclasses

import pytest
from fakes.dense_reference import problem
from fakes.moe_layers import layer_for, run
from fakes.torch_graphs import TorchGraphs

from graphcache_runtime.planning.costs import RNGD, Costs
from graphcache_runtime.planning.measured import CostMeter, fitted
from graphcache_runtime.weights.uploader import UploadCounts, Uploader

P = problem(33)


def test_calls_of_two_sizes_tell_a_calls_own_time_from_a_rows() -> None:
    assert fitted({100: 0.02, 300: 0.04}, RNGD) == pytest.approx((0.01, 1e-4))


def test_calls_of_one_size_share_their_time_as_the_given_costs_do() -> None:
    call_s, row_s = fitted({1000: 2 * RNGD.device_s(1000)}, RNGD)
    assert (call_s, row_s) == pytest.approx((2 * RNGD.call_s, 2 * RNGD.device_row_s))


@pytest.mark.parametrize("call_s", [{8: 0.02, 16: 0.01}, {8: 0.001, 16: 0.1}])
def test_no_noise_makes_a_cost_negative(call_s: dict[int, float]) -> None:
    assert min(fitted(call_s, RNGD)) >= 0.0


def test_a_layer_measures_host_upload_and_each_size_of_call_once() -> None:
    uploader, graphs = Uploader(), TorchGraphs()
    meter = CostMeter(RNGD, measures=True, uploads=uploader.counts)
    layer = layer_for(P, (0, 1, 2), graphs=graphs, costs=meter, uploader=uploader)
    for _ in range(4):
        run(layer, P)
    assert list(meter.calls_s) == [(3, 16)]
    assert max(graphs.calls.values()) == 4 + 4
    changed = [f.name for f in dataclasses.fields(Costs) if getattr(meter.costs, f.name) != getattr(RNGD, f.name)]
    assert changed == ["call_s", "device_row_s", "host_expert_s", "host_row_s", "upload_byte_s"]
    assert meter.report()["measured_uploads"] == uploader.counts.uploads > 0
    assert meter.report()["measured_host"]


def test_given_costs_are_not_measured() -> None:
    meter = CostMeter(RNGD, uploads=UploadCounts())
    run(layer_for(P, (0, 1, 2), costs=meter), P)
    assert meter.costs == RNGD
    assert meter.report()["measured_calls"] == []
