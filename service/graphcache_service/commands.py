"""Commands of the service, which the command line finds by their entry points.

Imported for every command line, also where only the client is installed: nothing heavy is at the top.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from graphcache_service.core.callers import DEFAULT_NAMESPACE, OPEN_CALLER, Scope
from graphcache_service.core.errors import ServiceError
from graphcache_service.settings import Settings, SettingsError, load_settings

if TYPE_CHECKING:
    from graphcache_service.core.services import Services

Result = TypeVar("Result")

Config = Annotated[Path | None, typer.Option(help="A TOML file of settings.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder of the SQLite file and the blobs.")]
DatabaseUrl = Annotated[str | None, typer.Option(help="sqlite:///path or postgresql://user@host/name.")]
BlobStoreOption = Annotated[str | None, typer.Option("--blob-store", help="A folder or s3://blob_bucket/prefix.")]


def _ended(message: str) -> typer.Exit:
    typer.echo(f"graphcache: {message}", err=True)
    return typer.Exit(2)


def settings_or_exit(config: Path | None, **given: Any) -> Settings:
    """Settings; an error ends the command with one line that names it."""
    try:
        return load_settings(config, **given)
    except SettingsError as error:
        raise _ended(str(error)) from error


def with_services(settings: Settings, work: "Callable[[Services], Awaitable[Result]]") -> Result:
    """Run ``work`` on the database and store of a service, which may serve meanwhile."""
    from graphcache_service.db.migrate import migrate
    from graphcache_service.lifecycle import close_services, open_services

    async def run() -> Result:
        services = open_services(settings)
        try:
            await migrate(services.database)
            return await work(services)
        finally:
            await close_services(services)

    try:
        return asyncio.run(run())
    except (ServiceError, SettingsError, OSError) as error:
        raise _ended(str(error)) from error


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
    ready_file: Annotated[Path | None, typer.Option(help="The service's URL is written here once it listens.")] = None,
) -> None:
    """Serve compiled graphs over HTTP until SIGTERM or ctrl-C."""
    settings = settings_or_exit(
        config,
        host=host,
        port=port,
        data_dir=data_dir,
        database_url=database_url,
        blob_store=blob_store,
        allow_open=allow_open,
        log_level=log_level,
        log_format=log_format,
    )
    # Imported here, so that the help and the other commands do not load the server.
    from graphcache_service.serving import loop_factory, run

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(run(settings, ready_file))
    except (ServiceError, SettingsError, OSError) as error:
        raise _ended(str(error)) from error


def fsck(
    config: Config = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    blob_store: BlobStoreOption = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every blob again and hash it.")] = False,
    mend: Annotated[
        bool, typer.Option("--mend", help="Queue graphs whose bytes are bad again, and remove bytes without a row.")
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="First bring back what a lost database knew, from the stored records.")
    ] = False,
) -> None:
    """Check that rows, bytes and records agree. Ends with 1 where they did not, and were not mended."""
    from graphcache_service.core.fsck import Findings
    from graphcache_service.core.fsck import fsck as check
    from graphcache_service.core.rebuild import Rebuilt
    from graphcache_service.core.rebuild import rebuild as bring_back

    settings = settings_or_exit(config, data_dir=data_dir, database_url=database_url, blob_store=blob_store)

    async def work(services: "Services") -> tuple[Rebuilt | None, Findings]:
        rebuilt = await bring_back(services, deep=deep) if rebuild else None
        return rebuilt, await check(services, deep=deep, mend=mend)

    rebuilt, found = with_services(settings, work)
    if rebuilt is not None:
        typer.echo(f"rebuilt {rebuilt.graphs} graphs")
        for reason, count in sorted(rebuilt.skipped.items()):
            typer.echo(f"left {count}: {reason}")
    typer.echo(f"checked {found.checked} blobs")
    for what, names in found.lists().items():
        for name in names:
            typer.echo(f"{what}: {name}")
    if found.totals_wrong:
        typer.echo("the totals were wrong")
    if found.records_without_rows:
        typer.echo("what records tell of can be brought back: run again with --rebuild")
    typer.echo("clean" if found.clean() else "mended" if mend else "not clean: run again with --mend")
    if not found.clean() and not mend:
        raise typer.Exit(1)


def evict(
    config: Config = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    blob_store: BlobStoreOption = None,
    room_bytes: Annotated[int, typer.Option(min=0, help="Make room for this many more bytes.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Evict down to the quota, the least valuable graphs first; never what is pinned or was used just now."""
    from graphcache_service.core import eviction
    from graphcache_service.db.eviction import Candidate

    settings = settings_or_exit(config, data_dir=data_dir, database_url=database_url, blob_store=blob_store)

    async def work(services: "Services") -> list[Candidate]:
        asked = eviction.what_would_go if dry_run else eviction.evict_now
        return await asked(services, OPEN_CALLER, room_bytes)

    victims = with_services(settings, work)
    for victim in victims:
        typer.echo(f"{victim.blob}  {victim.size_bytes} bytes, {victim.compile_s:.0f} s of compile")
    total_bytes = sum(victim.size_bytes for victim in victims)
    typer.echo(f"{'would evict' if dry_run else 'evicted'} {len(victims)} blobs, {total_bytes} bytes")


