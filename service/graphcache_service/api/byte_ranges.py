"""The headers of partial content, parsed: which bytes a request wants, sends, or has already."""

import re
from dataclasses import dataclass
from typing import Final, Literal

_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_CONTENT_RANGE: Final = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """``start <= i < stop``."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ContentRange:
    """What a part of an upload holds; ``part`` is None where the request only asks how far the upload is."""

    part: ByteRange | None
    size_bytes: int


def wanted_range(header: str, size_bytes: int) -> ByteRange | Literal["unsatisfiable"] | None:
    """What a Range header asks of a blob of ``size_bytes``; None where it is to be passed over.

    Several ranges, other units and what cannot be read are passed over, as RFC 9110 allows: the whole blob is right.
    """
    found = _RANGE.fullmatch(header.strip().replace(" ", ""))
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        start, stop = max(0, size_bytes - int(found[2])), size_bytes
    else:
        start, stop = int(found[1]), min(size_bytes, int(found[2]) + 1 if found[2] else size_bytes)
        if found[2] and int(found[2]) < start:
            return None
    return ByteRange(start, stop) if start < stop else "unsatisfiable"


def sent_range(header: str) -> ContentRange | None:
    """A Content-Range header of an upload: ``bytes 0-99/1000`` or ``bytes */1000``; None where it is neither."""
    found = _CONTENT_RANGE.fullmatch(header.strip())
    if found is None:
        return None
    size_bytes = int(found[3])
    if found[1] is None:
        return ContentRange(None, size_bytes)
    part = ByteRange(int(found[1]), int(found[2]) + 1)
    return ContentRange(part, size_bytes) if part.start < part.stop <= size_bytes else None


def has_already(if_none_match: str, etag: str) -> bool:
    """Whether an If-None-Match header names the blob, or anything at all."""
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or tags == ["*"]
