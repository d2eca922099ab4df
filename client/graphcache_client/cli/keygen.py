"""graphcache keygen: a key to sign compiled graphs with."""

from pathlib import Path
from typing import Annotated

import typer

from graphcache_client.signing import generate_key


def keygen(path: Annotated[Path, typer.Argument(help="Where to write the private key; never overwritten.")]) -> None:
    """Make an Ed25519 key: the private key goes to PATH (mode 0600), the public key is printed."""
    typer.echo(generate_key(path))
