"""The vendor's own cache, shared: a program that knows nothing of graphcache compiles nothing in the second home."""

import hashlib
import subprocess
import sys
from pathlib import Path

from fakes.compiles import environment
from fakes.running_service import RunningService

PROGRAM = """
import hashlib
import torch
from furiosa.torch import compiler
from furiosa.torch.export.exported_program import preprocess_exported_program

class Product(torch.nn.Module):
    def forward(self, x, w):
        return torch.bmm(x, w)

example = (torch.zeros(2, 8, 64, dtype=torch.bfloat16), torch.zeros(2, 64, 32, dtype=torch.bfloat16))
program, _ = preprocess_exported_program(torch.export.export(Product(), example, strict=False), None)
print(hashlib.sha256(compiler.compile(program).serialize()).hexdigest())
"""


def run_program(home: Path, **more: str) -> str:
    variables = environment(XDG_CACHE_HOME=str(home), **more)
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def vendor(action: str, home: Path, url: str) -> str:
    command = [sys.executable, "-c", "from graphcache_runtime.vendor.commands import vendor; vendor()", action]
    variables = environment(XDG_CACHE_HOME=str(home), GRAPHCACHE_URL=url)
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout


def files(home: Path) -> dict[str, tuple[str, int]]:
    """Digest and time of the last change of every file of the vendor's cache."""
    found = sorted((home / "furiosa" / "compiler").rglob("*.*"))
    return {
        f"{path.parent.name}/{path.name}": (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in found
        if path.is_file()
    }


def test_a_second_home_compiles_nothing(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    service = RunningService(tmp_path / "service")
    try:
        compiled = run_program(first)
        assert "entries pushed" in vendor("push", first, service.url)
        assert "entries pulled" in vendor("pull", second, service.url)
    finally:
        service.stop()
    pulled = files(second)
    assert pulled
    # Without its second compiler and the cross compiler on PATH, the vendor could not compile at all.
    assert run_program(second, PATH=str(tmp_path)) == compiled
    assert {name: files(second)[name] for name in pulled} == pulled
    assert {name.partition("/")[0] for name in files(second)} == {name.partition("/")[0] for name in pulled}
