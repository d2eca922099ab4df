"""All that graphcache uses of furiosa-torch, its private names included. Nothing else imports the vendor's packages.

Versions 2026.4: ``_C.executor.DfgExecutor``, ``export.exported_program.preprocess_exported_program`` and the compiler's
settings are private API there. Imports are inside the functions: one takes 4 s and 600 MB.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import torch

from graphcache_runtime.toolchains.base import CompileRejected, ToolchainUnavailable
from graphcache_runtime.toolchains.pinned_torch import wrong_torch

PACKAGE: Final = "furiosa-torch"
BINARY: Final = "furiosa-tcc"
CROSS_COMPILER: Final = "aarch64-linux-gnu-gcc"
DEVICE: Final = "furiosa:0"
CAUSE: Final = "compile error:"
DRIVER: Final = "librenegade.so"
"""The NPU driver's library. The vendor loads it by this name, and logs an error of its own where it is missing."""

_BOOLEANS: Final = (
    "implicit_type_casting",
    "implicit_type_casting_all_activation",
    "enable_tactic_pruning",
    "reshape_remover_ignores_slice_concat",
    "normalize_sine_cosine_operator_domain",
    "cast_64bit_types",
    "allow_out_of_place_scatter",
    "allow_reduce_by_ve_cluster_chip_reduce",
    "use_attention_kernel",
    "scheduler_beam_search",
    "use_dma_bridges_only",
    "hierarchical_tactic_population",
)
_INTEGERS: Final = (
    "max_num_unique_shapes",
    "local_population_threshold",
    "tensor_unit_bridge_threshold_in_page",
    "expected_total_beam_states",
)
_CHOICES: Final = {"tactic_hint": "TacticHintConfig", "tactic_sorting_policy": "TacticSortingPolicy"}
SETTINGS: Final = frozenset(_BOOLEANS) | frozenset(_INTEGERS) | frozenset(_CHOICES) | {"padding_policy_small"}
"""The compiler's settings that may be options of a key: those of its ``CompilerConfig`` that change the result."""


def missing_pieces() -> list[str]:
    """What keeps the compiler from working here, found without importing it."""
    if not _is_installed(PACKAGE):
        return missing_packages()
    second = f"{BINARY} is neither installed nor on PATH: pip install {BINARY}=={version(PACKAGE)}"
    return missing_packages() + ([] if _binary() else [second]) + _missing_cross_compiler()


def missing_packages() -> list[str]:
    """What keeps its graphs from being loaded here: the package itself, and the torch that it needs."""
    if not _is_installed(PACKAGE):
        return [f"{PACKAGE} is not installed: scripts/rngd_env.sh makes an environment with it (7.3 GB)"]
    mismatch = wrong_torch(PACKAGE)
    return [mismatch] if mismatch else []


@cache
def toolchain_version() -> str:
    """``furiosa-torch-2026.4.0+fc43f6a779``: the package's version and the compiler's revision.

    Raises:
        ToolchainUnavailable: the package is missing or cannot be imported.
    """
    try:
        from furiosa.torch import compiler
    except (ImportError, OSError) as error:
        raise ToolchainUnavailable(f"rngd: {'; '.join(missing_pieces()) or error}") from error
    return f"{PACKAGE}-{version(PACKAGE)}+{compiler.version()}"


def all_versions() -> dict[str, str]:
    """For the record: every version that took part."""
    import furiosa.torch

    return {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "furiosa-torch": furiosa.torch.version(),
        "furiosa-tcc": version(BINARY) if _is_installed(BINARY) else "on PATH",
    }


def lower(program: torch.export.ExportedProgram, settings: Mapping[str, str], vendor_cache: Path) -> Any:
    """The lowered graph (``Dfg``): shapes and layouts are decided; most of the time of a compile goes here.

    Raises:
        CompileRejected: with the compiler's message.
    """
    from furiosa.torch import compiler
    from furiosa.torch.export.exported_program import preprocess_exported_program

    prepared, _ = preprocess_exported_program(program, None)
    return _run(lambda: compiler.lower(prepared, _config(settings)), vendor_cache)


def schedule(lowered: Any, settings: Mapping[str, str], vendor_cache: Path) -> bytes:
    """The serialized ``Runnable`` of a lowered graph.

    Raises:
        CompileRejected: with the compiler's message.
    """
    data: bytes = _run(lambda: lowered.compile(_config(settings)), vendor_cache).serialize()
    return data


