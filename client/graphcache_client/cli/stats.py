"""graphcache stats: what hits, what misses, what it cost and what it saved."""

from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from graphcache_client.cli.options import AsJson, Url, service_at
from graphcache_wire import Stats, StatsRow


def stats(
    since: Annotated[
        str | None, typer.Option("--since", help="Count from this time on (RFC 3339).", show_default=False)
    ] = None,
    group_by: Annotated[
        Literal["toolchain", "kind", "bucket"] | None, typer.Option("--group-by", show_default=False)
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show the service's statistics: all, and by toolchain, kind or bucket."""
    with service_at(url) as service:
        answer = service.stats(since=since, group_by=group_by)
    if as_json:
        typer.echo(answer.model_dump_json())
        return
    console = Console()
    console.print(rows_table(answer))
    console.print(store_table(answer))
    if answer.toolchains:
        console.print(toolchains_table(answer))
    for alarm in answer.alarms:
        console.print(f"[red]{alarm.code}[/red]: {alarm.message}")


def rows_table(answer: Stats) -> Table:
    """One line a group, all of them first."""
    columns = (
        "",
        "memory",
        "disk",
        "service",
        "misses",
        "joined",
        "ratio",
        "ready",
        "open",
        "failed",
        "spent",
        "saved",
    )
    table = Table(*columns, title="hits by tier, compiles, seconds of compile")
    table.add_row("all", *_cells(answer.totals))
    for group in answer.groups:
        table.add_row(group.group, *_cells(group.row))
    return table


def _cells(row: StatsRow) -> list[str]:
    ratio = "" if row.hit_ratio is None else f"{row.hit_ratio:.1%}"
    open_compiles = row.compiles.get("queued", 0) + row.compiles.get("leased", 0)
    counts = [row.hits.get("memory", 0), row.hits.get("disk", 0), row.hits.get("service", 0), row.misses]
    compiles = [row.compiles.get("ready", 0), open_compiles, row.compiles.get("failed", 0)]
    seconds = [f"{row.compile_s_spent:.1f} s", f"{row.compile_s_saved:.1f} s"]
    return [*map(str, counts), str(sum(row.joined_waits.values())), ratio, *map(str, compiles), *seconds]


def store_table(answer: Stats) -> Table:
    quota = f" of {answer.quota_bytes:,}" if answer.quota_bytes is not None else ""
    table = Table("blobs", "bytes", "evicted", "quarantined", "waiting now", title="store")
    evicted = f"{answer.evicted} ({answer.evicted_bytes:,} bytes)"
    cells = (str(answer.blobs), f"{answer.blob_bytes:,}{quota}", evicted, str(answer.quarantined), str(answer.waiters))
    table.add_row(*cells)
    return table


def toolchains_table(answer: Stats) -> Table:
    table = Table("toolchain", "workers", "last claim", title="toolchains that workers offer")
    for seen in answer.toolchains:
        table.add_row(seen.toolchain, str(seen.workers), f"{seen.last_claim_age_s:.0f} s ago")
    return table
