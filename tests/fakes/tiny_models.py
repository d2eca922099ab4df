"""Tiny random models of transformers' MoE families, with weights of a size that makes gradients worth comparing."""

from collections.abc import Callable

import torch
from torch import nn
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Glm4MoeConfig,
    Glm4MoeForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

VOCABULARY = 64
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}


def qwen3_moe() -> nn.Module:
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            **COMMON,
            head_dim=8,
            moe_intermediate_size=24,
            num_experts=8,
            num_experts_per_tok=2,
            norm_topk_prob=True,
        )
    )


def mixtral() -> nn.Module:
    return MixtralForCausalLM(MixtralConfig(**COMMON, num_local_experts=8, num_experts_per_tok=2))


def olmoe() -> nn.Module:
    return OlmoeForCausalLM(OlmoeConfig(**COMMON, num_experts=8, num_experts_per_tok=2))


def deepseek_v3() -> nn.Module:
    return DeepseekV3ForCausalLM(
        DeepseekV3Config(
            **(COMMON | {"num_key_value_heads": 4}),
            moe_intermediate_size=24,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=2,
            n_group=2,
            topk_group=1,
            first_k_dense_replace=1,
            q_lora_rank=16,
            kv_lora_rank=16,
            qk_rope_head_dim=8,
            qk_nope_head_dim=8,
            v_head_dim=8,
        )
    )


def glm4_moe() -> nn.Module:
    return Glm4MoeForCausalLM(
        Glm4MoeConfig(
            **COMMON,
            head_dim=8,
            moe_intermediate_size=24,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=2,
            n_group=1,
            topk_group=1,
            first_k_dense_replace=1,
        )
    )


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "qwen3-moe": qwen3_moe,
    "mixtral": mixtral,
    "olmoe": olmoe,
    "deepseek-v3": deepseek_v3,
    "glm4-moe": glm4_moe,
}


def tiny(family: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A model of the family, the same each time."""
    torch.manual_seed(0)
    model = FAMILIES[family]()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, parameter.shape[-1] ** -0.5)
    return model.to(dtype)


def token_ids(tokens: int, batch: int = 2) -> torch.Tensor:
    return torch.randint(1, VOCABULARY, (batch, tokens), generator=torch.Generator().manual_seed(1))
