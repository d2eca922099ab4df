"""The demo of one call: a graph goes from the worker's compiler through the service to a node, which runs it."""

import subprocess
import sys

from fakes.compiles import environment

COMMAND = [sys.executable, "-m", "graphcache_runtime.demo.one_call", "--toolchain", "stub", "--dtype", "fp32"]
SIZE = ["--e-hot", "2", "--h", "16", "--f", "8", "--bucket", "8", "--kind", "moe-experts-fwd"]


def test_a_graph_is_compiled_by_a_worker_and_its_one_call_agrees_with_pytorch(tmp_path):
    command = [*COMMAND, *SIZE, "--folder", str(tmp_path)]
    done = subprocess.run(command, env=environment(COLUMNS="200"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "One call of each graph, on host CPU" in done.stdout
    rows = [line for line in done.stdout.splitlines() if "moe-experts-fwd E2 H16 F8 B8 fp32" in line]
    assert "worker-0" in rows[0]
    assert "service" in rows[1]
