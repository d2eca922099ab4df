"""LoRA on a MoE model whose hot experts run on compiled graphs of the cluster's cache.

python examples/train_lora.py Qwen/Qwen3-30B-A3B train.txt --url http://graphcache:8750 --toolchain rngd
"""

import argparse
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from graphcache_client import DiskStore, GraphCache, ServiceClient
from graphcache_runtime import enable
from graphcache_runtime.toolchains.registry import toolchain_named

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model", help="name or folder of a MoE model")
parser.add_argument("text", type=Path, help="what to train on")
parser.add_argument("--url", default="http://127.0.0.1:8750", help="the service")
parser.add_argument("--toolchain", default="inductor", help="inductor (host CPU), rngd or atom")
parser.add_argument("--overflow", default="cost", help="which device calls to make: cost or bucket")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--length", type=int, default=128)
options = parser.parse_args()

tokens = AutoTokenizer.from_pretrained(options.model)(options.text.read_text(), return_tensors="pt").input_ids[0]
model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"])).train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
with ServiceClient(options.url) as service, GraphCache(service, DiskStore(Path(".graphs"))) as cache:
    toolchain = toolchain_named(options.toolchain)
    handle = enable(model, graphs=cache, toolchain=toolchain, overflow=options.overflow, replan_every=100)
    for step in range(options.steps):
        start = step * options.length % max(1, len(tokens) - options.length)
        ids = tokens[start : start + options.length][None]
        loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.3f} hot {handle.stats()['coverage']:.0%}", flush=True)
    handle.save_stats(Path("moe_stats.json"))
