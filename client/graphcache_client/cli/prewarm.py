"""graphcache prewarm: have every graph of a manifest compiled, and show how it goes."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from graphcache_client.cli.options import AsJson, Url, service_at
from graphcache_client.errors import ServiceUnavailable
from graphcache_client.manifest_file import read_manifest
from graphcache_client.transport import ServiceClient
from graphcache_wire import ManifestEntry, ManifestStatus

POLL_S = 1.0
STATE_STYLES = {"ready": "green", "leased": "yellow", "queued": "dim", "failed": "red", "absent": "dim"}


def prewarm(
    manifest: Annotated[Path, typer.Argument(help="A TOML file; docs/manifests.md describes it.")],
    toolchain: Annotated[
        str | None, typer.Option("--toolchain", help="Used where the file names none.", show_default=False)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until all is ready.")] = True,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Compile kept failures again.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Ask for every graph of MANIFEST. Exit status 1 where some cannot be compiled."""
    request = read_manifest(manifest, toolchain).model_copy(update={"retry_failed": retry_failed})
    console = Console(quiet=as_json)
    with service_at(url) as service:
        status = service.create_manifest(request)
        if wait:
            status = _watch(service, status, console)
    if as_json:
        typer.echo(status.model_dump_json())
    elif not wait:
        console.print(progress_table(status))
    if status.failed:
        raise typer.Exit(1)


def _watch(service: ServiceClient, status: ManifestStatus, console: Console) -> ManifestStatus:
    """Redraw until nothing is queued or leased; a service that restarts meanwhile is waited for."""
    with Live(progress_table(status), console=console, refresh_per_second=4) as live:
        while not status.done:
            time.sleep(POLL_S)
            try:
                status = service.manifest(status.id)
            except ServiceUnavailable as error:
                live.console.print(str(error), style="yellow", markup=False)
                continue
            live.update(progress_table(status))
    return status


def progress_table(status: ManifestStatus) -> Table:
    """One line a graph: its state, who compiles it, the phase, and seconds taken or to go."""
    eta = f", about {status.eta_s:.0f} s to go" if status.eta_s is not None and not status.done else ""
    title = f"{status.name}: {status.ready} of {status.total} ready, {status.failed} failed{eta}"
    table = Table("graph", "state", "by", "phase", "seconds", "bytes", title=title)
    for entry in status.entries:
        style = STATE_STYLES[entry.state]
        table.add_row(
            entry.key.label(),
            f"[{style}]{entry.state}[/{style}]",
            entry.holder or "",
            _phase(entry),
            _seconds(entry),
            f"{entry.size_bytes:,}" if entry.size_bytes is not None else "",
        )
    return table


def _phase(entry: ManifestEntry) -> str:
    if entry.state == "failed":
        return entry.message[:80]
    if entry.phase is None or entry.state != "leased":
        return ""
    return entry.phase if entry.progress is None else f"{entry.phase} {entry.progress:.0%}"


def _seconds(entry: ManifestEntry) -> str:
    if entry.compile_s is not None:
        return f"{entry.compile_s:.1f}"
    return f"~{entry.eta_s:.0f} to go" if entry.eta_s is not None else ""
