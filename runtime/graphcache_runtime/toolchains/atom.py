"""atom: Rebellions' compiler (rebel-compiler) for ATOM NPUs, through its public Python API. Never run by this project.

The package is on no public registry, so this adapter follows its documentation alone (RBLN compile API:
``compile_from_torch``, ``RBLNCompiledModel.save``, ``create_runtime``) and keeps to those three calls. A graph runs on
an ATOM and nowhere else: without one, the check after a compile fails, and nothing unchecked is published. It takes and
gives host tensors: the runtime moves them.
"""

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from graphcache_runtime.toolchains.base import (
    CompiledGraph,
    LoadedGraph,
    LoadFailed,
    ReportPhase,
    ToolchainUnavailable,
    Weights,
    check_complete,
    check_options,
)
from graphcache_runtime.toolchains.interface import HostGraph, definition_of, interface_of
from graphcache_wire import GraphKey

PACKAGE: Final = "rebel-compiler"
NOT_INSTALLED: Final = f"{PACKAGE} is not installed: Rebellions gives it to its customers; see their documentation"


class AtomToolchain:
    """rebel-compiler, where it is installed."""

    name = "atom"
    prefix = f"{PACKAGE}-"

    def missing(self) -> list[str]:
        return [] if find_spec("rebel") else [NOT_INSTALLED]

    def missing_to_load(self, version: str | None = None) -> list[str]:
        return self.missing()

    def version(self) -> str:
        try:
            return f"{self.prefix}{version(PACKAGE)}"
        except PackageNotFoundError:
            raise ToolchainUnavailable(f"atom: {NOT_INSTALLED}") from None

    def runs_on(self) -> str:
        return "ATOM (this adapter was never run by its authors)"

    def compile(
        self, key: GraphKey, folder: Path, report: ReportPhase, weights: Weights | None = None
    ) -> CompiledGraph:
        check_options(self, key)
        check_complete(self)
        definition = definition_of(key, weights)
        dtype = {"bf16": "bfloat16", "fp32": "float32"}[key.dtype]
        interface = interface_of(key)
        named_shapes = zip(interface.input_names, interface.input_shapes, strict=True)
        info = [(name, list(shape), dtype) for name, shape in named_shapes]
        report("compile", None)
        compiled = folder / "graph.rbln"
        _rebel().compile_from_torch(definition.module.eval(), input_info=info).save(str(compiled))
        return CompiledGraph(compiled)

    def load(self, path: Path, key: GraphKey) -> LoadedGraph:
        try:
            model = _rebel().RBLNCompiledModel(str(path))
            return HostGraph(model.create_runtime(device=0, tensor_type="pt"), key)
        except (ToolchainUnavailable, RuntimeError, ValueError, OSError) as error:
            raise LoadFailed(f"{key.label()}: {error}") from error


def _rebel() -> Any:
    try:
        import rebel
    except ImportError as error:
        raise ToolchainUnavailable(f"atom: {NOT_INSTALLED}") from error
    return rebel
