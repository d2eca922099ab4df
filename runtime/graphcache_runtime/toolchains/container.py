"""GraphContainer: one file that holds an NPU graph and says what it is. Read without any compiler, and without torch.

A zip: ``description.json``, then the parts that it names. Sizes and digests of the parts stand in the description, so a
reader knows what it will get before it unpacks anything; the file's own digest is checked before by whoever fetched it.
"""

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from graphcache_wire import GraphKey
from graphcache_wire.artifact import MAX_BLOB_BYTES
from graphcache_wire.base import Seconds, Sha256, ToolchainVersion, WireModel

DESCRIPTION: Final = "description.json"
MAX_DESCRIPTION_BYTES: Final = 2**20
LEVEL: Final = 6
"""Of deflate. A runnable of 100 kB comes to 20 kB in milliseconds."""


class BadContainer(ValueError):
    """The file is no graph container, or not what its description says."""


class TensorSpec(WireModel):
    """One input or output, in the order of a call."""

    name: str
    shape: tuple[Annotated[int, Field(strict=True, ge=0)], ...]
    dtype: str


class Part(WireModel):
    """One member of the zip: ``runnable`` (for the NPU), ``lowered`` (for a CPU), and in baked mode the weights."""

    sha256: Sha256
    size_bytes: Annotated[int, Field(strict=True, ge=0, le=MAX_BLOB_BYTES)]


class Description(WireModel):
    """What a person or a program may know of a graph without loading it. ``seconds`` by phase."""

    format: Literal[1] = 1
    key: GraphKey
    toolchain: ToolchainVersion
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parts: dict[str, Part]
    seconds: dict[str, Seconds]
    versions: dict[str, str]
    settings: dict[str, str]


def write_container(path: Path, description: Description, parts: Mapping[str, bytes]) -> None:
    """Write the file. ``description.parts`` is filled in here.

    Everything but ``seconds`` is the same for the same key: names, order and times of the zip's entries are fixed.
    """
    specs = {name: Part(sha256=_sha256(data), size_bytes=len(data)) for name, data in parts.items()}
    whole = description.model_copy(update={"parts": specs})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as file:
        file.writestr(zipfile.ZipInfo(DESCRIPTION), whole.model_dump_json(indent=1), zipfile.ZIP_DEFLATED)
        for name, data in parts.items():
            file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


def read_description(path: Path) -> Description:
    """What the container says of itself.

    Raises:
        BadContainer: it is none, or of a later format.
    """
    try:
        with zipfile.ZipFile(path) as file:
            return _description(file)
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise BadContainer(f"{path} is no graph container: {error}") from error


def read_parts(path: Path, names: list[str]) -> dict[str, bytes]:
    """These parts, each checked against the description.

    Raises:
        BadContainer: a part is missing, or its size or digest is not the one described.
    """
    try:
        with zipfile.ZipFile(path) as file:
            described = _description(file).parts
            return {name: _part(file, name, described) for name in names}
    except (OSError, zipfile.BadZipFile, KeyError, EOFError) as error:
        raise BadContainer(f"{path} is no whole graph container: {error}") from error


def _description(file: zipfile.ZipFile) -> Description:
    if file.getinfo(DESCRIPTION).file_size > MAX_DESCRIPTION_BYTES:
        raise BadContainer(f"{file.filename}: its description is longer than {MAX_DESCRIPTION_BYTES} bytes")
    text = file.read(DESCRIPTION)
    try:
        return Description.model_validate_json(text)
    except ValidationError as error:
        said = json.loads(text).get("format") if text.startswith(b"{") else None
        newer = f" (format {said}; this reads format 1)" if said != 1 else ""
        raise BadContainer(f"{file.filename}: its description cannot be read{newer}: {error}") from error


def _part(file: zipfile.ZipFile, name: str, described: Mapping[str, Part]) -> bytes:
    part = described.get(name)
    if part is None:
        raise BadContainer(f"{file.filename} has no part {name}; it has {', '.join(sorted(described))}")
    with file.open(name) as member:
        data = member.read(part.size_bytes + 1)
    if len(data) != part.size_bytes or _sha256(data) != part.sha256:
        raise BadContainer(f"{file.filename}: part {name} is not the {part.size_bytes} bytes that are described")
    return data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
