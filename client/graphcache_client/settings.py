"""ClientSettings: what a training process or the command line is told by its environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from graphcache_client.cache import PATIENCE_S, GraphCache
from graphcache_client.disk import DiskStore
from graphcache_client.errors import InvalidInput
from graphcache_client.local_compile import CompileHere
from graphcache_client.signing import Signer
from graphcache_client.transport import ServiceClient

PREFIX = "GRAPHCACHE_"
OTHERS = ("GRAPHCACHE_SERVER_", "GRAPHCACHE_WORKER_", "GRAPHCACHE_RNGD_", "GRAPHCACHE_SERVICE_", "GRAPHCACHE_PORT")
"""Names that live beside the client's: the service's, the worker's, the RNGD environment's; and the last two, which
Kubernetes puts into every pod beside a Service that is called graphcache."""


class ClientSettings(BaseSettings):
    """Read from variables ``GRAPHCACHE_*``. An unknown name is an error, never ignored."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    url: str | None = Field(default=None, description="The service, such as http://cache:8750. Unset: no service.")
    token: SecretStr | None = Field(default=None, description="The bearer token, where the service asks for one.")
    cache_dir: Path = Field(
        default=Path("~/.cache/graphcache/graphs"), description="The node's store, shared by all ranks of a user."
    )
    cache_max_bytes: int | None = Field(
        default=20 * 2**30, ge=2**20, description="The least recently read graphs go above this."
    )
    mode: Literal["normal", "require_hit"] = Field(
        default="normal", description="require_hit: a miss is an error that names what to prewarm."
    )
    patience_s: float = Field(
        default=PATIENCE_S,
        ge=0,
        description=(
            "An outage is waited out this long before a compile here, or the error; "
            "and before what was compiled here for all is kept to this node."
        ),
    )
    trusted_keys: list[str] | None = Field(
        default=None,
        description="Public keys (a JSON list) whose signatures are accepted. Unset: unsigned graphs load.",
    )
    signing_key_file: Path | None = Field(
        default=None, description="The private key that signs what this machine compiles (see graphcache keygen)."
    )

    def service(self, url: str | None = None) -> ServiceClient | None:
        """The client of the service at ``url`` or the one set; None where neither is."""
        chosen = url or self.url
        if chosen is None:
            return None
        return ServiceClient(chosen, token=self.token.get_secret_value() if self.token else None)

    def signer(self) -> Signer | None:
        return Signer.from_file(self.signing_key_file) if self.signing_key_file else None

    def cache(self, *, url: str | None = None, compile_here: CompileHere | None = None) -> GraphCache:
        """The graph cache of this node, as the settings say."""
        return GraphCache(
            self.service(url),
            DiskStore(self.cache_dir, max_bytes=self.cache_max_bytes),
            compile_here=compile_here,
            mode=self.mode,
            patience_s=self.patience_s,
            trusted_keys=self.trusted_keys,
            signer=self.signer(),
        )


def client_settings(environment: Mapping[str, str] = os.environ) -> ClientSettings:
    """Read the settings.

    Raises:
        InvalidInput: names each unknown or unreadable variable; values of secrets are not shown.
    """
    known = {PREFIX + name.upper() for name in ClientSettings.model_fields}
    unknown = [
        name
        for name in sorted(environment)
        if name.upper().startswith(PREFIX) and name.upper() not in known and not name.upper().startswith(OTHERS)
    ]
    if unknown:
        raise InvalidInput(f"unknown settings {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    try:
        return ClientSettings()
    except ValidationError as error:
        faults = "; ".join(f"{PREFIX}{str(fault['loc'][0]).upper()}: {fault['msg']}" for fault in error.errors())
        raise InvalidInput(f"settings: {faults}") from None
