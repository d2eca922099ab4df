"""A real service in a process of its own, and a holder that publishes to it."""

import hashlib
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

START_LIMIT_S = 60
TOOLCHAIN = "stub-1.0"
COMMAND = "from graphcache_service.commands import serve; import typer; typer.run(serve)"


class RunningService:
    """Starts on construction, and listens when the constructor returns. ``start`` after ``kill`` keeps its data."""

    def __init__(self, folder: Path, *, max_files: int | None = None, **settings: object) -> None:
        self.folder = folder
        self.url = ""
        self._max_files = max_files
        self._settings = {f"GRAPHCACHE_SERVER_{name.upper()}": str(value) for name, value in settings.items()}
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.start()

    @property
    def blobs(self) -> Path:
        """Where a service of the default settings keeps its blobs."""
        return self.folder / "data" / "blobs"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        ready = self.folder / f"ready-{uuid4().hex}"
        port = self.url.rpartition(":")[2] or "0"
        command = [sys.executable, "-c", COMMAND, f"--port={port}", f"--ready-file={ready}"]
        command.append(f"--data-dir={self.folder / 'data'}")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GRAPHCACHE_")} | self._settings
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, preexec_fn=self._limit_files
            )
        deadline = time.monotonic() + START_LIMIT_S
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError((self.folder / "log").read_text(errors="replace")[-3000:])
            time.sleep(0.02)
        self.url = ready.read_text().strip()

    def kill(self) -> None:
        """As a power cut would, for the process."""
        self._end(signal.SIGKILL)

    def stop(self) -> int | None:
        """Asks it to stop; its exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int | None:
        if self._process is None:
            return None
        process, self._process = self._process, None
        process.send_signal(number)
        return process.wait(START_LIMIT_S)

    def _limit_files(self) -> None:
        if self._max_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._max_files, self._max_files))


class Holder:
    """Asks for graphs, is granted leases, uploads and publishes. Each lease is for a key of its own."""

    def __init__(self, service: RunningService, token: str | None = None) -> None:
        self.owner = uuid4().hex
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(base_url=service.url, headers=headers, timeout=30)

    def lease(self, key: dict[str, Any] | None = None) -> dict[str, Any]:
        # A flag that no other key has makes a key of its own; every other ingredient stays as it would be.
        own_key = {
            "kind": "moe-experts-fwd",
            "e_hot": 4,
            "h": 64,
            "f": 32,
            "bucket": 8,
            "toolchain": TOOLCHAIN,
            "options": {"flags": uuid4().hex},
        }
        asked = {"key": key or own_key, "owner": self.owner, "holder": "test", "can_compile": True}
        lease: dict[str, Any] = self._checked(self.http.post("/v1/graphs/resolve", json=asked))["lease"]
        return lease

    def put(self, content: bytes, lease: dict[str, Any], **headers: str) -> httpx.Response:
        return self.http.put(path_of(content), params=lease_parameters(lease), content=content, headers=headers)

    def complete(self, content: bytes, lease: dict[str, Any]) -> httpx.Response:
        published = {"blob": sha256(content), "size_bytes": len(content), "toolchain": TOOLCHAIN, "compile_s": 1.0}
        asked = {"generation": lease["generation"], "published": published}
        return self.http.post(f"/v1/leases/{lease['compile_id']}/complete", json=asked)

    def publish(self, content: bytes) -> str:
        """Makes a graph of some bytes; the path of its blob."""
        lease = self.lease()
        assert self.put(content, lease).status_code in (200, 201)
        self._checked(self.complete(content, lease))
        return path_of(content)

    def close(self) -> None:
        self.http.close()

    @staticmethod
    def _checked(answer: httpx.Response) -> dict[str, Any]:
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def path_of(content: bytes) -> str:
    return f"/v1/blobs/{sha256(content)}"


def lease_parameters(lease: dict[str, Any]) -> dict[str, str]:
    return {"compile_id": lease["compile_id"], "generation": str(lease["generation"])}
