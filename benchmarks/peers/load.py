"""Load for HTTP servers: wrk where many small requests count, a socket of our own where bytes do."""

import json
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

UNITS_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 60e3}
ONE_REQUEST = """
wrk.method = "{method}"
wrk.body = {body}
"""
FRESH_PUTS = """
-- Each request puts bytes that nobody put before: a constant head, and an end of 64 bytes of its own.
local head = string.rep("graphcache", {head_bytes} / 10 + 1):sub(1, {head_bytes})
local paths, ends, number = {{}}, {{}}, 0
for line in io.lines("{list}") do
  number = number + 1
  paths[number], ends[number] = line:match("(%S+) (%S+)")
end
local next_one = 0
request = function()
  next_one = next_one % number + 1
  return wrk.format("PUT", paths[next_one], nil, head .. ends[next_one])
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What one round measured."""

    requests_per_s: float
    bytes_per_s: float
    p50_ms: float
    p99_ms: float
    failed: int


def wrk(
    url: str, *, connections: int, seconds: float, headers: Mapping[str, str] | None = None, script: str | None = None
) -> Load:
    """A round of wrk with one thread.

    Raises:
        RuntimeError: wrk is missing or failed.
    """
    if shutil.which("wrk") is None:
        raise RuntimeError("wrk is missing: install it with the system's package manager")
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--latency", "--timeout", "30s"]
    for name, value in (headers or {}).items():
        command += ["-H", f"{name}: {value}"]
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        if script is not None:
            file.write(script)
            file.flush()
            command += ["-s", file.name]
        output = subprocess.run([*command, url], capture_output=True, text=True)
    if output.returncode != 0:
        raise RuntimeError(output.stderr or output.stdout)
    return _parsed(output.stdout)


def posting(body: object) -> str:
    """A script that posts the same JSON again and again."""
    return ONE_REQUEST.format(method="POST", body=json.dumps(json.dumps(body)))


def putting(paths_and_ends: Path, size_bytes: int) -> str:
    """A script that puts fresh bytes with each request; ``fresh_bytes`` made the list."""
    return FRESH_PUTS.format(head_bytes=size_bytes - 64, list=paths_and_ends)


def fresh_bytes(size_bytes: int, count: int, first: int) -> list[tuple[str, str]]:
    """Digests of bytes that nobody put before, and their ends of 64 bytes: see FRESH_PUTS."""
    head_bytes = size_bytes - 64
    head = sha256((b"graphcache" * (head_bytes // 10 + 1))[:head_bytes])
    fresh: list[tuple[str, str]] = []
    for number in range(first, first + count):
        end, whole = f"{number:064d}", head.copy()
        whole.update(end.encode())
        fresh.append((whole.hexdigest(), end))
    return fresh


def put_large(url: str, head: bytes, end: bytes, headers: Mapping[str, str]) -> float:
    """Puts ``head + end`` over one connection; seconds until the answer. The client does little beside sending.

    Raises:
        RuntimeError: the answer is no success.
    """
    place = urlsplit(url)
    lines = [f"PUT {place.path}?{place.query} HTTP/1.1", f"Host: {place.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(head) + len(end)}", "Connection: close", "", ""]
    began = time.perf_counter()
    with socket.create_connection((place.hostname or "", place.port or 80), timeout=120) as connection:
        connection.sendall("\r\n".join(lines).encode())
        connection.sendall(head)
        connection.sendall(end)
        status = connection.recv(4096).split(b" ")[1]
    if status not in (b"200", b"201", b"204"):
        raise RuntimeError(f"PUT {place.path} was answered {status.decode()}")
    return time.perf_counter() - began


def _parsed(output: str) -> Load:
    failed = sum(int(number) for number in re.findall(r"Non-2xx or 3xx responses: (\d+)", output))
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", output)
    if errors is not None:
        failed += sum(int(number) for number in errors.groups())
    rate = re.search(r"Transfer/sec:\s+([\d.]+)([KMG]?)B", output)
    requests = re.search(r"Requests/sec:\s+([\d.]+)", output)
    if rate is None or requests is None:
        raise RuntimeError(f"wrk printed something else than expected: {output}")
    scale = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[rate[2]]
    return Load(
        float(requests[1]), float(rate[1]) * scale, _latency_ms(output, "50%"), _latency_ms(output, "99%"), failed
    )


def _latency_ms(output: str, percentile: str) -> float:
    found = re.search(rf"{percentile}\s+([\d.]+)(us|ms|s|m)", output)
    return float(found[1]) * UNITS_MS[found[2]] if found is not None else float("nan")
