"""The promises that every toolchain keeps, as tests to subclass. Needs pytest; nothing at run time imports it.

    from graphcache_runtime.toolchains.contract import ToolchainContract

    class TestMyToolchain(ToolchainContract):
        toolchain_name = "mine"        # as its entry point is named

Each kind of graph is compiled once and kept on disk, also between the processes of pytest-xdist.
"""

import fcntl
import os
from pathlib import Path
from typing import Any, ClassVar, Final, get_args

import pytest
import torch
from pydantic import TypeAdapter

from graphcache_runtime.compiling.check import check_graph
from graphcache_runtime.experts import MODULES
from graphcache_runtime.toolchains.base import CompileRejected, LoadedGraph, LoadFailed, Toolchain, Weights
from graphcache_runtime.toolchains.interface import interface_of
from graphcache_runtime.toolchains.registry import toolchain_named, toolchain_of
from graphcache_wire import GraphKey, Kind
from graphcache_wire.base import ToolchainVersion
from graphcache_wire.lease import Phase

DONE: Final = "done"
SEED: Final = 7


def small_weights(key: GraphKey) -> Weights:
    """The weights of a baked key of these tests: always the same."""
    generator = torch.Generator().manual_seed(SEED)
    gate_up = torch.randn(key.e_hot, 2 * key.f, key.h, generator=generator) * key.h**-0.5
    down = torch.randn(key.e_hot, key.h, key.f, generator=generator) * key.f**-0.5
    return Weights(gate_up.to(torch.bfloat16), down.to(torch.bfloat16))


