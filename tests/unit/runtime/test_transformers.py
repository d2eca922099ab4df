"""Models of transformers, turned on by name: outputs and gradients agree with eager."""

from typing import Any

import pytest
import torch
from fakes.tiny_models import FAMILIES, tiny, token_ids
from fakes.torch_graphs import VERSION, TorchGraphs
from torch import nn
from torch.utils.checkpoint import checkpoint

from graphcache_runtime import UnsupportedExperts, enable, moe_stats
from graphcache_runtime.graph_table import GraphTable
from graphcache_runtime.handle import MoeHandle

IDS = token_ids(24)


def on_graphs(model: nn.Module, **options: Any) -> MoeHandle:
    settings = {"graphs": TorchGraphs(), "toolchain_version": VERSION, "e_hot": 3}
    settings |= {"policy": "wait", "overflow": "bucket"}
    return enable(model, **settings | options)


def losses_and_gradients(model: Any) -> dict[str, torch.Tensor]:
    model.zero_grad()
    result = model(IDS, labels=IDS)
    result.loss.backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"logits": result.logits.detach()} | grads


def assert_close(got: dict[str, torch.Tensor], want: dict[str, torch.Tensor], bound: float) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        scale = max(float(value.abs().max()), 1e-3)
        assert float((got[name] - value).abs().max()) <= bound * scale, name


@pytest.mark.parametrize("family", FAMILIES)
def test_full_fine_tuning_agrees_with_eager(family: str) -> None:
    model = tiny(family)
    want = losses_and_gradients(model)
    handle = on_graphs(model, training="full")
    assert_close(losses_and_gradients(model), want, 1e-4)
    assert handle.stats()["forward_calls"] > 0
    handle.disable()


@pytest.mark.parametrize("family", FAMILIES)
def test_bf16_with_frozen_experts_agrees_with_eager(family: str) -> None:
    model = tiny(family, torch.bfloat16)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("attn" in name and "proj" in name)
    want = losses_and_gradients(model)
    on_graphs(model)
    got = losses_and_gradients(model)
    assert float((got["logits"] - want["logits"]).abs().mean()) < 0.02 * float(want["logits"].abs().mean())


def test_two_device_calls_a_layer_and_step_and_one_upload_a_layer() -> None:
    model = tiny("qwen3-moe")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("q_proj" in name)
    handle = on_graphs(model, hot_sets={0: [0, 1, 2, 3], 1: [4, 5, 6, 7]})
    for _ in range(3):
        losses_and_gradients(model)
    stats = handle.stats()
    # The first layer's experts lie behind the attention that is trained: both layers need a backward.
    assert stats["device_calls"] == 3 * 2 * 2
    assert stats["weight_uploads"] == 2


def test_the_statistics_have_these_names() -> None:
    model = tiny("qwen3-moe")
    handle = on_graphs(model)
    with torch.no_grad():
        model(IDS)
    named = {
        "layers",
        "forwards",
        "backwards",
        "device_calls",
        "forward_calls",
        "backward_calls",
        "rows",
        "hot_rows",
        "host_rows",
        "overflow_rows",
        "padded_rows",
        "kept_bytes",
        "padding_ratio",
        "coverage",
        "host_share",
        "weight_uploads",
        "weight_upload_s",
        "weight_upload_bytes",
        "weight_uploads_late",
        "recomputed",
        "replans",
        "ways",
        "weighed_s",
        "costs",
        "not_ready",
        "busiest_expert_rows",
    }
    assert named <= set(handle.stats())
    assert moe_stats(model) == handle.stats()


def test_disabling_gives_the_model_its_own_experts_back_to_the_bit() -> None:
    model: Any = tiny("qwen3-moe")
    before = model(IDS).logits
    handle = on_graphs(model)
    assert model.config._experts_implementation == "graphcache"
    handle.disable()
    assert torch.equal(model(IDS).logits, before)


def test_gpt_oss_is_refused_by_name_and_reason() -> None:
    from transformers import GptOssConfig, GptOssForCausalLM

    model = GptOssForCausalLM(
        GptOssConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=24,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            num_local_experts=4,
            num_experts_per_tok=2,
        )
    )
    with pytest.raises(UnsupportedExperts, match=r"GptOssExperts cannot .*bias.*transposed.*interleaved.*_apply_gate"):
        on_graphs(model)
    assert model.config._experts_implementation != "graphcache"


