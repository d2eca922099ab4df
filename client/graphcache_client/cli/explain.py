"""graphcache explain: why a key hits or misses."""

import typer
from rich.console import Console
from rich.table import Table

from graphcache_client.cli.keys import Bucket, EHot, F, H, KindArgument, Options, ToolchainOption, parse_key
from graphcache_client.cli.options import AsJson, Url, service_at


def explain(
    kind: KindArgument,
    e_hot: EHot,
    h: H,
    f: F,
    bucket: Bucket,
    toolchain: ToolchainOption,
    option: Options = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a graph is stored and, where not, which stored graphs are nearest and in what they differ."""
    key = parse_key(kind, e_hot, h, f, bucket, toolchain, option)
    with service_at(url) as service:
        explanation = service.explain(key)
    if as_json:
        typer.echo(explanation.model_dump_json())
        return
    console = Console()
    console.print(f"{key.label()}  [dim]{key.canonical()}[/dim]", highlight=False)
    console.print(f"[bold]{explanation.state}[/bold]: {explanation.summary}")
    if not explanation.nearest:
        return
    table = Table("stored key", "state", "ingredient", "asked", "stored", title="nearest stored keys")
    for near in explanation.nearest:
        for difference in near.differences:
            row = (difference.ingredient, difference.asked or "(none)", difference.stored or "(none)")
            table.add_row(near.key_digest[:12], near.state, *row)
    console.print(table)
