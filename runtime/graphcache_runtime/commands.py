"""``graphcache worker`` and ``graphcache doctor``. Imported for every command line, so torch waits for the command."""

import logging
import os
import re
import signal
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler

from graphcache_client import InvalidInput, ServiceClient
from graphcache_client.cli.options import Url
from graphcache_client.settings import client_settings
from graphcache_runtime.toolchains.pinned_torch import keep_torch_importable

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def worker(
    url: Url = None,
    toolchain: Annotated[
        list[str] | None,
        typer.Option("--toolchain", "-t", help="Compile for this toolchain; may be given again. Default: inductor."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Compiles at once; bounded by cores and memory. Default: 1."),
    ] = None,
    drain: Annotated[bool, typer.Option("--drain", help="End when nothing is queued that it could take.")] = False,
    name: Annotated[str | None, typer.Option("--name", help="What people see. Default: host:pid.")] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option("--memory-limit", metavar="SIZE", help="Of one compile, such as 6G. Default: a share of memory."),
    ] = None,
    time_limit_s: Annotated[float, typer.Option("--time-limit", metavar="SECONDS", min=1, help="Of one compile.")] = 3
    * 3600.0,
    work_dir: Annotated[
        Path | None, typer.Option("--work-dir", help="Where compiles keep their files. Default: the temporary folder.")
    ] = None,
) -> None:
    """Compile what the service's queue holds. SIGTERM and ctrl-C give the leases back."""
    keep_torch_importable()
    from graphcache_runtime.toolchains.base import ToolchainError
    from graphcache_runtime.worker.folder import work_folder
    from graphcache_runtime.worker.settings import settings_for, this_machine
    from graphcache_runtime.worker.worker import Worker

    _log_to_stderr()
    try:
        versions = _versions(toolchain or ["inductor"])
        settings = settings_for(
            this_machine(),
            tuple(versions.values()),
            jobs=jobs,
            memory_limit_bytes=size_bytes(memory_limit) if memory_limit else None,
            time_limit_s=time_limit_s,
            drain=drain,
        )
    except ToolchainError as error:
        raise InvalidInput(f"{error} (graphcache doctor tells more)") from error
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    root = work_dir or Path(tempfile.gettempdir()) / f"graphcache-{os.getuid()}"
    client = client_settings()
    with _service(url, name) as service, work_folder(root) as folder:
        working = Worker(service, settings, versions, folder, signer=client.signer())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: working.stop())
        limits = f"{settings.jobs} at once, {settings.memory_limit_bytes / 2**30:.1f} GiB each"
        logging.getLogger(__name__).info("worker %s: %s, for %s", service.holder, limits, ", ".join(versions))
        published = working.run()
    typer.echo(f"{published} graphs published")


def doctor(
    toolchain: Annotated[list[str] | None, typer.Argument(help="Only these; each must be able to compile.")] = None,
) -> None:
    """Say which toolchains compile and load here, and what is missing. Exit status 1 if a named one cannot compile."""
    keep_torch_importable()
    from graphcache_runtime.doctor import diagnoses, print_diagnoses

    found = diagnoses(toolchain or [])
    print_diagnoses(found, Console())
    if toolchain and not all(diagnosis.usable for diagnosis in found):
        raise typer.Exit(1)


def size_bytes(text: str) -> int:
    """``6G``, ``512M``, ``1073741824``: binary units.

    Raises:
        ValueError: anything else.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None or float(found[1]) == 0:
        raise ValueError(f"a size is a number with K, M, G or T, such as 6G, not {text!r}")
    return int(float(found[1]) * UNITS[found[2].upper()])


def _versions(names: list[str]) -> dict[str, str]:
    """From the version of each toolchain to its name; raises ToolchainError with what is missing."""
    from graphcache_runtime.toolchains.base import check_complete
    from graphcache_runtime.toolchains.registry import toolchain_named

    toolchains = [toolchain_named(name) for name in names]
    for toolchain in toolchains:
        check_complete(toolchain)
    return {toolchain.version(): toolchain.name for toolchain in toolchains}


def _service(url: str | None, name: str | None) -> ServiceClient:
    settings = client_settings()
    chosen = url or settings.url
    if chosen is None:
        raise InvalidInput("no service is named: pass --url http://HOST:PORT or set GRAPHCACHE_URL")
    return ServiceClient(chosen, token=settings.token.get_secret_value() if settings.token else None, holder=name)


def _log_to_stderr() -> None:
    handler = RichHandler(console=Console(stderr=True), show_path=False, rich_tracebacks=False)
    logging.basicConfig(level=logging.INFO, handlers=[handler], format="%(message)s", datefmt="%H:%M:%S")
    logging.getLogger("httpx").setLevel(logging.WARNING)
