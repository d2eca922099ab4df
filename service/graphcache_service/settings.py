"""Settings of the service: command line, environment (``GRAPHCACHE_SERVER_...``), a TOML file, or the default.

The first of these that names a setting decides. A name that nobody knows is an error, so that a misspelt setting is
never silently the default. Secrets are masked wherever settings are printed.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

PREFIX: Final = "GRAPHCACHE_SERVER_"
"""Clients and workers read their own names under ``GRAPHCACHE_``. Not ``GRAPHCACHE_SERVICE_``: Kubernetes puts
``GRAPHCACHE_SERVICE_HOST`` and ``_PORT`` into every pod beside a Service that is called graphcache."""

CONFIG: Final = "config"
"""``GRAPHCACHE_SERVER_CONFIG`` names the TOML file, as ``--config`` does."""

Positive = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(ge=0)]


class SettingsError(ValueError):
    """A setting is unknown or has a value that it cannot have. The message names it and says where it came from."""


class Settings(BaseSettings):
    """All settings of one service process."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, validate_default=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8750
    """0 takes a free port; the printed line and ``--ready-file`` tell which."""
    data_dir: Path = Path("graphcache-data")
    """Holds the SQLite file and the folder of blobs, unless the next two name other places."""
    database_url: SecretStr | None = None
    """``sqlite:///path`` or ``postgresql://user:password@host/name``. Default: ``graphcache.db`` in data_dir."""
    database_pool_size: Annotated[int, Field(ge=1, le=200)] = 8

    blob_store: str | None = None
    """A folder, or ``s3://blob_bucket/prefix``. Default: ``blobs`` in data_dir."""
    s3_endpoint: str | None = None
    s3_public_endpoint: str | None = None
    """Where clients reach the same blob_bucket, if not at s3_endpoint: presigned URLs name it."""
    s3_region: str | None = None
    s3_access_key_id: SecretStr | None = None
    s3_secret_access_key: SecretStr | None = None
    s3_allow_http: bool = False
    presign_s: Positive = 900.0
    """How long a presigned URL of the store stays valid."""
    x_accel_prefix: str | None = None
    """Set where nginx stands in front: the internal location that maps to the folder of blobs."""
    max_blob_bytes: Bytes = 16 * 2**30
    hot_blobs_bytes: Bytes = 64 * 2**20
    """Memory for small blobs that are asked for often."""
    hot_blob_max_bytes: Bytes = 1 * 2**20
    upload_grace_s: Positive = 30.0
    """An upload has this long, and a second more for each ``upload_min_bytes_per_s``."""
    upload_min_bytes_per_s: Positive = 256 * 1024.0
    verify_reads: bool = False
    """Hash each blob again when it is first served after a start."""

    quota_bytes: Bytes | None = None
    quota_blobs: Annotated[int, Field(ge=1)] | None = None
    evict_protect_s: Positive = 600.0
    """What was fetched, published or leased this lately is never evicted."""
    evict_half_life_s: Positive = 7 * 86_400.0
    """A graph's value halves for each such time since its last use."""
    orphan_grace_s: Positive = 3_600.0
    """Bytes without a row are an upload under way until they are older than this."""

    lease_ttl_s: Positive = 60.0
    """A lease without a heartbeat for this long is taken over. Holders renew at a third of it."""
    sweep_interval_s: Positive = 1.0
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 4
    backoff_base_s: Annotated[float, Field(ge=0)] = 5.0
    backoff_max_s: Annotated[float, Field(ge=0)] = 300.0
    rejected_ttl_s: Positive = 86_400.0
    """How long the compiler's refusal is kept before a resolve compiles again."""
    hedge_factor: Annotated[float, Field(ge=1)] | None = None
    """A compile that runs longer than this many times the 95th percentile of its kind and size may be given to a second
    worker that has nothing else to do; the first good one wins. Unset: never."""
    usage_flush_s: Positive = 1.0
    """Use counts are written this often: what a kill loses at most."""
    usage_minutes_days: Positive = 2.0
    """Counts of this many days are kept by minute, older ones by day (UTC): what ``since`` of statistics can tell."""
    history_days: Positive = 90.0
    """Counts by day, waits, evictions and ended attempts older than this are removed; the totals of all time stay."""

    max_body_bytes: Bytes = 1 * 2**20
    max_manifest_body_bytes: Bytes = 8 * 2**20
    max_held_requests: Annotated[int, Field(ge=1)] = 2_000
    """Long polls and event streams held open at once; more get 503 busy."""
    max_page_rows: Annotated[int, Field(ge=1, le=10_000)] = 500
    stop_grace_s: Positive = 20.0
    """How long downloads and uploads may take to finish at a stop. Long polls are answered at once."""

    require_tokens: bool | None = None
    """True: every call needs a token. Default: only where the service listens beyond loopback."""
    allow_open: bool = False
    """Listen beyond loopback without tokens. Whoever reaches the port can then make nodes run what they publish."""

    metrics_need_token: bool = False
    """Most scrapers of a cluster send none; the metrics tell toolchains and counts, no keys."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what :func:`load_settings` merged: a ``Settings(...)`` in a test does not read the environment."""
        return (init_settings,)

    @model_validator(mode="after")
    def _database_is_one_we_know(self) -> Self:
        # Imported here: the command line reads settings where SQLAlchemy is not installed.
        from graphcache_service.db.engine import parse_database_url

        parse_database_url(self.database())
        return self

    def database(self) -> str:
        """The URL of the database. Holds its password: never print it."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.data_dir / 'graphcache.db'}"

    def blob_location(self) -> str:
        """The folder or ``s3://`` URL of the blobs."""
        return self.blob_store if self.blob_store is not None else str(self.data_dir / "blobs")

    def listens_beyond_loopback(self) -> bool:
        """Whether other machines can connect."""
        return self.host not in ("127.0.0.1", "::1", "localhost")

    def needs_tokens(self) -> bool:
        """Whether a call without a token is refused."""
        if self.require_tokens is not None:
            return self.require_tokens
        return self.listens_beyond_loopback() and not self.allow_open


