"""What the demo shows: a live picture while graphs compile, then the tables."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Group
from rich.spinner import Spinner
from rich.table import Table

from graphcache_wire import Stats
from graphcache_wire.graphs import GraphDetail


def live_view(graphs: Sequence[GraphDetail], phases: Mapping[str, str], elapsed_s: float) -> Group:
    """Graphs that are being compiled, and where each node is."""
    table = Table("graph", "state", "by", "seconds", expand=False)
    for graph in graphs:
        running = graph.attempts[-1] if graph.attempts else None
        seconds = f"{graph.artifact.compile_s:.1f}" if graph.artifact else ""
        table.add_row(graph.key.label(), graph.state, running.holder if running else "", seconds)
    nodes = [Spinner("dots", f"{name}: {phase}") for name, phase in phases.items()]
    return Group(table, *nodes, f"[dim]{elapsed_s:.0f} s[/dim]")


def graphs_table(graphs: Sequence[GraphDetail], compiled_now: set[str]) -> Table:
    table = Table("graph", "compiled by", "seconds", "peak memory", "bytes", "in this run", title="Graphs")
    for graph in graphs:
        made = next((attempt for attempt in graph.attempts if attempt.outcome == "ready"), None)
        if graph.artifact is None:
            continue
        memory = f"{made.peak_memory_bytes / 2**30:.1f} GiB" if made and made.peak_memory_bytes else ""
        now = "[yellow]compiled[/yellow]" if graph.key_digest in compiled_now else "[green]was there[/green]"
        size = f"{graph.artifact.size_bytes:,}"
        table.add_row(graph.key.label(), graph.artifact.producer, f"{graph.artifact.compile_s:.1f}", memory, size, now)
    return table


def tiers_table(results: Mapping[str, Any]) -> Table:
    columns = ("memory", "disk", "service", "joined", "compiled", "broken")
    titles = ("node", "memory", "disk", "service", "joined a wait", "compiled here", "broken", "graphs run on")
    table = Table(*titles, title="Where each node's graphs came from")
    for node, result in results.items():
        table.add_row(node, *(str(result["tiers"][tier]) for tier in columns), result["runs_on"])
    return table


def steps_table(results: Mapping[str, Any]) -> Table:
    table = Table(title="Training steps")
    for column in ("node", "first", "warm", "calls/step", "calls/layer", "uploads first", "later", "rows hot", "loss"):
        table.add_column(column, no_wrap=True)
    for node, result in results.items():
        steps, layers = result["steps"], result["stats"]["layers"]
        warm = median(step["seconds"] for step in steps[1:])
        calls = steps[-1]["device_calls"]
        table.add_row(
            node,
            f"{steps[0]['seconds']:.1f} s",
            f"{warm:.1f} s",
            str(calls),
            f"{calls / layers:g}",
            str(steps[0]["weight_uploads"]),
            str(sum(step["weight_uploads"] for step in steps[1:])),
            f"{result['stats']['coverage']:.0%}",
            f"{steps[0]['loss']:.3f} > {steps[-1]['loss']:.3f}",
        )
    return table


def differences_table(results: Mapping[str, Any]) -> Table:
    title = "Largest difference to plain transformers, over the largest value"
    table = Table("node", "outputs", "bound", "LoRA gradients", "bound", "", title=title)
    for node, result in results.items():
        found = result["differences"]
        good = within_bounds(result)
        table.add_row(
            node,
            f"{found['outputs']:.2e}",
            f"{result['output_bound']:.2e}",
            f"{found['gradients']:.2e}",
            f"{result['gradient_bound']:.2e}",
            "[green]within[/green]" if good else "[red]beyond[/red]",
        )
    return table


def within_bounds(result: Mapping[str, Any]) -> bool:
    found = result["differences"]
    return bool(found["outputs"] <= result["output_bound"] and found["gradients"] <= result["gradient_bound"])


def saved_table(before: Stats, after: Stats, wall_s: float) -> Table:
    def grown(name: str) -> float:
        return float(getattr(after.totals, name) - getattr(before.totals, name))

    joined = sum(after.totals.joined_waits.values()) - sum(before.totals.joined_waits.values())
    table = Table("compile seconds spent", "compile seconds saved", "waits joined", "wall time", title="This run")
    spent, saved = grown("compile_s_spent"), grown("compile_s_saved")
    table.add_row(f"{spent:.1f}", f"[bold green]{saved:.1f}[/bold green]", str(joined), f"{wall_s:.0f} s")
    return table
