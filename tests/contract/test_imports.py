"""Who may load whom, seen in a fresh process: the light client and the service must never need torch."""

import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "furiosa", "numpy"}
SERVICE = {"fastapi", "starlette", "sqlalchemy", "obstore", "graphcache_service"}
CASES = {
    "graphcache_wire": HEAVY | SERVICE | {"httpx", "typer", "graphcache_client", "graphcache_runtime"},
    "graphcache_client": HEAVY | SERVICE | {"graphcache_runtime"},
    "graphcache_client.cli.app": HEAVY | SERVICE | {"graphcache_runtime"},
    "graphcache_service.app": HEAVY | {"graphcache_client", "graphcache_runtime"},
    "graphcache_service.commands": HEAVY | {"graphcache_client", "graphcache_runtime", "fastapi", "sqlalchemy"},
    "graphcache_runtime.commands": HEAVY | SERVICE,
    "graphcache_runtime.worker.worker": {"transformers"} | SERVICE,
}


@pytest.mark.parametrize("module", CASES)
def test_a_package_loads_nothing_that_it_may_not_know(module):
    script = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not CASES[module] & set(done.stdout.split())
