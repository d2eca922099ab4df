"""A cold run and a warm one: what training steps take while a worker compiles their graphs, with the default policy.

A service, a compile worker and a training process as a user has them, the store empty. The model is one decoder layer
of ``step.py`` (LoRA, experts frozen in bf16, routing by Zipf's law). A round is one step of each length; each length
wishes for a bucket of its own, chosen by an RNGD's costs, and until that is there its rows run on the host or in what
is there. Nothing is sped up or slowed down: compiles are real, and so is what the graphs compute.

Where no NPU is, graphs run on this CPU, so they save it nothing. With ``--device model`` they are compiled, stored,
fetched and loaded all the same, but a call waits for as long as an RNGD takes by the model of ``step.py`` and gives
zeros: then rounds take as long as they would with an RNGD, and learn nothing.

    python benchmarks/cold.py [--toolchain inductor] [--device here] [--tokens 32 64 128] [--json]
"""

import argparse
import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from step import MeasuredSize, WaitingGraph, build

from graphcache_client import DiskStore, GraphCache, ServiceClient
from graphcache_runtime import MoeHandle, enable
from graphcache_runtime.cached_graphs import CachedGraphs
from graphcache_runtime.demo.processes import running, wait_for_file
from graphcache_runtime.graph_table import GraphTable
from graphcache_runtime.toolchains.base import LoadedGraph, Toolchain
from graphcache_runtime.toolchains.registry import toolchain_named
from graphcache_wire import GraphKey

READY_S = 60.0
WARM_ROUNDS = 5


class ModelledGraphs(CachedGraphs):
    """The graphs of the cache, none of which runs: a call takes an RNGD's time."""

    def __init__(self, cache: GraphCache, toolchain: Toolchain) -> None:
        super().__init__(cache, toolchain)
        self._waiting: dict[GraphKey, WaitingGraph] = {}

    def get(self, key: GraphKey, weights: Any = None) -> LoadedGraph:
        super().get(key, weights)
        if key not in self._waiting:
            self._waiting[key] = WaitingGraph(key, [])
        return self._waiting[key]


@dataclass(frozen=True)
class Round:
    """One round. ``since_s``: its end, since the run began."""

    run: str
    number: int
    since_s: float
    seconds: float
    calls: int
    host_share: float
    graphs: int


class Trainee:
    """The model with its experts on graphs, trained in rounds."""

    def __init__(self, model: Any, handle: MoeHandle, table: GraphTable, lengths: list[int]) -> None:
        self.model, self.handle, self.table, self.lengths = model, handle, table, lengths
        self._began, self._number = time.perf_counter(), 0

    def round(self, run: str) -> Round:
        before, began = self.handle.stats(), time.perf_counter()
        for tokens in self.lengths:
            ids = torch.arange(tokens)[None] % 256
            self.model(input_ids=ids).last_hidden_state.square().mean().backward()
            self.model.zero_grad()
        ended, after = time.perf_counter(), self.handle.stats()
        self._number += 1
        counted = {name: after[name] - before[name] for name in ("device_calls", "rows", "host_rows")}
        return Round(
            run,
            self._number,
            ended - self._began,
            ended - began,
            counted["device_calls"],
            counted["host_rows"] / counted["rows"],
            self.ready,
        )

    @property
    def ready(self) -> int:
        return sum(map(self.table.is_loaded, self.table.keys()))

    @property
    def all_ready(self) -> bool:
        return self.ready == len(self.table.keys()) > 0


def until_ready(trainee: Trainee, run: str, show: Any) -> list[Round]:
    """Rounds until every graph that was wished for is there, and some more."""
    rounds, left = [], WARM_ROUNDS
    while left:
        left -= trainee.all_ready
        rounds.append(trainee.round(run))
        if len(rounds) == 1 or not left or changed(*rounds[-2:]):
            show(rounds[-1])
    return rounds


def changed(before: Round, now: Round) -> bool:
    return (before.calls, before.graphs) != (now.calls, now.graphs)


