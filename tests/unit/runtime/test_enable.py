"""enable's settings, on whole models."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes.tiny_models import tiny, token_ids
from fakes.torch_graphs import VERSION, TorchGraph, TorchGraphs

from graphcache_runtime import LADDERS, Ladder, enable, hot_sets_from
from graphcache_runtime.graph_table import GraphTable, KeyNotPlanned
from graphcache_runtime.handle import MoeHandle
from graphcache_wire import GraphKey


def frozen(family: str = "qwen3-moe") -> Any:
    model = tiny(family)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("q_proj" in name)
    return model


def on_graphs(model: Any, graphs: Any = None, **options: Any) -> MoeHandle:
    settings = {"graphs": graphs or TorchGraphs(), "toolchain_version": VERSION}
    settings |= {"policy": "wait", "overflow": "bucket"}
    return enable(model, **settings | options)


def step(model: Any, tokens: int = 24) -> torch.Tensor:
    ids = token_ids(tokens)
    result = model(ids, labels=ids)
    result.loss.backward()
    logits: torch.Tensor = result.logits.detach()
    return logits


def test_strict_mode_and_graphs_that_are_not_ready_go_together() -> None:
    model, graphs = frozen(), TorchGraphs()
    table = GraphTable(graphs, try_load=lambda key: None, poll_s=3600)
    handle = on_graphs(model, table, policy="ready-buckets", strict_tokens=48, e_hot=3)
    step(model)
    assert set(handle.keys_used()) <= set(handle.manifest(48))
    assert handle.stats()["device_calls"] == 0


def test_strict_mode_makes_a_longer_input_an_error() -> None:
    model = frozen()
    on_graphs(model, strict_tokens=8, hot_fraction=1.0)
    with pytest.raises(KeyNotPlanned, match="not in the manifest of this job"):
        step(model, 200)


def test_the_manifest_of_a_model_names_each_graph_once() -> None:
    keys = on_graphs(frozen(), e_hot=3).manifest(100)
    assert [(key.kind.value, key.bucket) for key in keys] == [
        (kind, bucket) for bucket in (8, 16, 32, 64, 128) for kind in ("moe-experts-fwd", "moe-experts-bwd-lora")
    ]


def test_keeping_gate_ups_product_plans_a_forward_for_evaluation_too() -> None:
    model = frozen()
    want = step(model)
    handle = on_graphs(model, e_hot=3, backward="keep", strict_tokens=48)
    torch.testing.assert_close(step(model), want, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        model(token_ids(24))
    assert handle.stats()["kept_bytes"] > 0
    kinds = [(key.kind.value, key.keeps_gate_up) for key in handle.manifest(8)]
    assert kinds == [("moe-experts-fwd", True), ("moe-experts-bwd-lora", True), ("moe-experts-fwd", False)]
    assert {(key.kind.value, key.keeps_gate_up) for key in handle.keys_used()} == set(kinds)


def test_a_backward_that_is_none_of_the_two_is_refused() -> None:
    with pytest.raises(ValueError, match="backward is one of recompute, keep, not 'cache'"):
        on_graphs(frozen(), backward="cache")


def test_every_public_name_is_there() -> None:
    import graphcache_runtime

    assert [name for name in graphcache_runtime.__all__ if getattr(graphcache_runtime, name) is None] == []


def test_without_any_graph_training_goes_on_and_gets_faster_as_graphs_arrive() -> None:
    model, graphs, there = frozen(), TorchGraphs(), set[int]()
    want = step(model)
    table = GraphTable(graphs, try_load=lambda key: graphs(key) if key.bucket in there else None, poll_s=3600)
    handle = on_graphs(model, table, policy="ready-buckets", e_hot=3)
    torch.testing.assert_close(step(model), want, rtol=1e-4, atol=1e-4)
    assert handle.stats()["device_calls"] == 0
    assert sum(handle.stats()["not_ready"].values()) == 2
    there |= set(LADDERS["packed"].rungs)
    while table.poll():
        pass
    torch.testing.assert_close(step(model), want, rtol=1e-4, atol=1e-4)
    assert handle.stats()["device_calls"] == 4


@pytest.mark.parametrize("missing", ["moe-experts-fwd", "moe-experts-bwd-lora"])
def test_a_step_runs_hot_only_when_the_graphs_of_both_directions_are_there(missing: str) -> None:
    model, graphs = frozen(), TorchGraphs()

    def load(key: GraphKey) -> TorchGraph:
        raise AssertionError(f"training waited for {key.label()}")

    table = GraphTable(load, try_load=lambda key: None if key.kind == missing else graphs(key), poll_s=3600)
    handle = on_graphs(model, table, policy="ready-buckets", e_hot=3)
    step(model)
    table.poll()
    step(model)
    assert handle.stats()["device_calls"] == 0
    assert len(graphs.loads) > 0


def test_hot_sets_follow_the_router_and_each_change_uploads_once() -> None:
    model = frozen()
    handle = on_graphs(model, e_hot=3, replan_every=4)
    for _ in range(9):
        step(model)
    stats = handle.stats()
    assert stats["weight_uploads"] == 2 + stats["replans"]


def test_written_statistics_choose_the_next_jobs_hot_sets(tmp_path: Path) -> None:
    model, path = frozen(), tmp_path / "stats.json"
    handle = on_graphs(model, e_hot=3)
    step(model)
    handle.save_stats(path)
    handle.disable()
    hot_sets = hot_sets_from(path, 3)
    routed = handle.layers["model.layers.0.mlp.experts"].stats.routed
    assert sorted(routed[e] for e in hot_sets[0]) == sorted(routed.values())[-3:]
    assert json.loads(path.read_text())["totals"]["rows"] == handle.stats()["rows"]
    assert on_graphs(model, e_hot=3, hot_sets=hot_sets).hot_sets()["model.layers.0.mlp.experts"] == hot_sets[0]


def test_a_file_that_is_no_statistics_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("[]")
    with pytest.raises(ValueError, match=r"other\.json is no file of MoeHandle\.save_stats"):
        hot_sets_from(path, 3)


def test_a_memory_budget_gives_every_layer_the_same_number_of_slots() -> None:
    model = frozen()
    one_expert = 3 * 32 * 24 * 4
    handle = on_graphs(model, hot_bytes=2 * 5 * one_expert + 17)
    assert [len(hot) for hot in handle.hot_sets().values()] == [5, 5]


def test_a_budget_too_small_for_one_expert_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves no hot expert a layer"):
        on_graphs(frozen(), hot_bytes=100)


def test_choosing_by_measured_cost_gives_the_same_numbers_and_says_why() -> None:
    model = frozen()
    want = step(model)
    handle = on_graphs(model, e_hot=4, overflow="cost", costs="measured", tiers=(2,))
    for _ in range(3):
        torch.testing.assert_close(step(model), want, rtol=1e-4, atol=1e-4)
    stats = handle.stats()
    assert sum(stats["ways"].values()) == 6
    assert set(stats["weighed_s"]) == set(stats["ways"])
    assert stats["costs"]["measured_host"]
    json.dumps(stats)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tiers": (2,)}, 'set overflow="cost" too'),
        ({"tiers": (3,), "overflow": "cost"}, "tiers of 3 groups cannot share 4 hot experts evenly"),
        ({"second_slots": True}, "set replan_every too"),
        ({"costs": "cheap"}, "not 'cheap'"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_setting_without_the_one_it_needs_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        on_graphs(frozen(), e_hot=4, **options)


def test_a_handle_computes_the_best_ladder_of_what_it_counted() -> None:
    model = frozen()
    handle = on_graphs(model, e_hot=4)
    step(model)
    report = handle.best_ladder(forwards=10_000)
    assert report.ladder.largest >= max(handle.stats()["busiest_expert_rows"])
    assert report.calls == 1.0
    assert report.graphs == 2 * len(report.ladder.rungs)


def test_a_full_update_uploads_each_layer_once_a_step_and_ahead_of_its_use() -> None:
    model = tiny("qwen3-moe")
    handle = on_graphs(model, e_hot=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for _ in range(3):
        step(model)
        optimizer.step()
        optimizer.zero_grad()
    assert handle.stats()["weight_uploads"] == 6


def test_a_cache_without_its_toolchain_is_refused(tmp_path: Path) -> None:
    from graphcache_client import DiskStore, GraphCache

    with pytest.raises(ValueError, match="need the toolchain that loads them"):
        on_graphs(frozen(), GraphCache(None, DiskStore(tmp_path / "store")))


def test_a_short_ladder_is_kept_whatever_the_length() -> None:
    model = frozen()
    handle = on_graphs(model, e_hot=8, ladder=Ladder((8, 16)))
    want_from = frozen()
    torch.testing.assert_close(step(model, 70), step(want_from, 70), rtol=1e-4, atol=1e-4)
    assert {key.bucket for key in handle.keys_used()} <= {8, 16}
    assert LADDERS["packed"].largest == 1024