def quarantine(
    producer: Annotated[str, typer.Argument(help="The name under which it published, as GET /v1/graphs shows.")],
    since: Annotated[datetime, typer.Option(help="Everything it published since this time (UTC).")],
    config: Config = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    blob_store: BlobStoreOption = None,
) -> None:
    """Take everything that one producer published since a time out of service; it is compiled anew."""
    from graphcache_service.core.reports import quarantine_producer

    settings = settings_or_exit(config, data_dir=data_dir, database_url=database_url, blob_store=blob_store)
    since_s = since.replace(tzinfo=UTC).timestamp()
    count = with_services(settings, lambda services: quarantine_producer(services, OPEN_CALLER, producer, since_s))
    typer.echo(f"quarantined {count} graphs of {producer}")


def promote(
    key_digest: Annotated[str, typer.Argument(help="The graph's key, as GET /v1/graphs shows.")],
    source: Annotated[str, typer.Option("--from", help="The namespace that has the graph.")],
    target: Annotated[str, typer.Option("--to", help="The namespace that shall have it too.")],
    config: Config = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    blob_store: BlobStoreOption = None,
) -> None:
    """Let a namespace have a graph that another one compiled."""
    from graphcache_service.core import promote as core

    settings = settings_or_exit(config, data_dir=data_dir, database_url=database_url, blob_store=blob_store)
    done = with_services(settings, lambda services: core.promote(services, OPEN_CALLER, key_digest, source, target))
    typer.echo(f"promoted to {target}" if done else f"{target} has this graph already")


token = typer.Typer(help="Make, list and revoke the tokens of the service.", no_args_is_help=True)


@token.command("create")
def token_create(
    name: Annotated[str, typer.Argument(help="Whose token it is; shown in the list.")],
    scope: Annotated[str, typer.Option(help="read, compile or admin; each contains those before it.")] = "read",
    namespace: Annotated[str, typer.Option(help="The namespace that it writes to.")] = DEFAULT_NAMESPACE,
    reads: Annotated[list[str] | None, typer.Option(help="A namespace that it reads beside its own.")] = None,
    days: Annotated[float | None, typer.Option(min=0, help="Days until it expires. Default: never.")] = None,
    config: Config = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a token and print it. Only its hash is stored: this is the one time that it is shown."""
    from graphcache_service.core.tokens import create_token

    settings = settings_or_exit(config, data_dir=data_dir, database_url=database_url)
    made = with_services(
        settings,
        lambda services: create_token(
            services.database, name=name, scope=_scope(scope), namespace=namespace, reads=reads or [], days=days
        ),
    )
    typer.echo(made)


@token.command("list")
def token_list(config: Config = None, data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """List all tokens; the tokens themselves are not stored."""
    from graphcache_service.core.tokens import list_tokens

    settings = settings_or_exit(config, data_dir=data_dir, database_url=database_url)
    for one in with_services(settings, lambda services: list_tokens(services.database)):
        state = "revoked" if one.revoked_at else f"expires {one.expires_at:%Y-%m-%d}" if one.expires_at else "live"
        reads = f" reads {','.join(one.reads)}" if one.reads else ""
        typer.echo(f"{one.token_id}  {one.name}  {one.scope}  {one.namespace}{reads}  {state}")


@token.command("revoke")
def token_revoke(
    id_or_name: Annotated[str, typer.Argument(help="The id or name that the list shows.")],
    config: Config = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Revoke tokens; every replica refuses them within seconds."""
    from graphcache_service.core.tokens import revoke_token

    settings = settings_or_exit(config, data_dir=data_dir, database_url=database_url)
    count = with_services(settings, lambda services: revoke_token(services.database, id_or_name))
    if count == 0:
        raise _ended(f"no live token with the id or name {id_or_name!r}")
    typer.echo(f"revoked {count}")


def _scope(text: str) -> Scope:
    match text:
        case "read" | "compile" | "admin":
            return text
        case _:
            raise _ended(f"no scope {text!r}: use read, compile or admin")
