"""Running the service: one socket, one server, a graceful stop."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog
import typer
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from graphcache_service.api.hot_protocol import hot_protocol
from graphcache_service.app import Application, create_app
from graphcache_service.core.services import Services
from graphcache_service.lifecycle import start_services
from graphcache_service.logs import configure_logs
from graphcache_service.settings import Settings

log = structlog.get_logger()


class Server(uvicorn.Server):
    """uvicorn, which tells when it listens, and answers long polls before it waits for requests to end."""

    def __init__(self, config: uvicorn.Config, services: Services, url: str, ready_file: Path | None) -> None:
        super().__init__(config)
        self._services = services
        self._url = url
        self._ready_file = ready_file

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            announce(self._url, self._ready_file)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal begins the graceful stop, and a stop that was graceful ends with status 0."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._services.waiters.close()
        await super().shutdown(sockets)


def announce(url: str, ready_file: Path | None) -> None:
    """Print the address, and write it whole or not at all."""
    typer.echo(f"graphcache serves on {url}")
    if ready_file is not None:
        temporary = ready_file.with_name(f".{ready_file.name}.{os.getpid()}")
        temporary.write_text(url + "\n")
        temporary.replace(ready_file)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, so that port 0 has become a number before anybody is told.

    Raises:
        OSError: the address is in use or not ours; the message names it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise OSError(f"cannot listen on {host} port {port}: {error.strerror}") from error


def url_of(listening: socket.socket, host: str) -> str:
    """The URL that people and scripts use."""
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_options(settings: Settings, app: Application) -> dict[str, Any]:
    """How uvicorn runs: the fast loop and parser, our logs instead of its own."""
    return {
        "loop": "uvloop",
        # Its requests are counted and not logged: where each is to be logged, none takes that way.
        "http": HttpToolsProtocol if settings.log_level == "debug" else hot_protocol(app.blobs),
        "ws": "none",
        "proxy_headers": False,
        "lifespan": "on",
        "access_log": False,
        "log_config": None,
        "server_header": False,
        "date_header": False,
        "timeout_graceful_shutdown": int(settings.stop_grace_s),
        "timeout_keep_alive": 75,
    }


async def run(settings: Settings, ready_file: Path | None = None) -> None:
    """Serve until a signal stops it.

    Raises:
        OSError: the address cannot be had.
        SettingsError, BlobStoreUnavailable, DatabaseUnavailable: it cannot start, or may not listen there.
    """
    configure_logs(settings.log_level, settings.log_format)
    app = create_app(settings)
    # Here, and not only in the server's own start: what fails is told in one line, before anybody can connect.
    await start_services(app.state.services)
    listening = listen(settings.host, settings.port)
    config = uvicorn.Config(app, **server_options(settings, app))
    server = Server(config, app.state.services, url_of(listening, settings.host), ready_file)
    try:
        await server.serve(sockets=[listening])
    finally:
        listening.close()
    if not server.started:
        raise OSError("the service could not start: see the log above")


def loop_factory() -> asyncio.AbstractEventLoop:
    """The event loop that uvicorn would choose."""
    import uvloop

    return uvloop.new_event_loop()
