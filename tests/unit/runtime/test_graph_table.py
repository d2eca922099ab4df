"""Graphs of a process: loaded once, waited for or not, and none outside the manifest in strict mode."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from fakes.torch_graphs import TorchGraph, TorchGraphs

from graphcache_runtime.graph_table import GraphTable, KeyNotPlanned
from graphcache_wire import GraphKey, Kind


def key(bucket: int = 8) -> GraphKey:
    return GraphKey(kind=Kind.EXPERTS_FORWARD, e_hot=1, h=8, f=8, bucket=bucket, toolchain="eager-1")


def test_many_threads_that_want_one_graph_load_it_once() -> None:
    graphs = TorchGraphs()
    table = GraphTable(graphs)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: table.get(key()), range(32)))
    assert len(graphs.loads) == 1
    assert len({id(graph) for graph in found}) == 1


def test_a_graph_that_is_not_there_is_none_at_once_and_asked_for_again() -> None:
    there = threading.Event()
    graphs = TorchGraphs()
    table = GraphTable(graphs, try_load=lambda k: graphs(k) if there.is_set() else None, poll_s=3600)
    assert table.try_get(key()) is None
    assert table.poll() == 1
    there.set()
    while table.poll():
        pass
    assert table.try_get(key()) is not None


def test_a_background_failure_is_kept_for_the_statistics_and_tried_again() -> None:
    answers = [RuntimeError("no service"), TorchGraph(key(), TorchGraphs().calls)]

    def load(_: GraphKey) -> TorchGraph:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    table = GraphTable(load, poll_s=3600)
    slot = table._slot(key())
    slot.wanted = True
    assert table.poll() == 1
    assert table.error_of(key()) == "RuntimeError: no service"
    assert table.poll() == 0
    assert (table.try_get(key()) is not None, table.error_of(key())) == (True, "")


def test_a_failed_get_raises_and_the_next_one_may_succeed() -> None:
    graphs, failures = TorchGraphs(), [OSError("disk")]

    def load(k: GraphKey) -> TorchGraph:
        if failures:
            raise failures.pop()
        return graphs(k)

    table = GraphTable(load)
    with pytest.raises(OSError, match="disk"):
        table.get(key())
    assert table.get(key()).device.type == "cpu"


def test_strict_mode_refuses_a_key_outside_the_manifest() -> None:
    table = GraphTable(TorchGraphs())
    table.restrict([key(8)])
    table.get(key(8))
    with pytest.raises(KeyNotPlanned, match=r"B16 .* not in the manifest of this job \(1 keys\)"):
        table.get(key(16))
    assert table.keys() == [key(8)]


def test_a_baked_graph_without_weights_is_refused() -> None:
    baked = GraphKey(
        kind=Kind.EXPERTS_FORWARD,
        e_hot=1,
        h=8,
        f=8,
        bucket=8,
        toolchain="eager-1",
        options={"mode": "baked", "weights": "0" * 64},
    )
    with pytest.raises(ValueError, match="needs load_baked and its weights"):
        GraphTable(TorchGraphs()).get(baked)