class CompiledOnce:
    """Compiles a key at its first use, whichever process asks first, and finds it afterwards."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, toolchain: Toolchain, key: GraphKey) -> Path:
        folder = self._root / key.digest
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = folder / DONE
            if not done.exists():
                done.write_text(str(self._compile(toolchain, key, folder)))
            return Path(done.read_text())

    def phases(self, key: GraphKey) -> list[str]:
        """The phases that the compile of ``key`` reported, in order."""
        return (self._root / key.digest / "phases").read_text().split()

    def _compile(self, toolchain: Toolchain, key: GraphKey, folder: Path) -> Path:
        (folder / "work").mkdir()
        phases: list[str] = []
        weights = small_weights(key) if key.mode == "baked" else None
        compiled = toolchain.compile(key, folder / "work", lambda phase, _: phases.append(phase), weights)
        (folder / "phases").write_text("\n".join(phases))
        return compiled.path


class ToolchainContract:
    """Subclass it with the name of a registered toolchain; pytest collects the subclass.

    ``options`` are added to every key. ``dtypes`` are those that its graphs are tested in: forward in the first,
    the backwards in the last.
    """

    toolchain_name: ClassVar[str]
    options: ClassVar[dict[str, str]] = {}
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp32")

    @pytest.fixture
    def toolchain(self) -> Toolchain:
        return toolchain_named(self.toolchain_name)

    @pytest.fixture
    def compiles(self, tmp_path_factory: pytest.TempPathFactory) -> CompiledOnce:
        base = tmp_path_factory.getbasetemp()
        shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
        return CompiledOnce(shared / f"compiled-by-{self.toolchain_name}")

    def key(self, toolchain: Toolchain, kind: Kind = Kind.EXPERTS_FORWARD, **more: str) -> GraphKey:
        dtype = self.dtypes[0] if kind is Kind.EXPERTS_FORWARD else self.dtypes[-1]
        options = self.options | {"dtype": dtype} | more
        return GraphKey(kind=kind, e_hot=2, h=64, f=32, bucket=8, toolchain=toolchain.version(), options=options)

    def forward(self, toolchain: Toolchain, compiles: CompiledOnce) -> tuple[GraphKey, LoadedGraph, Any]:
        key = self.key(toolchain)
        loaded = toolchain.load(compiles.path(toolchain, key), key)
        generator = torch.Generator().manual_seed(SEED)
        shapes = interface_of(key)
        inputs = [torch.randn(shape, generator=generator).to(shapes.dtype) for shape in shapes.input_shapes]
        return key, loaded, [tensor.to(loaded.device) for tensor in inputs]

    def test_it_can_compile_here_and_its_version_finds_it(self, toolchain: Toolchain) -> None:
        assert toolchain.missing() == []
        version = toolchain.version()
        assert TypeAdapter(ToolchainVersion).validate_python(version) == version == toolchain.version()
        assert type(toolchain_of(version)) is type(toolchain)
        assert toolchain.name == self.toolchain_name

    def test_it_loads_its_own_version_here_and_says_why_no_other(self, toolchain: Toolchain) -> None:
        assert toolchain.missing_to_load() == []
        assert toolchain.missing_to_load(toolchain.version()) == []
        assert "0.0.1" in toolchain.missing_to_load(f"{toolchain.prefix}0.0.1")[0]

    @pytest.mark.parametrize(("kind", "keeps"), list(MODULES))
    def test_a_graph_of_every_kind_agrees_with_pytorch(
        self, toolchain: Toolchain, compiles: CompiledOnce, kind: Kind, keeps: bool
    ) -> None:
        key = self.key(toolchain, kind, **({"keep": "gate_up"} if keeps else {}))
        checked = check_graph(toolchain.load(compiles.path(toolchain, key), key), key, SEED)
        assert checked.rms_error <= checked.rms_bound
        assert checked.max_error <= checked.max_bound

    def test_a_baked_graph_takes_rows_alone_and_agrees_with_pytorch(
        self, toolchain: Toolchain, compiles: CompiledOnce
    ) -> None:
        key = self.key(toolchain, mode="baked", weights="0" * 64)
        loaded = toolchain.load(compiles.path(toolchain, key), key)
        assert check_graph(loaded, key, SEED, small_weights(key)).max_error > 0

    def test_a_compile_reports_known_phases_and_stays_in_its_folder(
        self, toolchain: Toolchain, compiles: CompiledOnce
    ) -> None:
        key = self.key(toolchain)
        path = compiles.path(toolchain, key)
        assert path.is_file()
        assert path.parent.name == "work"
        assert compiles.phases(key)
        assert set(compiles.phases(key)) <= set(get_args(Phase))

    def test_the_same_inputs_give_the_same_bits_and_no_gradient_is_recorded(
        self, toolchain: Toolchain, compiles: CompiledOnce
    ) -> None:
        _, loaded, inputs = self.forward(toolchain, compiles)
        first, second = loaded(*inputs)[0], loaded(*[tensor.requires_grad_() for tensor in inputs])[0]
        assert torch.equal(first, second)
        assert not second.requires_grad

    def test_strided_inputs_give_the_same_bits(self, toolchain: Toolchain, compiles: CompiledOnce) -> None:
        _, loaded, inputs = self.forward(toolchain, compiles)
        strided = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in inputs]
        assert torch.equal(loaded(*inputs)[0], loaded(*strided)[0])

    def test_nan_in_one_row_stays_in_that_row(self, toolchain: Toolchain, compiles: CompiledOnce) -> None:
        _, loaded, (x, *weights) = self.forward(toolchain, compiles)
        whole = loaded(x, *weights)[0].cpu()
        spoiled = x.clone()
        spoiled[0, 3, 5] = float("nan")
        y = loaded(spoiled, *weights)[0].cpu()
        assert y[0, 3].isnan().all()
        y[0, 3] = whole[0, 3]
        assert torch.equal(y, whole)

    def test_inputs_of_another_shape_dtype_or_number_are_refused(
        self, toolchain: Toolchain, compiles: CompiledOnce
    ) -> None:
        _, loaded, (x, gate_up, down) = self.forward(toolchain, compiles)
        with pytest.raises(ValueError, match="input x has shape"):
            loaded(x[:, :4], gate_up, down)
        with pytest.raises(ValueError, match=r"input down is torch\.float64"):
            loaded(x, gate_up, down.double())
        with pytest.raises(ValueError, match="takes 3 inputs"):
            loaded(x, gate_up)

    def test_an_unknown_option_is_refused_by_name(self, toolchain: Toolchain, tmp_path: Path) -> None:
        key = self.key(toolchain, no_such_option="1")
        with pytest.raises(CompileRejected, match="no_such_option"):
            toolchain.compile(key, tmp_path, lambda phase, progress: None)

    def test_bytes_that_are_no_graph_are_refused(
        self, toolchain: Toolchain, compiles: CompiledOnce, tmp_path: Path
    ) -> None:
        key = self.key(toolchain)
        whole = compiles.path(toolchain, key).read_bytes()
        for name, data in {"empty": b"", "noise": b"\x7fELF" * 64, "cut": whole[: len(whole) // 2]}.items():
            (tmp_path / name).write_bytes(data)
            with pytest.raises(LoadFailed):
                toolchain.load(tmp_path / name, key)

    def test_the_graph_of_another_key_or_version_is_refused(self, toolchain: Toolchain, compiles: CompiledOnce) -> None:
        key = self.key(toolchain)
        path = compiles.path(toolchain, key)
        other_kind = self.key(toolchain, Kind.EXPERTS_BACKWARD_LORA)
        other_version = GraphKey.model_validate(key.model_dump() | {"toolchain": f"{toolchain.prefix}0.0.1"})
        for other in (other_kind, other_version):
            with pytest.raises(LoadFailed):
                toolchain.load(path, other)
