"""The main job, end to end and with real compiles: processes as a user starts them, at small sizes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.running_service import RunningService

from graphcache_client import ServiceClient
from graphcache_runtime.toolchains.inductor import InductorToolchain

SMALL = ["--h", "64", "--f", "32", "--experts", "16", "--e-hot", "4", "--rows", "16", "--compare-rows", "16"]
MANIFEST = """
name = "small"
[[graphs]]
kinds = ["moe-experts-fwd", "moe-experts-bwd-lora"]
e_hot = 4
h = 64
f = 32
buckets = [16]
"""


def run(*arguments: str, url: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRAPHCACHE_")}
    environment |= {"GRAPHCACHE_URL": url} if url else {}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=check)


@pytest.fixture(scope="module")
def demo_folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("demo")


def test_two_nodes_train_on_graphs_of_one_worker_and_a_second_run_compiles_nothing(demo_folder):
    arguments = ["graphcache_runtime.demo", "--folder", str(demo_folder), "--bucket", "16", "--steps", "2", *SMALL]
    first = run(*arguments)
    second = run(*arguments)
    assert first.stdout.count("worker-0") == 2
    assert len(re.findall(r"│ compiled +│", first.stdout)) == 2
    assert second.stdout.count("was there") == 2
    for done in (first, second):
        assert done.stdout.count("within") == 2
    assert spent_s(first.stdout) > 0
    assert spent_s(second.stdout) == 0


def spent_s(output: str) -> float:
    return float(output.split("compile seconds spent")[1].split("│")[1])


def test_prewarm_compiles_a_manifest_then_get_and_stats_find_it(tmp_path):
    service = RunningService(tmp_path / "service")
    manifest = tmp_path / "small.toml"
    try:
        manifest.write_text(f'toolchain = "{InductorToolchain().version()}"\n{MANIFEST}')
        asked = run("graphcache_client", "prewarm", str(manifest), "--no-wait", "--json", url=service.url)
        assert json.loads(asked.stdout)["queued"] == 2
        run("graphcache_client", "worker", "--drain", "--work-dir", str(tmp_path / "work"), url=service.url)
        done = run("graphcache_client", "prewarm", str(manifest), "--json", url=service.url)
        assert json.loads(done.stdout)["ready"] == 2
        with ServiceClient(service.url) as client:
            assert client.stats().totals.compiles["ready"] == 2
    finally:
        service.stop()
