"""Options that several commands share, and the way from them to a service client."""

from typing import Annotated

import typer

from graphcache_client.errors import InvalidInput
from graphcache_client.settings import client_settings
from graphcache_client.transport import ServiceClient

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="GRAPHCACHE_URL", help="The service, such as http://cache:8750.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def service_at(url: str | None) -> ServiceClient:
    """The client of the service that the option or the environment names.

    Raises:
        InvalidInput: neither does.
    """
    service = client_settings().service(url)
    if service is None:
        raise InvalidInput("no service is named: pass --url http://HOST:PORT or set GRAPHCACHE_URL")
    return service
