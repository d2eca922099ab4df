"""The servers that benchmarks compare: ours with tokens on, nginx, and nginx in front of ours."""

import asyncio
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from graphcache_service.core.tokens import new_token, token_sha256
from graphcache_service.db import clock, tokens
from graphcache_service.db.engine import Database, parse_database_url
from graphcache_service.db.migrate import migrate

TOOLCHAIN = "stub-1.0"
START_LIMIT_S = 60

NGINX = """
worker_processes 1; daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log; {user}
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; client_max_body_size 0;
  client_body_temp_path {folder}/put/.bodies; proxy_temp_path {folder}/proxied;
  upstream ours {{ server {ours}; keepalive 64; }}
  server {{ listen 127.0.0.1:{port}; root {blobs}; }}
  server {{ listen 127.0.0.1:{put_port}; root {folder}/put; location / {{ dav_methods PUT; }} }}
  server {{
    listen 127.0.0.1:{front_port};
    location / {{
      proxy_pass http://ours; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header X-Graphcache-Accel 1; proxy_request_buffering off;
    }}
    location /blobs-inside/ {{ internal; alias {blobs}/; }}
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class Service:
    """Our service in a process of its own, and a token of scope compile for it."""

    url: str
    token: str
    pid: int
    blobs: Path

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=120)


@dataclass(frozen=True, slots=True)
class Nginx:
    url: str
    put_url: str
    front_url: str
    put_folder: Path


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port} after {START_LIMIT_S} s")


@contextmanager
def process(
    command: list[str], log: Path, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs while the block does; its output goes to ``log``."""
    with log.open("ab") as output:
        running = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


@contextmanager
def service(folder: Path, **settings: object) -> Iterator[Service]:
    """Ours, with tokens needed and a database on disk. ``settings`` are those of the service."""
    data = folder / "data"
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = asyncio.run(_make_token(str(settings.get("database_url", f"sqlite:///{data / 'graphcache.db'}"))))
    ready = folder / "ready"
    chosen = {"require_tokens": True, "lease_ttl_s": 3_600, "x_accel_prefix": "/blobs-inside/"} | settings
    environment = os.environ | {f"GRAPHCACHE_SERVER_{name.upper()}": str(value) for name, value in chosen.items()}
    command = [sys.executable, "-c", "from graphcache_service.commands import serve; import typer; typer.run(serve)"]
    command += ["--port=0", f"--data-dir={data}", f"--ready-file={ready}", "--log-level=warning"]
    with process(command, folder / "log", environment) as running:
        deadline = time.monotonic() + START_LIMIT_S
        while not ready.exists():
            if running.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "log").read_text()[-2000:])
            time.sleep(0.02)
        yield Service(ready.read_text().strip(), token, running.pid, data / "blobs")


async def _make_token(database_url: str) -> str:
    database, token = Database(parse_database_url(database_url)), new_token()
    await migrate(database)
    async with database.write() as session:
        now = await clock.now(session)
        await tokens.insert_token(
            session,
            name="benchmark",
            token_sha256=token_sha256(token),
            scope="compile",
            namespace="default",
            reads=(),
            now=now,
            expires_at=None,
        )
    await database.close()
    return token


@contextmanager
def nginx(folder: Path, ours: Service) -> Iterator[Nginx]:
    """One worker of nginx on the same files: as a file server, as a target of PUT, and in front of ours."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    port, put_port, front_port = free_ports(3)
    (folder / "put").mkdir(parents=True)
    configuration = folder / "nginx.conf"
    configuration.write_text(
        NGINX.format(
            folder=folder,
            blobs=ours.blobs,
            ours=ours.url.removeprefix("http://"),
            port=port,
            put_port=put_port,
            front_port=front_port,
            user="user root;" if os.getuid() == 0 else "",
        )
    )
    with process([program, "-c", str(configuration), "-e", str(folder / "error.log")], folder / "log"):
        for one in (port, put_port, front_port):
            wait_for_port(one)
        urls = [f"http://127.0.0.1:{one}" for one in (port, put_port, front_port)]
        yield Nginx(*urls, put_folder=folder / "put")


class Holder:
    """Publishes graphs to ours; one lease serves many uploads."""

    def __init__(self, ours: Service) -> None:
        self.http = ours.client()
        self.owner = os.urandom(16).hex()

    def lease(self, name: str) -> dict[str, Any]:
        answer = self.http.post("/v1/graphs/resolve", json=self.question(name) | {"can_compile": True})
        answer.raise_for_status()
        lease: dict[str, Any] = answer.json()["lease"]
        return lease

    def question(self, name: str) -> dict[str, Any]:
        return {"key": key(name), "owner": self.owner, "holder": "benchmark"}

    def publish(self, name: str, content: bytes) -> str:
        """A ready graph; the digest of its blob."""
        lease, digest = self.lease(name), hashlib.sha256(content).hexdigest()
        place = {"compile_id": lease["compile_id"], "generation": lease["generation"]}
        self.http.put(f"/v1/blobs/{digest}", params=place, content=content).raise_for_status()
        published = {"blob": digest, "size_bytes": len(content), "toolchain": TOOLCHAIN, "compile_s": 1.0}
        asked = {"generation": lease["generation"], "published": published}
        self.http.post(f"/v1/leases/{lease['compile_id']}/complete", json=asked).raise_for_status()
        return digest


def key(name: str) -> dict[str, Any]:
    return {
        "kind": "moe-experts-fwd",
        "e_hot": 32,
        "h": 2048,
        "f": 768,
        "bucket": 64,
        "toolchain": TOOLCHAIN,
        "options": {"flags": name},
    }
