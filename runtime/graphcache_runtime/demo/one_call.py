"""``python -m graphcache_runtime.demo.one_call``: graphs of one size, compiled by a worker and run once by a node.

What the demo does, without the training: for sizes at which a step takes too long where no device is. A service, a
worker, and a node, which is this process: it fetches each graph, runs it on random inputs and compares with PyTorch.
"""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import torch
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from graphcache_client import DiskStore, GraphCache, ServiceClient, ServiceUnavailable
from graphcache_client.cli.prewarm import progress_table
from graphcache_runtime.compiling.check import CheckedGraph, check_graph
from graphcache_runtime.demo import tables
from graphcache_runtime.demo.__main__ import LOOK_S, REAL, started_service
from graphcache_runtime.demo.processes import Process, ProcessFailed, running
from graphcache_runtime.experts import graph_definition
from graphcache_runtime.toolchains.base import LoadedGraph, Toolchain
from graphcache_runtime.toolchains.registry import toolchain_named
from graphcache_wire import GraphKey, Kind, ManifestRequest

SEED = 11
"""Another than the worker's own check takes, which is made of the key."""

Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Call:
    """What the node saw of one graph. ``eager_s``: the same products by PyTorch, in the graph's dtype, on the host."""

    key: GraphKey
    tier: str
    fetch_s: float
    load_s: float
    call_s: float
    eager_s: float
    checked: CheckedGraph


def one_call(
    folder: Annotated[Path, typer.Option(help="Where the service and the node keep their data.")] = Path(".demo-calls"),
    toolchain: Annotated[str, typer.Option(help="inductor, or rngd in its own environment.")] = "rngd",
    kind: Annotated[list[Kind] | None, typer.Option(help="Graphs to run. Default: forward, backward for LoRA.")] = None,
    e_hot: Annotated[int, typer.Option(help="Experts in a call.")] = 32,
    h: Annotated[int, typer.Option(help="Model size.")] = REAL.h,
    f: Annotated[int, typer.Option(help="Expert's intermediate size.")] = REAL.f,
    bucket: Annotated[int, typer.Option(help="Rows an expert.")] = 64,
    dtype: Annotated[str, typer.Option(help="bf16 or fp32.")] = "bf16",
) -> None:
    """Compile the graphs of one size through a service and a worker, run each once, and compare with PyTorch."""
    console = Console(width=None if sys.stdout.isatty() else 132)
    compiler = toolchain_named(toolchain)
    sizes = {"e_hot": e_hot, "h": h, "f": f, "bucket": bucket}
    keys = [
        GraphKey(kind=one, **sizes, toolchain=compiler.version(), options={"dtype": dtype})
        for one in kind or (Kind.EXPERTS_FORWARD, Kind.EXPERTS_BACKWARD_LORA)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        with ExitStack() as stack:
            service = started_service(stack, folder)
            command = ["-m", "graphcache_client", "worker", "--url", service.url, "--toolchain", toolchain]
            worker = stack.enter_context(running("the worker", [*command, "--name", "worker-0"], folder / "worker.log"))
            compiled_now = compile_all(console, service, worker, keys)
            console.print(tables.graphs_table([service.graph(key.digest) for key in keys], compiled_now))
            cache = stack.enter_context(GraphCache(service, DiskStore(folder / "node-cache")))
            calls = [called_once(cache, compiler, key) for key in keys]
    except ProcessFailed as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        raise typer.Exit(1) from None
    console.print(calls_table(calls, compiler.runs_on()))
    console.print(f"{time.monotonic() - began:.0f} s in all", highlight=False)


def compile_all(console: Console, service: ServiceClient, worker: Process, keys: list[GraphKey]) -> set[str]:
    """Ask for the graphs and show how they come about; returns the digests of those that were not there before.

    Raises:
        ProcessFailed: the worker ended, or a graph cannot be compiled.
    """
    status = service.create_manifest(ManifestRequest(name="one-call", keys=keys))
    missing = {entry.key.digest for entry in status.entries if entry.state != "ready"}
    with Live(progress_table(status), console=console, refresh_per_second=4, transient=True) as live:
        while not status.done:
            time.sleep(LOOK_S)
            if worker.ended() is not None:
                raise worker.failure()
            try:
                status = service.manifest(status.id)
            except ServiceUnavailable as error:
                live.console.print(str(error), style="yellow", markup=False)
            live.update(progress_table(status))
    failed = [f"{entry.key.label()}: {entry.message}" for entry in status.entries if entry.state == "failed"]
    if failed:
        raise ProcessFailed("; ".join(failed))
    return missing


def called_once(cache: GraphCache, toolchain: Toolchain, key: GraphKey) -> Call:
    """Fetch, load, run and compare one graph.

    Raises:
        WrongGraph: it differs from PyTorch by more than its dtype allows.
    """
    found = cache.get(key)
    load_s, loaded = timed(lambda: toolchain.load(found.path, key))
    timing = TimedGraph(loaded)
    checked = check_graph(timing, key, SEED)
    definition = graph_definition(key)
    inputs = definition.random_inputs(SEED)
    eager_s, _ = timed(lambda: definition.module(*inputs))
    return Call(key, found.tier, found.seconds, load_s, timing.seconds, eager_s, checked)


class TimedGraph:
    """A graph that keeps how long its last call took."""

    def __init__(self, graph: LoadedGraph) -> None:
        self._graph = graph
        self.seconds = 0.0

    @property
    def device(self) -> torch.device:
        return self._graph.device

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.seconds, outputs = timed(lambda: self._graph(*inputs))
        return outputs


def timed(step: Callable[[], Done]) -> tuple[float, Done]:
    began = time.perf_counter()
    done = step()
    return time.perf_counter() - began, done


def calls_table(calls: list[Call], runs_on: str) -> Table:
    columns = ("graph", "came from", "fetch s", "load s", "call s", "PyTorch s", "rms error", "largest error")
    bounds = {(call.checked.rms_bound, call.checked.max_bound) for call in calls}
    caption = "errors relative to PyTorch in a wider type; bounds " + ", ".join(f"{a:g} and {b:g}" for a, b in bounds)
    table = Table(*columns, title=f"One call of each graph, on {runs_on}", caption=caption)
    for call in calls:
        checked = call.checked
        table.add_row(
            call.key.label(),
            call.tier,
            f"{call.fetch_s:.2f}",
            f"{call.load_s:.2f}",
            f"{call.call_s:.2f}",
            f"{call.eager_s:.3f}",
            f"{checked.rms_error:.2e}",
            f"{checked.max_error:.2e}",
        )
    return table


if __name__ == "__main__":
    typer.run(one_call)
