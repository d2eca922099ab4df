"""graphcache: the one command line. Errors are one line on standard error and exit status 1; wrong usage is 2."""

import sys
from importlib.metadata import EntryPoint, entry_points

import typer
from rich.console import Console
from rich.markup import escape

from graphcache_client.cli import explain, get, keygen, prewarm, stats
from graphcache_client.errors import GraphcacheError

GROUP = "graphcache.commands"
EXTRAS = {"graphcache_service": "service", "graphcache_runtime": "runtime"}


def build_app() -> typer.Typer:
    """All commands: the client's own, then those of the packages that are installed beside it."""
    app = typer.Typer(
        name="graphcache",
        help="Stores compiled NPU graphs once for a whole training cluster.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=True,
    )
    for command in (prewarm.prewarm, stats.stats, get.get, explain.explain, keygen.keygen):
        app.command()(command)
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        _add(app, point)
    return app


def _add(app: typer.Typer, point: EntryPoint) -> None:
    """A function becomes a command; a Typer becomes a group of commands."""
    loaded = point.load()
    if isinstance(loaded, typer.Typer):
        app.add_typer(loaded, name=point.name)
    else:
        app.command(name=point.name)(loaded)


def main() -> None:
    """Run the command line; turns the client's errors and missing extras into one line."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        build_app()()
    except GraphcacheError as error:
        console.print(f"[red]error:[/red] {escape(str(error))}")
        sys.exit(1)
    except ModuleNotFoundError as error:
        console.print(f"[red]error:[/red] {escape(f'{error}. {_extra_hint(error)}')}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _extra_hint(error: ModuleNotFoundError) -> str:
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(str(trace.tb_frame.f_globals.get("__name__", "")).split(".")[0])
        trace = trace.tb_next
    extra = next((EXTRAS[name] for name in reversed(frames) if name in EXTRAS), None)
    return f"Install it with: pip install 'npu-graphcache[{extra}]'" if extra else "Is the installation whole?"
