"""Toolchain: the adapter of one compiler. It names its exact version, compiles from a key, loads, and runs."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from graphcache_runtime.experts import GRAPH_OPTIONS
from graphcache_wire import GraphKey
from graphcache_wire.lease import Phase

ReportPhase = Callable[[Phase, float | None], None]
"""Called with what the compile does now and the progress from 0 to 1, or None where it is unknown."""


class ToolchainError(Exception):
    """A toolchain could not do what was asked; the message says what is missing and how to get it."""


class ToolchainUnavailable(ToolchainError):
    """The compiler, or a part of it, is not installed here."""


class CompileRejected(ToolchainError):
    """The compiler's own refusal of the graph: trying again gives the same answer."""


class LoadFailed(ToolchainError):
    """The bytes are whole but no graph that this machine can run."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights that become constants of a baked graph: ``gate_up[E, 2F, H]``, ``down[E, H, F]``."""

    gate_up: torch.Tensor
    down: torch.Tensor


@runtime_checkable
class LoadedGraph(Protocol):
    """A graph that is ready to run on its device."""

    @property
    def device(self) -> torch.device:
        """Where its inputs must be and its outputs will be."""
        ...

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run once. Inputs are those of the key's kind, in order; one tuple entry an output."""
        ...


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """What a compile gave: a file inside its work folder, and facts for the record."""

    path: Path
    facts: dict[str, str] = field(default_factory=dict)


class Toolchain(Protocol):
    """One compiler.

    A toolchain is made without arguments, and making it must not import the compiler: that happens in the methods, so
    that listing the toolchains of a machine is cheap.
    """

    name: str
    """The name of its ladder and of its entry point, such as ``rngd``."""
    prefix: str
    """How all of its version strings begin, such as ``furiosa-torch-``: a version finds its toolchain by it."""

    def missing(self) -> list[str]:
        """What keeps it from compiling here, one sentence each with how to install it; empty when it can."""
        ...

    def missing_to_load(self, version: str | None = None) -> list[str]:
        """What keeps graphs of this version, or of any, from being loaded here; empty when they load.

        Loading asks for less than compiling: a training node may have no compiler.
        """
        ...

    def version(self) -> str:
        """The string of ``GraphKey.toolchain``: everything about the compiler and its target that changes the bytes.

        Raises:
            ToolchainUnavailable: the compiler is not installed here.
        """
        ...

    def runs_on(self) -> str:
        """Where its graphs run on this machine, for people: ``host CPU``, ``RNGD npu:0``."""
        ...

    def compile(
        self, key: GraphKey, folder: Path, report: ReportPhase, weights: Weights | None = None
    ) -> CompiledGraph:
        """Compile the graph of ``key`` inside ``folder``, which is empty and this compile's own.

        Args:
            weights: the constants of a baked graph; None in inputs mode.

        Raises:
            CompileRejected: the compiler refused the graph.
            ToolchainUnavailable: the compiler is not installed here.
        """
        ...

    def load(self, path: Path, key: GraphKey) -> LoadedGraph:
        """Load a compiled graph whose digest and signature were checked before.

        Raises:
            LoadFailed: the file holds no graph for this machine, or not the graph of ``key``.
        """
        ...


def check_inputs(
    inputs: Sequence[torch.Tensor], expected: Sequence[tuple[int, ...]], names: Sequence[str], dtype: torch.dtype
) -> None:
    """Refuse inputs of another number, shape or dtype than the graph was compiled for: no compiled code checks them.

    Raises:
        ValueError: names the input, what it is and what is expected.
    """
    if len(inputs) != len(expected):
        raise ValueError(f"the graph takes {len(expected)} inputs ({', '.join(names)}), not {len(inputs)}")
    for tensor, shape, name in zip(inputs, expected, names, strict=True):
        if tuple(tensor.shape) != shape:
            raise ValueError(f"input {name} has shape {tuple(tensor.shape)}; the graph was compiled for {shape}")
        if tensor.dtype != dtype:
            raise ValueError(f"input {name} is {tensor.dtype}; the graph was compiled for {dtype}")


def check_complete(toolchain: Toolchain) -> None:
    """Raise ToolchainUnavailable with every piece that keeps it from compiling here."""
    if reasons := toolchain.missing():
        raise ToolchainUnavailable(f"{toolchain.name} cannot compile here: {'; '.join(reasons)}")


def check_options(toolchain: Toolchain, key: GraphKey, settings: Set[str] = frozenset()) -> None:
    """Refuse a key with options that are neither the graph's nor settings of this compiler.

    Raises:
        CompileRejected: names them, and the settings that there are.
    """
    if unknown := sorted(key.options.keys() - GRAPH_OPTIONS - settings):
        known = f"; its settings are {', '.join(sorted(settings))}" if settings else ""
        raise CompileRejected(f"{toolchain.name} has no option {', '.join(unknown)}{known}")
