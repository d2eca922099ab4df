"""Many clients in one process: a small HTTP client over one connection each, and stub workers."""

import asyncio
import hashlib
import json
import os
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from peers.servers import TOOLCHAIN

LONG_POLL_S = 30.0
RETRY_S = 1.0


class Connection:
    """One connection, kept open; it does little beside sending and receiving."""

    def __init__(self, url: str, token: str) -> None:
        place = urlsplit(url)
        self._host, self._port = place.hostname or "", place.port or 80
        self._head = f"Host: {place.netloc}\r\nAuthorization: Bearer {token}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.requests = 0
        self.refused = 0

    async def call(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        self.requests += 1
        kind = "Content-Type: application/json\r\n" if method == "POST" else ""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}{kind}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(answer.split("content-length:", 1)[1].split("\r\n", 1)[0])
        return int(answer.split(" ", 2)[1]), await reader.readexactly(length)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a JSON request; asked again where the service is busy.

        Raises:
            RuntimeError: it is no success.
        """
        status, content = await self.call("POST", path, json.dumps(body).encode())
        while status == 503:
            self.refused += 1
            await asyncio.sleep(RETRY_S)
            status, content = await self.call("POST", path, json.dumps(body).encode())
        if status != 200:
            raise RuntimeError(f"POST {path} was answered {status}: {content[:300].decode(errors='replace')}")
        answer: dict[str, Any] = json.loads(content)
        return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


@dataclass
class Client:
    """A rank that needs some graphs, one after the other; when it asked for each, and when it was told."""

    connection: Connection
    keys: list[dict[str, Any]]
    owner: str = field(default_factory=lambda: os.urandom(16).hex())
    asked_at: dict[str, float] = field(default_factory=dict)
    ready_at: dict[str, float] = field(default_factory=dict)

    async def run(self) -> None:
        for key in self.keys:
            name = key["options"]["flags"]
            self.asked_at[name] = time.perf_counter()
            asked = {"key": key, "owner": self.owner, "holder": "rank", "wait_s": LONG_POLL_S}
            while (await self.connection.post("/v1/graphs/resolve", asked))["state"] != "ready":
                pass  # a long poll that ended: ask again
            self.ready_at[name] = time.perf_counter()
        self.connection.close()


@dataclass
class StubWorker:
    """Claims, waits as long as a compile takes, uploads and publishes.

    ``published_at``: when it sent each publication. ``answered_s``: how long the answer to each took.
    """

    connection: Connection
    compile_s: float
    size_bytes: int = 64 << 10
    owner: str = field(default_factory=lambda: os.urandom(16).hex())
    published_at: dict[str, float] = field(default_factory=dict)
    answered_s: list[float] = field(default_factory=list)

    async def run(self, until: int) -> None:
        """Compiles until nothing is queued and ``until`` keys are published by all who share ``published_at``."""
        while len(self.published_at) < until:
            asked = {"owner": self.owner, "holder": "stub", "toolchains": [TOOLCHAIN], "wait_s": 1.0}
            lease = (await self.connection.post("/v1/leases/claim", asked))["lease"]
            if lease is not None:
                await self._compile(lease)

    async def _compile(self, lease: dict[str, Any]) -> None:
        await asyncio.sleep(self.compile_s)
        content, generation = os.urandom(self.size_bytes), lease["generation"]
        digest = hashlib.sha256(content).hexdigest()
        place = f"/v1/blobs/{digest}?compile_id={lease['compile_id']}&generation={generation}"
        status, answer = await self.connection.call("PUT", place, content)
        if status != 201:
            raise RuntimeError(f"the upload was answered {status}: {answer.decode(errors='replace')}")
        published = {
            "blob": digest,
            "size_bytes": len(content),
            "toolchain": TOOLCHAIN,
            "compile_s": self.compile_s,
        }
        asked = {"generation": generation, "published": published}
        began = time.perf_counter()
        await self.connection.post(f"/v1/leases/{lease['compile_id']}/complete", asked)
        self.answered_s.append(time.perf_counter() - began)
        self.published_at[lease["key"]["options"]["flags"]] = began
