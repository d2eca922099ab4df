"""A worker compiles a real RNGD graph that a node asked for, and the node runs it."""

from fakes.running_service import RunningService

from graphcache_client import DiskStore, GraphCache, ServiceClient
from graphcache_runtime.compiling.check import check_graph
from graphcache_runtime.toolchains.rngd import RngdToolchain
from graphcache_runtime.worker.settings import settings_for, this_machine
from graphcache_runtime.worker.worker import Worker
from graphcache_wire import GraphKey, ManifestRequest


def test_a_worker_compiles_what_a_node_asked_for_and_the_node_runs_it(tmp_path):
    toolchain = RngdToolchain()
    key = GraphKey(kind="moe-experts-fwd", e_hot=2, h=64, f=32, bucket=8, toolchain=toolchain.version())
    running = RunningService(tmp_path / "service")
    try:
        with ServiceClient(running.url, holder="worker") as service:
            service.create_manifest(ManifestRequest(name="one", keys=[key]))
            settings = settings_for(this_machine(), ("rngd",), drain=True)
            assert Worker(service, settings, {toolchain.version(): "rngd"}, tmp_path).run() == 1
            attempt = service.graph(key.digest).attempts[-1]
            with GraphCache(service, DiskStore(tmp_path / "node")) as cache:
                found = cache.get(key)
    finally:
        running.stop()
    assert found.tier == "service"
    assert check_graph(toolchain.load(found.path, key), key, seed=11).rms_error < 0.01
    assert attempt.peak_memory_bytes > 500 * 2**20
    assert attempt.cpu_s > 1