def host_alone_s(model: Any, lengths: list[int], slots: int) -> float:
    """A round with every expert on the host: the median of some, after one that is not counted."""
    nowhere = GraphTable(_no_device, try_load=lambda key: None)
    handle = enable(model, graphs=nowhere, toolchain_version="none-1", e_hot=slots, policy="host")
    trainee = Trainee(model, handle, nowhere, lengths)
    seconds = [trainee.round("host").seconds for _ in range(WARM_ROUNDS + 1)][1:]
    handle.disable()
    return statistics.median(seconds)


def _no_device(key: GraphKey) -> LoadedGraph:
    raise LookupError(f"{key.label()} was asked for on a host without a device")


def measure(options: argparse.Namespace, folder: Path, show: Any) -> tuple[float, list[Round]]:
    size = MeasuredSize(options.h, options.f, options.experts, options.e_hot)
    model = build(max(options.tokens), size)
    host_s = host_alone_s(model, options.tokens, size.hot)
    print(f"A round with every expert on the host: {host_s:.2f} s (median of {WARM_ROUNDS}).", flush=True)
    toolchain, rounds = toolchain_named(options.toolchain), []
    with ExitStack() as stack:
        service = started_service(stack, folder)
        worker = ["worker", "--url", service.url, "--toolchain", options.toolchain, "--name", "worker-0"]
        stack.enter_context(running("the worker", ["-m", "graphcache_client", *worker], folder / "worker.log"))
        for run in ("cold", "warm"):
            cache = stack.enter_context(GraphCache(service, DiskStore(folder / f"{run}-node")))
            table = (ModelledGraphs if options.device == "model" else CachedGraphs)(cache, toolchain)
            handle = enable(
                model,
                graphs=table,
                toolchain_version=toolchain.version(),
                e_hot=size.hot,
                overflow=options.overflow,
                beside=options.device == "model" or None,
            )
            rounds += until_ready(Trainee(model, handle, table, options.tokens), run, show)
            print(f"{run}: ran otherwise than wished: {handle.stats()['not_ready']}", flush=True)
            handle.disable()
            table.close()
        for graph in service.graphs().graphs:
            compile_s = service.graph(graph.key_digest).artifact
            print(f"compiled {graph.key.label()}: {compile_s.compile_s if compile_s else 0:.0f} s")
    return host_s, rounds


def started_service(stack: ExitStack, folder: Path) -> ServiceClient:
    ready = folder / "service.url"
    arguments = ["serve", "--data-dir", str(folder / "service"), "--port", "0", "--ready-file", str(ready)]
    process = stack.enter_context(
        running("the service", ["-m", "graphcache_client", *arguments], folder / "service.log")
    )
    return stack.enter_context(ServiceClient(wait_for_file(ready, process, READY_S), holder="cold"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolchain", default="inductor", help="inductor, or rngd in its own environment")
    parser.add_argument("--device", choices=["here", "model"], default="here", help="where graphs run")
    parser.add_argument("--tokens", type=int, nargs="+", default=[32, 64, 128], help="the lengths of a round's steps")
    parser.add_argument("--h", type=int, default=MeasuredSize().h)
    parser.add_argument("--f", type=int, default=MeasuredSize().f)
    parser.add_argument("--experts", type=int, default=MeasuredSize().experts)
    parser.add_argument("--e-hot", type=int, default=MeasuredSize().hot)
    parser.add_argument("--overflow", default="cost", help="cost, weighed with an RNGD's costs, or bucket")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)

    def show(row: Round) -> None:
        print(
            f"{row.run:4} round {row.number:4} ended at {row.since_s:6.1f} s | {row.seconds:7.2f} s | "
            f"graphs {row.graphs} | device calls {row.calls:3} | rows on host {row.host_share:4.0%}",
            flush=True,
        )

    with tempfile.TemporaryDirectory(prefix="graphcache-cold-") as folder:
        host_s, rounds = measure(options, Path(folder), show)
    if options.json:
        print(json.dumps({"host_s": host_s, "rounds": [asdict(row) for row in rounds]}))


if __name__ == "__main__":
    main()
