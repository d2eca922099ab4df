"""Manifest files: the graphs a job will need, written by people, in TOML.

    name = "qwen3-30b-a3b-lora"
    toolchain = "furiosa-torch-2026.4.0+fc43f6a779"
    priority = 50                       # 0 to 100, the highest first; optional
    pin = true                          # keep them from eviction; optional

    [[graphs]]
    kinds = ["moe-experts-fwd", "moe-experts-bwd-lora"]
    e_hot = 32
    h = 2048
    f = 768
    buckets = [16, 32, 64]
    options = { dtype = "bf16" }        # optional

Each table stands for kinds x buckets keys. ``toolchain`` may also stand in a table, or be given to the reader.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graphcache_client.errors import InvalidInput
from graphcache_wire import GraphKey, ManifestRequest
from graphcache_wire.manifest import MAX_MANIFEST_KEYS


class _Graphs(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    kinds: Annotated[list[str], Field(min_length=1)]
    e_hot: int
    h: int
    f: int
    buckets: Annotated[list[int], Field(min_length=1)]
    toolchain: str | None = None
    options: dict[str, str] = Field(default_factory=dict)

    def keys(self, toolchain: str) -> list[GraphKey]:
        return [
            GraphKey.model_validate(
                {"kind": kind, "bucket": bucket, "toolchain": toolchain, "options": self.options}
                | {"e_hot": self.e_hot, "h": self.h, "f": self.f}
            )
            for kind in self.kinds
            for bucket in self.buckets
        ]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    toolchain: str | None = None
    priority: int = 50
    pin: bool = True
    graphs: Annotated[list[_Graphs], Field(min_length=1)]


def read_manifest(path: Path, toolchain: str | None = None) -> ManifestRequest:
    """Read a manifest file into the request that prewarms it; keys that stand twice are asked for once.

    Args:
        toolchain: used where the file names none.

    Raises:
        InvalidInput: the file cannot be read; the message names the place in it, and what to do.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"manifest {path}: {error.strerror if isinstance(error, OSError) else error}") from error
    try:
        file = _File.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"manifest {path} is no TOML: {error}") from error
    except ValidationError as error:
        raise InvalidInput(f"manifest {path}: {_faults(error, '')}") from None
    keys = dict.fromkeys(key for n, graphs in enumerate(file.graphs) for key in _keys(path, n, graphs, file, toolchain))
    if len(keys) > MAX_MANIFEST_KEYS:
        raise InvalidInput(f"manifest {path} asks for {len(keys)} graphs; at most {MAX_MANIFEST_KEYS} fit: split it")
    try:
        return ManifestRequest(name=file.name, keys=list(keys), priority=file.priority, pin=file.pin)
    except ValidationError as error:
        raise InvalidInput(f"manifest {path}: {_faults(error, '')}") from None


def _keys(path: Path, n: int, graphs: _Graphs, file: _File, toolchain: str | None) -> list[GraphKey]:
    chosen = graphs.toolchain or file.toolchain or toolchain
    if chosen is None:
        raise InvalidInput(
            f'manifest {path}: graphs.{n} names no toolchain: write toolchain = "..." or pass --toolchain; '
            "graphcache stats lists those that workers offer"
        )
    try:
        return graphs.keys(chosen)
    except ValidationError as error:
        raise InvalidInput(f"manifest {path}: {_faults(error, f'graphs.{n}.')}") from None


def _faults(error: ValidationError, place: str) -> str:
    return "; ".join(f"{place}{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())


def manifest_text(request: ManifestRequest) -> str:
    """The request as a manifest file that ``read_manifest`` reads back to the same keys, for people to keep."""
    lines = [f'name = "{request.name}"', f"priority = {request.priority}", f"pin = {str(request.pin).lower()}"]
    groups: dict[tuple[Any, ...], tuple[GraphKey, list[int]]] = {}
    for key in request.keys:
        group = (key.kind, key.e_hot, key.h, key.f, key.toolchain, tuple(key.options.items()))
        groups.setdefault(group, (key, []))[1].append(key.bucket)
    for key, buckets in groups.values():
        options = ", ".join(f'{name} = "{value}"' for name, value in key.options.items())
        lines += ["", "[[graphs]]", f'kinds = ["{key.kind}"]', f'toolchain = "{key.toolchain}"']
        lines += [f"e_hot = {key.e_hot}", f"h = {key.h}", f"f = {key.f}", f"buckets = {buckets}"]
        lines += [f"options = {{ {options} }}"]
    return "\n".join(lines) + "\n"
