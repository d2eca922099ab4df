"""``graphcache vendor push`` and ``pull``. Imported for every command line, so nothing heavy is at the top."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphcache_client import InvalidInput
from graphcache_client.cli.options import Url, service_at
from graphcache_client.settings import client_settings
from graphcache_runtime.toolchains.pinned_torch import keep_torch_importable

if TYPE_CHECKING:
    from graphcache_runtime.vendor.share import Shared

vendor = typer.Typer(
    help="Share the cache of furiosa-torch itself: any program that compiles with it then finds what others compiled.",
    no_args_is_help=True,
)

CacheDir = Annotated[
    Path | None,
    typer.Option("--cache-dir", help="The vendor's cache. Default: ~/.cache/furiosa/compiler.", show_default=False),
]


@vendor.command()
def push(cache_dir: CacheDir = None, url: Url = None) -> None:
    """Publish the finished compiles of this machine that the service lacks."""
    from graphcache_runtime.vendor import cache, share

    _warn_on_stderr()
    with service_at(url) as service:
        done = share.push(service, cache_dir or cache.default_cache_folder(), client_settings().signer())
    _tell("pushed", done)


@vendor.command()
def pull(
    cache_dir: CacheDir = None,
    url: Url = None,
    revision: Annotated[
        str | None, typer.Option("--revision", help="Of the vendor's compiler. Default: the one installed here.")
    ] = None,
) -> None:
    """Fetch the compiles of others that this machine lacks; each is checked before it is put in place."""
    from graphcache_runtime.vendor import cache, share

    _warn_on_stderr()
    chosen = revision or _installed_revision()
    root = cache_dir or cache.default_cache_folder()
    with service_at(url) as service:
        done = share.pull(service, root, chosen, client_settings().trusted_keys)
    _tell("pulled", done)


def _installed_revision() -> str:
    keep_torch_importable()
    from graphcache_runtime.toolchains.base import ToolchainUnavailable
    from graphcache_runtime.toolchains.rngd_vendor import toolchain_version

    try:
        return toolchain_version().rpartition("+")[2]
    except ToolchainUnavailable as error:
        raise InvalidInput(f"pass --revision, for there is no compiler here to ask: {error}") from error


def _tell(what: str, done: "Shared") -> None:
    """Say what was moved; exit status 1 where entries were skipped."""
    cost = f"{done.moved_bytes} bytes, {done.moved_compile_s:.0f} s of compiling"
    typer.echo(f"{done.moved} entries {what} ({cost}), {done.there} were there, {done.skipped} skipped")
    if done.skipped:
        raise typer.Exit(1)


def _warn_on_stderr() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
