"""rngd: FuriosaAI's compiler for the RNGD NPU. Compiles anywhere; runs on an NPU, or without one on the host CPU."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch

from graphcache_runtime.experts import GRAPH_OPTIONS, graph_definition
from graphcache_runtime.toolchains import rngd_vendor as vendor
from graphcache_runtime.toolchains.base import (
    CompiledGraph,
    LoadedGraph,
    LoadFailed,
    ReportPhase,
    ToolchainUnavailable,
    Weights,
    check_complete,
    check_inputs,
    check_options,
)
from graphcache_runtime.toolchains.container import (
    BadContainer,
    Description,
    TensorSpec,
    read_description,
    read_parts,
    write_container,
)
from graphcache_runtime.toolchains.interface import GraphInterface, definition_of, inputs_mode, interface_of
from graphcache_wire import GraphKey
from graphcache_wire.lease import Phase

logger = logging.getLogger(__name__)

RUNNABLE: Final = "runnable"
LOWERED: Final = "lowered"
WEIGHTS: Final = ("gate_up", "down")
Execute = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]


class RngdGraph:
    """A loaded RNGD graph: on the NPU, or its lowered form on the host CPU; ``on_device`` says which.

    The weights of a baked graph travel beside the graph and stay where it runs: the vendor's compiler takes all tensors
    of a program as inputs.
    """

    def __init__(
        self, execute: Execute, interface: GraphInterface, on_device: bool, weights: list[torch.Tensor]
    ) -> None:
        self.on_device = on_device
        self._execute = execute
        self._interface = interface
        self._weights = [tensor.to(self.device) for tensor in weights]

    @property
    def device(self) -> torch.device:
        return torch.device(vendor.DEVICE if self.on_device else "cpu")

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        want = self._interface
        check_inputs(inputs, want.input_shapes, want.input_names, want.dtype)
        outputs = self._execute([*(tensor.detach().contiguous() for tensor in inputs), *self._weights])
        return tuple(
            output.view(want.dtype).reshape(shape) for output, shape in zip(outputs, want.output_shapes, strict=True)
        )


class RngdToolchain:
    """furiosa-torch. Its settings that change the result are options of the key, by the names of its CompilerConfig."""

    name = "rngd"
    prefix = f"{vendor.PACKAGE}-"

    def missing(self) -> list[str]:
        return vendor.missing_pieces()

    def missing_to_load(self, version: str | None = None) -> list[str]:
        reasons = vendor.missing_packages()
        if reasons or version in (None, self.version()):
            return reasons
        return [f"compiled by {version}; here is {self.version()}"]

    def version(self) -> str:
        return vendor.toolchain_version()

    def runs_on(self) -> str:
        reason = vendor.why_no_device()
        return "RNGD" if reason is None else f"host CPU, by its lowered graph: no RNGD answers here ({reason})"

    def compile(
        self, key: GraphKey, folder: Path, report: ReportPhase, weights: Weights | None = None
    ) -> CompiledGraph:
        check_options(self, key, vendor.SETTINGS)
        check_complete(self)
        definition_of(key, weights)  # refuses absent weights and wrong shapes, with the shapes that the key asks for
        settings = _settings(key)
        seconds: dict[str, float] = {}
        with _timed("export", seconds, report):
            definition = graph_definition(inputs_mode(key))
            program = torch.export.export(definition.module, definition.example_inputs(), strict=False)
        with _timed("lower", seconds, report):
            lowered = vendor.lower(program, settings, folder / "vendor")
        with _timed("compile", seconds, report):
            runnable = vendor.schedule(lowered, settings, folder / "vendor")
        parts = {RUNNABLE: runnable, LOWERED: lowered.serialize()} | _baked(key, weights)
        compiled = folder / "graph.rngd"
        write_container(compiled, self._description(key, seconds, settings), parts)
        return CompiledGraph(compiled, {f"{name}_bytes": str(len(data)) for name, data in parts.items()})

    def load(self, path: Path, key: GraphKey) -> LoadedGraph:
        try:
            described = read_description(path)
            if described.key != key:
                raise LoadFailed(f"{path} holds {described.key.label()} ({described.toolchain}), not {key.label()}")
            if reasons := self.missing_to_load(described.toolchain):
                raise LoadFailed(f"{key.label()}: {'; '.join(reasons)}")
            on_device = self._runs_on_device()
            names = [RUNNABLE if on_device else LOWERED, *(WEIGHTS if key.mode == "baked" else ())]
            parts = read_parts(path, names)
            execute = (vendor.device_executor if on_device else vendor.host_executor)(parts[names[0]])
        except (BadContainer, ToolchainUnavailable, RuntimeError, ValueError) as error:
            raise LoadFailed(f"{key.label()}: {error}") from error
        return RngdGraph(execute, interface_of(key), on_device, _unbaked(key, parts))

    def _runs_on_device(self) -> bool:
        reason = vendor.why_no_device()
        if reason is not None:
            logger.info("no RNGD answers here (%s): its graphs run on the host CPU, in their lowered form", reason)
        return reason is None

    def _description(self, key: GraphKey, seconds: dict[str, float], settings: dict[str, str]) -> Description:
        interface = interface_of(key)
        return Description(
            key=key,
            toolchain=self.version(),
            inputs=_specs(interface.input_names, interface.input_shapes, key.dtype),
            outputs=_specs(interface.output_names, interface.output_shapes, key.dtype),
            parts={},
            seconds=seconds,
            versions=vendor.all_versions(),
            settings=settings,
        )


def _settings(key: GraphKey) -> dict[str, str]:
    """The compiler's settings: the key's options, and what its dtype asks for where they say nothing.

    By default the compiler casts fp32 products to bf16 (errors of 0.4 %, measured): a key of fp32 means fp32.
    """
    exact = {"implicit_type_casting": "false"} if key.dtype == "fp32" else {}
    return exact | {name: value for name, value in key.options.items() if name not in GRAPH_OPTIONS}


@contextmanager
def _timed(phase: Phase, seconds: dict[str, float], report: ReportPhase) -> Iterator[None]:
    report(phase, None)
    began = time.monotonic()
    yield
    seconds[phase] = round(time.monotonic() - began, 3)


def _specs(names: Sequence[str], shapes: Sequence[tuple[int, ...]], dtype: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=name, shape=shape, dtype=dtype) for name, shape in zip(names, shapes, strict=True))


def _baked(key: GraphKey, weights: Weights | None) -> dict[str, bytes]:
    if key.mode != "baked" or weights is None:
        return {}
    dtype = interface_of(key).dtype
    tensors = (weights.gate_up, weights.down)
    return {
        name: tensor.detach().to("cpu", dtype).contiguous().view(torch.uint8).numpy().tobytes()
        for name, tensor in zip(WEIGHTS, tensors, strict=True)
    }


def _unbaked(key: GraphKey, parts: dict[str, bytes]) -> list[torch.Tensor]:
    if key.mode != "baked":
        return []
    whole = interface_of(inputs_mode(key))
    shapes = dict(zip(whole.input_names, whole.input_shapes, strict=True))
    return [torch.frombuffer(bytearray(parts[name]), dtype=whole.dtype).reshape(shapes[name]) for name in WEIGHTS]
