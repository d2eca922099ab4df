"""The demo's model: decoder layers of Qwen3-30B-A3B at their real size, with random weights and LoRA on attention."""

from dataclasses import dataclass
from typing import Any

import torch

from graphcache_runtime.demo.text import VOCABULARY


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of the decoder layers. The defaults are Qwen3-30B-A3B's, but for the number of layers."""

    layers: int = 2
    h: int = 2048
    f: int = 768
    experts: int = 128
    top_k: int = 8
    heads: int = 32
    key_value_heads: int = 4
    head_dim: int = 128


def build_model(shape: ModelShape, seed: int, dtype: torch.dtype) -> Any:
    """transformers' own Qwen3-MoE with LoRA of rank 16 on q and v; all else is frozen.

    The same seed gives the same weights in every process. Returns the peft model, in training mode.
    """
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=shape.h,
        intermediate_size=shape.f,
        moe_intermediate_size=shape.f,
        num_experts=shape.experts,
        num_experts_per_tok=shape.top_k,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        head_dim=shape.head_dim,
        norm_topk_prob=True,
        output_router_logits=False,
        tie_word_embeddings=False,
        dtype=dtype,
    )
    torch.manual_seed(seed)
    model = Qwen3MoeForCausalLM._from_config(config, dtype=dtype)
    lora = LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return get_peft_model(model, lora).train()
