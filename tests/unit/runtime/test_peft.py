"""PEFT's LoRA on attention and on the experts' own 3-D parameters."""

from typing import Any

import pytest
import torch
from fakes.tiny_models import tiny, token_ids
from fakes.torch_graphs import VERSION, TorchGraphs
from peft import LoraConfig, get_peft_model

from graphcache_runtime import enable

IDS = token_ids(24)
ATTENTION = {"target_modules": ["q_proj", "v_proj"]}
EXPERTS = {"target_modules": [], "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}


def adapted(targets: dict[str, Any]) -> Any:
    model = get_peft_model(tiny("qwen3-moe"), LoraConfig(r=4, lora_alpha=8, **targets))
    torch.manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.1)
    return model


def gradients(model: Any) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model(IDS, labels=IDS).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("targets", [ATTENTION, EXPERTS], ids=["attention", "experts"])
def test_an_adapters_gradients_agree_with_eager(targets: dict[str, Any]) -> None:
    model = adapted(targets)
    want = gradients(model)
    enable(model, graphs=TorchGraphs(), toolchain_version=VERSION, e_hot=3, policy="wait", overflow="bucket")
    got = gradients(model)
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert float((got[name] - value).abs().max()) <= 1e-4 * max(float(value.abs().max()), 1e-3), name


def test_an_adapter_on_attention_leaves_the_experts_frozen_and_uploads_once_a_layer() -> None:
    model = adapted(ATTENTION)
    handle = enable(
        model,
        graphs=TorchGraphs(),
        toolchain_version=VERSION,
        e_hot=3,
        policy="wait",
        overflow="bucket",
        training="lora",
    )
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01, fused=True)
    for _ in range(3):
        gradients(model)
        optimizer.step()
    assert handle.stats()["weight_uploads"] == 2
    assert {key.kind.value for key in handle.keys_used()} == {"moe-experts-fwd", "moe-experts-bwd-lora"}


def test_an_adapter_on_the_experts_equals_the_merged_model_while_it_trains() -> None:
    model = adapted(EXPERTS)
    enable(model, graphs=TorchGraphs(), toolchain_version=VERSION, hot_fraction=1.0, policy="wait", overflow="bucket")
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):
        gradients(model)
        optimizer.step()
    with torch.no_grad():
        adapted_logits = model(IDS).logits
        merged = model.merge_and_unload()
        merged.config._experts_implementation = "eager"
        torch.testing.assert_close(adapted_logits, merged(IDS).logits, rtol=1e-4, atol=1e-4)
