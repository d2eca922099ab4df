"""One rank of a gloo job that trains a tiny model on graphs of a shared disk store. Writes its facts to rank-N.json.

torchrun --standalone --nproc-per-node 2 rank_process.py FOLDER
"""

import json
import sys
from dataclasses import astuple
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed

from fakes.tiny_models import tiny, token_ids
from fakes.torch_graphs import VERSION, TorchGraph, TorchGraphs
from graphcache_client import DiskStore, GraphCache
from graphcache_runtime import enable
from graphcache_runtime.toolchains.base import CompiledGraph, LoadedGraph, ReportPhase, Weights
from graphcache_wire import GraphKey


class EagerToolchain:
    """Its compiled graphs are empty promises: loading one makes the eager graph of the key."""

    name = "eager"
    prefix = "eager-"

    def missing(self) -> list[str]:
        return []

    def missing_to_load(self, version: str | None = None) -> list[str]:
        return []

    def version(self) -> str:
        return VERSION

    def compile(
        self, key: GraphKey, folder: Path, report: ReportPhase, weights: Weights | None = None
    ) -> CompiledGraph:
        path = folder / "graph"
        path.write_text(key.digest)
        return CompiledGraph(path)

    def load(self, path: Path, key: GraphKey) -> LoadedGraph:
        assert path.read_text() == key.digest
        return TorchGraph(key, TorchGraphs().calls)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = distributed.get_rank()
    toolchain, compiled = EagerToolchain(), []

    def compile_here(key: GraphKey, work: Path, report: ReportPhase) -> Path:
        compiled.append(key.digest)
        return toolchain.compile(key, work, report).path

    cache = GraphCache(None, DiskStore(folder / "store"), compile_here=compile_here)
    model = tiny("qwen3-moe").train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("q_proj" in name)
    handle = enable(
        model,
        graphs=cache,
        toolchain=toolchain,
        e_hot=3,
        policy="wait",
        overflow="bucket",
        replan_every=2,
        costs="measured",
    )
    for step in range(4):
        ids = token_ids(16 + 8 * rank + step)
        model(ids, labels=ids).loss.backward()
        for parameter in model.parameters():
            if parameter.grad is not None:
                distributed.all_reduce(parameter.grad)
    meter = next(iter(handle.layers.values())).shared.costs
    assert meter is not None
    facts = {
        "compiled": compiled,
        "used": [key.digest for key in handle.keys_used()],
        "hot_sets": handle.hot_sets(),
        "replans": handle.stats()["replans"],
        "costs": astuple(meter.of_rank_0()),
        "own_costs": astuple(meter.costs),
    }
    (folder / f"rank-{rank}.json").write_text(json.dumps(facts))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
