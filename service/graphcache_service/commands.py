"""Commands of the service, which the command line finds by their entry points."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from graphcache_service.settings import Settings, SettingsError, load_settings

Config = Annotated[Path | None, typer.Option(help="A TOML file of settings.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder of the SQLite file and the blobs.")]
DatabaseUrl = Annotated[str | None, typer.Option(help="sqlite:///path or postgresql://user@host/name.")]
BlobStoreOption = Annotated[str | None, typer.Option("--blob-store", help="A folder or s3://blob_bucket/prefix.")]


def settings_or_exit(config: Path | None, **given: Any) -> Settings:
    """Settings; an error ends the command with one line that names it."""
    try:
        return load_settings(config, **given)
    except SettingsError as error:
        raise _ended(str(error)) from error


def _ended(message: str) -> typer.Exit:
    typer.echo(f"graphcache: {message}", err=True)
    return typer.Exit(2)


def serve(
    config: Config = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one. Default: 8750.")] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    blob_store: BlobStoreOption = None,
    allow_open: Annotated[
        bool | None, typer.Option("--allow-open", help="Listen beyond loopback without tokens.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="json or console.")] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="The service's URL is written here once it listens.")
    ] = None,
) -> None:
    """Serve compiled graphs over HTTP until SIGTERM or ctrl-C."""
    settings = settings_or_exit(
        config, host=host, port=port, data_dir=data_dir, database_url=database_url, blob_store=blob_store,
        allow_open=allow_open, log_level=log_level, log_format=log_format,
    )
    # Imported here, so that the help and the other commands do not load the whole service.
    from graphcache_service.core.errors import ServiceError
    from graphcache_service.serving import loop_factory, run

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(run(settings, ready_file))
    except (ServiceError, SettingsError, OSError) as error:
        raise _ended(str(error)) from error
