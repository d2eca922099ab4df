"""GraphBackend: single experts, chunked; the counts of compiles are promises."""

from typing import Literal

import pytest
import torch
from fakes.dense_reference import problem
from fakes.torch_graphs import VERSION, TorchGraphs

from graphcache_runtime.backend import GraphBackend, weights_digest
from graphcache_runtime.graph_table import GraphTable
from graphcache_runtime.ladder import LADDERS, Ladder
from graphcache_runtime.toolchains.base import Weights

Mode = Literal["inputs", "baked"]
P = problem(1, experts=8)


def backend(graphs: TorchGraphs, ladder: Ladder, mode: Mode) -> GraphBackend:
    return GraphBackend(GraphTable(graphs, load_baked=graphs), VERSION, P.gate_up, P.down, ladder, mode)


def rows(count: int) -> torch.Tensor:
    return torch.randn(count, 16, generator=torch.Generator().manual_seed(count))


@pytest.mark.parametrize("mode", ["inputs", "baked"])
@pytest.mark.parametrize("count", [5, 6, 7, 9])
def test_ladder_of_1_and_4_asks_only_for_those_and_equals_an_unchunked_run(mode: Mode, count: int) -> None:
    graphs = TorchGraphs()
    chunked = backend(graphs, Ladder((1, 4)), mode).run(rows(count), 3)
    whole = backend(TorchGraphs(), Ladder((64,)), mode).run(rows(count), 3)
    assert set(graphs.buckets()) <= {1, 4}
    torch.testing.assert_close(chunked, whole, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("mode", "compiles"), [("inputs", 2), ("baked", 16)])
def test_prefills_of_300_to_303_rows_compile_two_graphs_or_two_an_expert(mode: Mode, compiles: int) -> None:
    graphs = TorchGraphs()
    runner = backend(graphs, LADDERS["rngd"], mode)
    for count in (300, 301, 302, 303):
        for expert in range(8):
            runner.run(rows(count), expert)
    assert len(graphs.loads) == len(set(graphs.loads)) == compiles
    assert set(graphs.buckets()) == {256, 64}
    for count in range(305, 321):
        runner.run(rows(count), count % 8)
    assert len(graphs.loads) == compiles


@pytest.mark.parametrize("mode", ["inputs", "baked"])
def test_no_rows_run_no_graph(mode: Mode) -> None:
    graphs = TorchGraphs()
    assert backend(graphs, Ladder((1, 4)), mode).run(rows(0), 0).shape == (0, 16)
    assert graphs.loads == []


def test_one_graph_serves_all_experts_in_inputs_mode_and_gives_each_its_own_result() -> None:
    graphs = TorchGraphs()
    runner = backend(graphs, Ladder((4,)), "inputs")
    first, second = runner.run(rows(3), 0), runner.run(rows(3), 1)
    assert len(graphs.loads) == 1
    assert not torch.allclose(first, second)


def test_an_expert_that_is_not_there_is_named() -> None:
    with pytest.raises(IndexError, match="no expert 8: the layer has 0 to 7"):
        backend(TorchGraphs(), Ladder((4,)), "inputs").run(rows(1), 8)


def test_baked_weights_are_told_apart_by_a_single_element() -> None:
    gate_up, down = P.gate_up[:1].clone(), P.down[:1]
    before = weights_digest(Weights(gate_up, down))
    assert before == weights_digest(Weights(gate_up.clone(), down.clone()))
    gate_up[0, 0, 0] += 1
    assert weights_digest(Weights(gate_up, down)) != before


def test_rows_of_another_dtype_come_back_in_theirs() -> None:
    assert backend(TorchGraphs(), Ladder((4,)), "inputs").run(rows(2).bfloat16(), 0).dtype == torch.bfloat16