def host_executor(lowered: bytes) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
    """Runs a serialized lowered graph on the CPU."""
    from furiosa.torch._C.executor import DfgExecutor
    from furiosa.torch._C.ir import Dfg

    executor = DfgExecutor(Dfg.deserialize(lowered))
    return lambda inputs: list(executor.execute(list(inputs)))


def device_executor(runnable: bytes) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
    """Runs a serialized runnable on the NPU; its inputs and outputs are there."""
    import furiosa.torch
    from furiosa.torch import ir

    module = furiosa.torch.Runnable(ir.Runnable.deserialize(runnable)).to(DEVICE)

    def execute(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        outputs = module(*inputs)
        return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)

    return execute


@cache
def why_no_device() -> str | None:
    """None where an NPU answers; else what it said.

    ``furiosa.torch.is_available()`` says True, and lists 64 devices, where there is none: so a small tensor is moved.
    """
    try:
        ctypes.CDLL(DRIVER)
    except OSError as error:
        return ": ".join(str(error).split(": ")[:2])
    try:
        import furiosa.torch  # noqa: F401  # registers the device

        torch.zeros(1).to(DEVICE)
    # The vendor raises OutOfMemoryError, RuntimeError or a Rust panic, whichever part is missing first.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return None


def _run(step: Callable[[], Any], vendor_cache: Path) -> Any:
    """Run a step of the compiler with its cache in ``vendor_cache`` and its binary on PATH."""
    from furiosa.torch import config, error

    binary = _binary()
    path = os.pathsep.join([*([str(binary.parent)] if binary else []), os.environ.get("PATH", "")])
    try:
        with patch.dict(os.environ, {"PATH": path}), config.cache_context(root_dir=str(vendor_cache)):
            return step()
    except (error.UnsupportedOpError, error.CompileError) as refusal:
        if "No such file or directory (os error 2)" in str(refusal):
            raise ToolchainUnavailable(f"rngd: {'; '.join(missing_pieces()) or refusal}") from refusal
        raise CompileRejected(f"furiosa-torch refused the graph: {_cause(refusal)}") from refusal
    except BaseException as panic:
        # A panic of the vendor's Rust code is no Exception, and would end this process without a result.
        if type(panic).__name__ != "PanicException":
            raise
        raise CompileRejected(f"furiosa-torch gave up on the graph: {panic}") from panic


def _cause(refusal: Exception) -> str:
    """What the vendor says behind some pages of the graph: a message begins with it; the pages stand in the log."""
    return str(refusal).rpartition(CAUSE)[2].strip()


def _config(settings: Mapping[str, str]) -> Any:
    """The vendor's settings object; None for none, which is its default.

    Raises:
        CompileRejected: a text is no value of its setting.
    """
    if not settings:
        return None
    from furiosa.torch import config

    values = {name: _parsed(name, text, config) for name, text in settings.items()}
    try:
        return config.CompilerConfig(**values)
    except (OverflowError, TypeError, ValueError) as error:
        raise CompileRejected(f"rngd: furiosa-torch does not take these settings ({settings}): {error}") from error


def _parsed(name: str, text: str, config: Any) -> Any:
    """Raises CompileRejected: the text is no value of this setting."""
    try:
        if name in _BOOLEANS:
            return {"true": True, "false": False}[text]
        if name in _INTEGERS:
            return int(text)
        if name in _CHOICES:
            return getattr(getattr(config, _CHOICES[name]), text)
        return float(text)
    except (KeyError, ValueError, AttributeError) as error:
        raise CompileRejected(f"rngd: {text!r} is no value of the compiler's setting {name}") from error


def _binary() -> Path | None:
    """The vendor's second compiler: on PATH, beside this Python, or where its package put it."""
    if found := shutil.which(BINARY):
        return Path(found)
    beside = Path(sysconfig.get_path("scripts")) / BINARY
    packaged = (Path(str(file.locate())) for file in _files(BINARY) if file.name == BINARY)
    return next((path.resolve() for path in (beside, *packaged) if path.exists()), None)


def _files(package: str) -> list[Any]:
    return list(distribution(package).files or []) if _is_installed(package) else []


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _missing_cross_compiler() -> list[str]:
    """The vendor compiles C for the NPU's arm64 cores; without it, it says only "os error 2"."""
    if shutil.which(CROSS_COMPILER) is None:
        return [f"{CROSS_COMPILER} is not on PATH: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"]
    command = [CROSS_COMPILER, "-E", "-x", "c", "-"]
    tried = subprocess.run(command, input=b"#include <stdio.h>\n", capture_output=True, check=False)
    missing = "the C headers for arm64 are missing: apt-get install libc6-dev-arm64-cross"
    return [] if tried.returncode == 0 else [missing]
