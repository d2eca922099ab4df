"""graphcache get: fetch one graph, from this node's disk or the service."""

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from graphcache_client.cli.keys import Bucket, EHot, F, H, KindArgument, Options, ToolchainOption, parse_key
from graphcache_client.cli.options import Url
from graphcache_client.errors import GraphNotReady
from graphcache_client.settings import client_settings


def get(
    kind: KindArgument,
    e_hot: EHot,
    h: H,
    f: F,
    bucket: Bucket,
    toolchain: ToolchainOption,
    option: Options = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also copy the graph's file here.")] = None,
    wait_s: Annotated[float, typer.Option("--wait-s", min=0, help="How long to wait while workers compile it.")] = 0.0,
    url: Url = None,
) -> None:
    """Fetch a graph and print where it is. A missing one is asked of the workers; --wait-s waits for it."""
    key = parse_key(kind, e_hot, h, f, bucket, toolchain, option)
    with client_settings().cache(url=url) as cache:
        try:
            found = cache.get(key, deadline_s=wait_s)
        except GraphNotReady as error:
            Console(stderr=True, soft_wrap=True).print(str(error), highlight=False)
            raise typer.Exit(3) from None
    if output is not None:
        shutil.copyfile(found.path, output)
    typer.echo(f"{output or found.path}\t{found.artifact.size_bytes} bytes\tsha256 {found.artifact.blob}\t{found.tier}")