def _known(name: str, where: str) -> str:
    if name in Settings.model_fields:
        return name
    near = difflib.get_close_matches(name, Settings.model_fields, n=1)
    raise SettingsError(f"unknown setting {name!r} in {where}" + (f": did you mean {near[0]!r}?" if near else ""))


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for variable, value in environment.items():
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower()
            if name != CONFIG:
                found[_known(name, f"the environment ({variable})")] = value
    return found


def _from_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"cannot read the settings file {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is no TOML: {error}") from error
    return {_known(name, str(path)): value for name, value in content.items()}


def load_settings(
    config: Path | None = None, *, environment: Mapping[str, str] | None = None, **given: Any
) -> Settings:
    """Settings from what is ``given`` (None counts as not given), the environment, and the file, in this order.

    Raises:
        SettingsError: an unknown name, a value of the wrong kind, an unreadable file.
    """
    environment = os.environ if environment is None else environment
    in_environment = environment.get(PREFIX + CONFIG.upper())
    if config is None and in_environment is not None:
        config = Path(in_environment)
    merged = {} if config is None else _from_file(config)
    merged |= _from_environment(environment)
    merged |= {_known(name, "the command line"): value for name, value in given.items() if value is not None}
    try:
        return Settings(**merged)
    except ValueError as error:
        raise SettingsError(_explain(error)) from error


def _explain(error: ValueError) -> str:
    """What pydantic found, without the values: one of them may be a secret."""
    details = getattr(error, "errors", None)
    if details is None:
        return str(error)
    found = details(include_url=False, include_input=False)
    return "; ".join(f"setting {'.'.join(map(str, item['loc'])) or '(all)'}: {item['msg']}" for item in found)
