"""The base of every message and the parsed types that messages share.

Messages are frozen, refuse unknown fields, and never coerce: ``"512"`` is not 512, 1 is not true.
"""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

SHA256_PATTERN: Final = r"^[0-9a-f]{64}$"
"""Lower-case hexadecimal; the one spelling of a digest, in paths, bodies and file names."""


class WireModel(BaseModel):
    """A message, or a part of one."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _no_control_characters(text: str) -> str:
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text):
        raise ValueError("must not hold control characters")
    return text


Int = Annotated[int, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)]
Bool = Annotated[bool, Field(strict=True)]
Float = Annotated[float, Field(strict=True)]
Seconds = Annotated[float, Field(strict=True, ge=0.0)]
Fraction = Annotated[float, Field(strict=True, ge=0.0, le=1.0)]

Sha256 = Annotated[str, StringConstraints(pattern=SHA256_PATTERN)]
OwnerId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
"""A random id of one process. Host names and pids repeat between containers; this does not."""
CompileId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
ToolchainVersion = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][A-Za-z0-9._+-]{0,159}$")]
"""One string made by a toolchain's adapter, such as ``furiosa-torch-2026.4.0+fc43f6a779``."""
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/@:+-]{0,127}$")]
"""What people call a worker, a manifest, a namespace."""
Text = Annotated[str, StringConstraints(max_length=4_000), AfterValidator(_no_control_characters)]
LogTail = Annotated[str, StringConstraints(max_length=64_000)]
"""The end of a compiler's log, as it was printed."""


def is_sha256(text: str) -> bool:
    """Whether ``text`` is a digest in its one spelling."""
    return re.fullmatch(SHA256_PATTERN[1:-1], text) is not None