def test_a_dense_model_is_refused() -> None:
    with pytest.raises(ValueError, match="Linear has no experts module"):
        on_graphs(nn.Linear(2, 2))


def test_lora_training_with_experts_that_want_gradients_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gate_up_proj and down_proj require gradients.*training='full'"):
        on_graphs(tiny("qwen3-moe"), training="lora")


def test_a_hot_set_with_an_expert_that_is_not_there_is_refused() -> None:
    model = tiny("qwen3-moe").requires_grad_(False)
    with pytest.raises(ValueError, match=r"hot set names 8; .* experts 0 to 7"):
        on_graphs(model, hot_sets={0: [0, 8]})


@pytest.mark.parametrize("backward", ["recompute", "keep"])
@pytest.mark.parametrize("use_reentrant", [False, True], ids=["non-reentrant", "reentrant"])
def test_activation_checkpointing_agrees_with_eager_and_reuses_each_plan(use_reentrant: bool, backward: str) -> None:
    model: Any = tiny("qwen3-moe").train()
    want = losses_and_gradients(model)
    handle = on_graphs(model, training="full", backward=backward)
    model.activation_checkpointing_enable({"use_reentrant": use_reentrant})
    model.enable_input_require_grads()
    assert_close(losses_and_gradients(model), want, 1e-4)
    assert handle.stats()["recomputed"] == 2


def test_a_recomputation_never_waits_for_a_graph_that_nobody_asked_for_before() -> None:
    model: Any = tiny("qwen3-moe").train()
    want = losses_and_gradients(model)
    graphs = TorchGraphs()
    table = GraphTable(graphs, try_load=lambda key: graphs(key) if "fwd" in key.kind else None, poll_s=3600)
    handle = on_graphs(model, graphs=table, training="full", policy="ready-buckets")
    model.activation_checkpointing_enable({"use_reentrant": True})
    model.enable_input_require_grads()
    losses_and_gradients(model)
    table.poll()
    assert_close(losses_and_gradients(model), want, 1e-4)
    assert handle.stats()["forward_calls"] > 0
    assert handle.stats()["backward_calls"] == 0
    assert handle.stats()["not_ready"]["a graph of the recomputation not ready"] > 0


def test_a_router_that_chooses_otherwise_in_the_recomputation_changes_nothing() -> None:
    model: Any = tiny("qwen3-moe").train()
    on_graphs(model, training="full")
    experts, index = model.model.layers[0].mlp.experts, torch.tensor([[0, 1], [2, 3], [4, 5]])
    weights = torch.full((3, 2), 0.5)
    chosen = [index, torch.tensor([[1, 0], [2, 7], [4, 5]])]

    def forward(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = experts(x, chosen.pop(0), weights)
        return out

    def gradient(run: Any) -> torch.Tensor:
        x = torch.ones(3, 32, requires_grad=True)
        run(x).square().sum().backward()
        assert x.grad is not None
        return x.grad

    got = gradient(lambda x: checkpoint(forward, x, use_reentrant=False))
    assert chosen == []
    assert torch.equal(got, gradient(lambda x: experts(x, index, weights)))


def test_autocast_over_an_fp32_model_agrees_with_eager_under_autocast() -> None:
    model = tiny("qwen3-moe")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = losses_and_gradients(model)
        on_graphs(model, training="full")
        got = losses_and_gradients(model)
    assert float((got["logits"] - want["logits"]).abs().mean()) < 0.02 * float(want["logits"].abs().mean())
    assert all(value.dtype == torch.float32 for name, value in got.items() if name != "logits")


@pytest.mark.parametrize("prompt", [1, 70])
def test_generate_gives_the_same_tokens_as_eager(prompt: int) -> None:
    model: Any = tiny("qwen3-moe").eval()
    arguments = {"input_ids": token_ids(prompt, batch=1), "max_new_tokens": 5, "do_sample": False}
    want = model.generate(**arguments)
    handle = on_graphs(model, training="full")
    assert torch.equal(model.generate(**arguments), want)
    assert {key.kind.value for key in handle.keys_used()} == {"moe-experts-fwd"}
