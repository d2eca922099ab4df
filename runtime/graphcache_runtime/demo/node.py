"""One training node of the demo: ``python -m graphcache_runtime.demo.node NODE.json``.

It builds the model, takes LoRA steps with hot experts on compiled graphs, compares one step with plain transformers,
and prints one JSON object a line: events while it works, ``{"event": "result", ...}`` at the end.
"""

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from graphcache_client import DiskStore, GraphCache, ServiceClient
from graphcache_runtime.cached_graphs import CachedGraphs
from graphcache_runtime.demo.model import ModelShape, build_model
from graphcache_runtime.demo.text import text_rows
from graphcache_runtime.ladder import Ladder
from graphcache_runtime.moe import MoeHandle, enable
from graphcache_runtime.toolchains.registry import toolchain_named

OUTPUT_BOUND = 2.0**-5
GRADIENT_BOUND = 2.0**-4
"""Largest difference over largest value. bf16 keeps 8 bits, and a near tie may route a token otherwise later."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What a node is told. Seconds and paths as strings of JSON; ``seed`` chooses the text, never the weights."""

    name: str
    service_url: str
    cache_dir: str
    toolchain: str
    shape: ModelShape
    e_hot: int
    ladder: tuple[int, ...]
    rows: int
    compare_rows: int
    steps: int
    seed: int
    dtype: str
    threads: int

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "NodeConfig":
        fields = json.loads(path.read_text())
        return cls(**fields | {"shape": ModelShape(**fields["shape"]), "ladder": tuple(fields["ladder"])})


def say(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event} | facts), flush=True)


def main(path: str) -> None:
    config = NodeConfig.read(Path(path))
    torch.set_num_threads(config.threads)
    say("phase", phase="building the model")
    model = build_model(config.shape, seed=0, dtype=getattr(torch, config.dtype))
    toolchain = toolchain_named(config.toolchain)
    text = [text_rows(config.seed * 1_000 + step, config.rows) for step in range(config.steps)]
    hot_sets = busiest_experts(model, text[0], config.e_hot)
    service = ServiceClient(config.service_url, holder=config.name)
    with service, GraphCache(service, DiskStore(Path(config.cache_dir))) as cache:
        handle = enable(
            model,
            graphs=CachedGraphs(cache, toolchain),
            toolchain_version=toolchain.version(),
            hot_sets=hot_sets,
            training="lora",
            ladder=Ladder(config.ladder),
            policy="wait",
            overflow="bucket",
        )
        steps = train(model, handle, text)
        trained = handle.stats()
        differences = compare(model, handle, text[0][:, : config.compare_rows + 1])
        facts = {"steps": steps, "stats": trained, "differences": differences, "tiers": cache.counts()}
        facts |= {"runs_on": toolchain.runs_on()}
    say("result", **facts, output_bound=OUTPUT_BOUND, gradient_bound=GRADIENT_BOUND)


def busiest_experts(model: Any, ids: torch.Tensor, e_hot: int) -> dict[int, list[int]]:
    """The ``e_hot`` experts of each layer that the router gives most of these rows, in ascending order."""
    say("phase", phase="choosing hot experts")
    chosen: list[torch.Tensor] = []

    def keep(module: Any, arguments: Any, outputs: tuple[torch.Tensor, ...]) -> None:
        chosen.append(next(out for out in outputs if out.dtype == torch.int64))

    routers = [module for module in model.modules() if type(module).__name__.endswith("TopKRouter")]
    hooks = [router.register_forward_hook(keep) for router in routers]
    with torch.no_grad():
        model(input_ids=ids[:, :-1])
    for hook in hooks:
        hook.remove()
    counts = [
        index.flatten().bincount(minlength=router.num_experts) for router, index in zip(routers, chosen, strict=True)
    ]
    return {layer: sorted(count.topk(e_hot).indices.tolist()) for layer, count in enumerate(counts)}


def train(model: Any, handle: MoeHandle, text: list[torch.Tensor]) -> list[dict[str, Any]]:
    """A step for each piece of text; what each took, and what it asked of the device."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    steps = []
    for number, ids in enumerate(text):
        say("phase", phase=f"step {number + 1} of {len(text)}")
        before, began = handle.stats(), time.perf_counter()
        loss = loss_of(model, ids)
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        after = handle.stats()
        counted = {name: after[name] - before[name] for name in ("device_calls", "weight_uploads", "hot_rows", "rows")}
        steps.append({"seconds": time.perf_counter() - began, "loss": loss.item()} | counted)
        say("step", number=number + 1, **steps[-1])
    return steps


def loss_of(model: Any, ids: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=ids[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


def compare(model: Any, handle: MoeHandle, ids: torch.Tensor) -> dict[str, float]:
    """Outputs and LoRA gradients through the graphs against plain transformers, relative to the largest value."""
    say("phase", phase="comparing with plain transformers")
    ours = outputs_and_gradients(model, ids)
    handle.disable()
    plain = outputs_and_gradients(model, ids)
    return {name: relative_difference(ours[name], plain[name]) for name in ours}


def outputs_and_gradients(model: Any, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    logits = model(input_ids=ids[:, :-1]).logits
    torch.autograd.backward(torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten()))
    gradients = torch.cat([p.grad.float().flatten() for p in model.parameters() if p.grad is not None])
    return {"outputs": logits.detach().float(), "gradients": gradients}


def relative_difference(ours: torch.Tensor, plain: torch.Tensor) -> float:
    return float((ours - plain).abs().max() / plain.abs().max())


if __name__ == "__main__":
    main(sys.argv[1])
