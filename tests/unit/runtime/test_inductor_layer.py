"""A layer on graphs that PyTorch's own compiler made."""

from dataclasses import fields
from pathlib import Path

from fakes.dense_reference import error, problem, reference
from fakes.moe_layers import layer_for, run

from graphcache_runtime.toolchains.base import LoadedGraph
from graphcache_runtime.toolchains.inductor import InductorToolchain
from graphcache_wire import GraphKey


def test_a_step_on_compiled_graphs_agrees_with_the_oracle(tmp_path: Path) -> None:
    toolchain = InductorToolchain()

    def load(key: GraphKey) -> LoadedGraph:
        folder = tmp_path / key.digest
        folder.mkdir()
        return toolchain.load(toolchain.compile(key, folder, lambda phase, progress: None).path, key)

    p = problem(12, h=16, f=8)
    layer = layer_for(p, (0, 1, 2), graphs=load, version=toolchain.version())
    got, want = run(layer, p), reference(p)
    assert layer.stats.forward_calls == layer.stats.backward_calls == 1
    for field in fields(want):
        assert error(getattr(got, field.name), getattr(want, field.name)) <= 1e-5, field.name
