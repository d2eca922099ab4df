"""How a blob comes down: a broken connection goes on where it was cut."""

from pathlib import Path

import httpx

from graphcache_client.verify import READ_BYTES


def fetch_rest(
    http: httpx.Client, path: str, digest: str, size_bytes: int, into: Path, timeout: httpx.Timeout
) -> httpx.Response:
    """Append to ``into`` what it lacks of the blob; returns 200, or the service's answer where that is no body.

    Safe to repeat after ``httpx.HTTPError``. The caller checks size and digest.
    """
    have_bytes = into.stat().st_size
    if have_bytes == size_bytes and size_bytes > 0:
        return httpx.Response(200)
    headers = {"Accept-Encoding": "identity"}
    if have_bytes:
        headers |= {"Range": f"bytes={have_bytes}-", "If-Range": f'"{digest}"'}
    with http.stream("GET", path, headers=headers, timeout=timeout) as answer:
        if answer.status_code not in (200, 206):
            answer.read()
            return answer
        with into.open("ab" if answer.status_code == 206 else "wb") as file:
            for piece in answer.iter_bytes(READ_BYTES):
                file.write(piece)
    return httpx.Response(200)
