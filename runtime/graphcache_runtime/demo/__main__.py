"""``python -m graphcache_runtime.demo``: one service, one compile worker, two training nodes; then the tables."""

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from graphcache_client import ServiceClient, ServiceUnavailable
from graphcache_runtime.demo import tables
from graphcache_runtime.demo.model import ModelShape
from graphcache_runtime.demo.node import NodeConfig
from graphcache_runtime.demo.processes import Process, ProcessFailed, running, wait_for_file
from graphcache_wire.graphs import GraphDetail

REAL = ModelShape()
LADDER = (32, 128)
"""Few rungs: each is two graphs to compile. The default number of rows needs the first alone."""
READY_S = 60.0
LOOK_S = 0.5


def demo(
    folder: Annotated[Path, typer.Option(help="Where the service and the nodes keep their data.")] = Path(".demo"),
    toolchain: Annotated[str, typer.Option(help="inductor, or rngd in its own environment.")] = "inductor",
    nodes: Annotated[int, typer.Option(min=1, help="Training nodes.")] = 2,
    layers: Annotated[int, typer.Option(min=1, help="Decoder layers.")] = 2,
    h: Annotated[int, typer.Option(help="Model size.")] = REAL.h,
    f: Annotated[int, typer.Option(help="Expert's intermediate size.")] = REAL.f,
    experts: Annotated[int, typer.Option(help="Experts a layer.")] = REAL.experts,
    e_hot: Annotated[int, typer.Option(help="Hot experts a layer.")] = 32,
    bucket: Annotated[list[int] | None, typer.Option(help="Rungs of the ladder. Default: 32, 128.")] = None,
    rows: Annotated[int, typer.Option(min=2, help="Rows of text a step.")] = 32,
    compare_rows: Annotated[int, typer.Option(min=1, help="Rows of the comparison.")] = 16,
    steps: Annotated[int, typer.Option(min=2, help="Training steps.")] = 4,
    dtype: Annotated[str, typer.Option(help="bfloat16 or float32.")] = "bfloat16",
) -> None:
    """Train a few LoRA steps on several nodes that share one cache of compiled graphs."""
    console = Console(width=None if sys.stdout.isatty() else 132)
    shape = ModelShape(layers=layers, h=h, f=f, experts=experts, top_k=min(REAL.top_k, experts))
    base = {
        "toolchain": toolchain,
        "shape": shape,
        "e_hot": e_hot,
        "ladder": tuple(bucket or LADDER),
        "rows": rows,
        "compare_rows": min(rows, compare_rows),
        "steps": steps,
        "dtype": dtype,
        "threads": 1,
    }
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with ExitStack() as stack:
            service = started_service(stack, folder)
            worker_log = folder / "worker.log"
            worker = ["worker", "--url", service.url, "--toolchain", toolchain, "--name", "worker-0"]
            watched = [stack.enter_context(running("the worker", ["-m", "graphcache_client", *worker], worker_log))]
            before = service.stats()
            ready_before = {graph.key_digest for graph in stored_graphs(service) if graph.state == "ready"}
            training = started_nodes(stack, folder, service.url, nodes, base)
            results = watch(console, service, training, watched, began)
            after, graphs = service.stats(), stored_graphs(service)
    except ProcessFailed as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        raise typer.Exit(1) from None
    used = [graph for graph in graphs if graph.state == "ready"]
    console.print(tables.graphs_table(used, {graph.key_digest for graph in used} - ready_before))
    for table in (tables.tiers_table, tables.steps_table, tables.differences_table):
        console.print(table(results))
    console.print(tables.saved_table(before, after, time.monotonic() - began))
    if not all(tables.within_bounds(result) for result in results.values()):
        raise typer.Exit(1)


def started_service(stack: ExitStack, folder: Path) -> ServiceClient:
    ready = folder / "service.url"
    ready.unlink(missing_ok=True)
    arguments = ["serve", "--data-dir", str(folder / "service"), "--port", "0", "--ready-file", str(ready)]
    process = stack.enter_context(
        running("the service", ["-m", "graphcache_client", *arguments], folder / "service.log")
    )
    return stack.enter_context(ServiceClient(wait_for_file(ready, process, READY_S), holder="demo"))


def started_nodes(stack: ExitStack, folder: Path, url: str, nodes: int, base: dict[str, Any]) -> list[Process]:
    started = []
    for number in range(nodes):
        name = f"node-{number}"
        config = folder / f"{name}.json"
        cache_dir = str(folder / f"{name}-cache")
        NodeConfig(name=name, service_url=url, cache_dir=cache_dir, seed=number, **base).write(config)
        arguments = ["-m", "graphcache_runtime.demo.node", str(config)]
        started.append(stack.enter_context(running(name, arguments, folder / f"{name}.log")))
    return started


def stored_graphs(service: ServiceClient) -> list[GraphDetail]:
    return [service.graph(summary.key_digest) for summary in service.graphs().graphs]


def watch(
    console: Console, service: ServiceClient, nodes: list[Process], others: list[Process], began: float
) -> dict[str, Any]:
    """Show how it goes until every node gave its result.

    Raises:
        ProcessFailed: a process ended without it.
    """
    results: dict[str, Any] = {}
    phases = {node.name: "starting" for node in nodes}
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while len(results) < len(nodes):
            for node in nodes:
                take_events(node, phases, results)
                if node.ended() is not None and node.name not in results:
                    take_events(node, phases, results)
                    if node.name not in results:
                        raise node.failure()
            for other in others:
                if other.ended() is not None:
                    raise other.failure()
            try:
                live.update(tables.live_view(stored_graphs(service), phases, time.monotonic() - began))
            except ServiceUnavailable as error:
                live.console.print(str(error), style="yellow", markup=False)
            time.sleep(LOOK_S)
    return dict(sorted(results.items()))


def take_events(node: Process, phases: dict[str, str], results: dict[str, Any]) -> None:
    while not node.events.empty():
        event = node.events.get()
        match event.pop("event"):
            case "phase":
                phases[node.name] = event["phase"]
            case "result":
                results[node.name] = event
                phases[node.name] = "done"


if __name__ == "__main__":
    typer.run(demo)
