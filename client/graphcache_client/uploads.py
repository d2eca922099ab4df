"""How a file goes up: in one request, or in parts that a broken connection does not send again."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

PIECE_BYTES = 1 << 20
PART_BYTES = 64 << 20
"""Larger files go in parts of this size: what a broken connection costs at most."""
MAX_STEPS_BACK = 2
"""A replica that does not know the parts before, behind a balancer, says so; then the file goes in one request."""

SendPut = Callable[[Callable[[], Iterator[bytes]], dict[str, str]], httpx.Response]
"""Puts a body, made anew for each try, with these headers; returns an answer of 200, 201 or 308."""


def upload_file(put: SendPut, path: Path, size_bytes: int) -> None:
    """Send a file; raises what ``put`` raises."""
    if size_bytes <= PART_BYTES or not _sent_in_parts(put, path, size_bytes):
        put(lambda: pieces(path, 0, size_bytes), {"Content-Length": str(size_bytes)})


def _sent_in_parts(put: SendPut, path: Path, size_bytes: int) -> bool:
    """Whether the service has it all. It says how far it has come, at first and after each part."""
    answer = put(lambda: iter(()), {"Content-Length": "0", "Content-Range": f"bytes */{size_bytes}"})
    steps_back = 0
    while answer.status_code == httpx.codes.PERMANENT_REDIRECT and steps_back <= MAX_STEPS_BACK:
        start = received_bytes(answer)
        answer = put(*_part(path, start, min(start + PART_BYTES, size_bytes), size_bytes))
        if answer.status_code == httpx.codes.PERMANENT_REDIRECT:
            steps_back += received_bytes(answer) <= start
    return answer.status_code != httpx.codes.PERMANENT_REDIRECT


def _part(path: Path, start: int, end: int, size_bytes: int) -> tuple[Callable[[], Iterator[bytes]], dict[str, str]]:
    headers = {"Content-Length": str(end - start), "Content-Range": f"bytes {start}-{end - 1}/{size_bytes}"}
    return lambda: pieces(path, start, end), headers


def received_bytes(answer: httpx.Response) -> int:
    """How much of an upload in parts has arrived, as its 308 tells: ``Range: bytes=0-99`` is 100."""
    found = re.fullmatch(r"bytes=0-(\d+)", answer.headers.get("Range", ""))
    return int(found[1]) + 1 if found else 0


def pieces(path: Path, start: int, end: int) -> Iterator[bytes]:
    """Bytes ``start`` to ``end`` of a file, a MiB at a time."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), start, end - start, os.POSIX_FADV_SEQUENTIAL)
        file.seek(start)
        while start < end and (piece := file.read(min(PIECE_BYTES, end - start))):
            start += len(piece)
            yield piece
