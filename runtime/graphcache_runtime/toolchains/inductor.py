"""inductor: PyTorch's own ahead-of-time compiler for the host CPU, through g++. The embedded default.

Its private names (``torch._inductor``) stay in this file.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Set
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import torch

from graphcache_runtime.toolchains.base import (
    CompiledGraph,
    CompileRejected,
    LoadedGraph,
    LoadFailed,
    ReportPhase,
    Weights,
    check_complete,
    check_options,
)
from graphcache_runtime.toolchains.cpu import LEVELS, cpu_features, lacking
from graphcache_runtime.toolchains.interface import HostGraph, definition_of
from graphcache_wire import GraphKey

CPU_LEVEL: Final = "x86-64-v3"
"""What the generated code may use. A fixed level, not the compiling machine's own: all nodes of a mixed cluster then
share one graph. The matrix products are library calls, which choose AVX-512 or AMX by themselves where they run."""

BF16_LEVEL: Final = "x86-64-v4-bf16"
"""Of CPUs with bf16 arithmetic: the same code, but its products stay in bf16. See ``InFp32``."""

REVISION: Final = 4
"""Of the settings and the lowering in this file. Raise it with every change that gives other bytes for the same key."""

SETTINGS: Final[dict[str, Any]] = {
    "cpp.march": CPU_LEVEL,
    "cpp.simdlen": 256,
    # The features were looked up; the probe of each instruction set costs another run of g++.
    "cpp.vec_isa_ok": True,
    # The compiling machine's number of cores must not be in the code.
    "cpp.dynamic_threads": True,
    # CPU seconds of g++ for one forward graph: 20 without, 37 with a header that must be made first (13 when it is
    # there). Each compile has a folder of its own, so it would be made each time.
    "aot_inductor.precompile_headers": False,
    # The wrapper only calls kernels: -O0 takes 10 of its 12 CPU seconds, and the calls cost the same.
    "aot_inductor.compile_wrapper_opt_level": "O0",
    # Debug lines would put the paths of the compiling machine into the bytes (and treble their number).
    "aot_inductor.enable_line_tables": False,
    # Generated names hold a hash of paths otherwise, and stand in the bytes.
    "aot_inductor.model_name_for_generated_files": "graph",
}

TRIED_TORCH: Final = "2.13"
"""The version that these settings were tried with. 2.10 lacks one."""

KEY_ENTRY: Final = "graph/extra/graphcache-key.json"
"""PyTorch's package format leaves the folder extra to whoever writes one."""

_VERSION = re.compile(
    r"inductor-(?P<torch>.+)\.(?P<cxx>(?:gcc|clang)[0-9.]+)\.(?P<level>x86-64-v[0-9](?:-bf16)?)\.r[0-9]+"
)


class InFp32(torch.nn.Module):
    """The same graph with its products in fp32 between bf16 inputs and outputs: what inductor is given.

    Without bf16 arithmetic torch's bf16 products are slow, and ``[B, 2F] @ [2F, H]`` of a backward a hundredfold so:
    the backward of 32 experts, H 2048, F 768, 32 rows took 1.0 s like this and would take 40 s in bf16 (AVX2). With it
    they are fast, and the conversion is not: gate_up's product of those experts, 128 rows, takes 60 ms in bf16, 273 in
    fp32, and 286 more to convert the weights (Zen 5). A graph is the same wherever it runs, so the level is in the key.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        outputs = self.module(*(tensor.float() for tensor in inputs))
        if isinstance(outputs, torch.Tensor):
            return outputs.to(inputs[0].dtype)
        return tuple(output.to(inputs[0].dtype) for output in outputs)


class InductorToolchain:
    """AOTInductor for x86-64 CPUs of level v3 (AVX2, FMA) and above."""

    name = "inductor"
    prefix = "inductor-"

    def __init__(self, features: Set[str] | None = None) -> None:
        self._features = cpu_features() if features is None else features

    def missing(self) -> list[str]:
        reasons = self.missing_to_load()
        if shutil.which(_cxx()) is None:
            reasons.append(f"no C++ compiler {_cxx()!r} on PATH: install g++ (Debian: apt-get install g++), or set CXX")
        if unknown := _unknown_settings():
            reasons.append(
                f"inductor of torch {torch.__version__} has no {', '.join(unknown)}: install torch {TRIED_TORCH}"
            )
        return reasons

    def missing_to_load(self, version: str | None = None) -> list[str]:
        if version is None:
            return self._lacking(CPU_LEVEL)
        made_by = _VERSION.fullmatch(version)
        if made_by is None or made_by["level"] not in LEVELS:
            return [f"{version} is no version of inductor that is known here"]
        reasons = self._lacking(made_by["level"])
        if made_by["torch"] != torch.__version__:
            reasons.append(f"compiled for torch {made_by['torch']}; here is {torch.__version__}")
        return reasons

    def _lacking(self, level: str) -> list[str]:
        lacks = lacking(level, self._features)
        return [f"this CPU lacks {', '.join(lacks)}, which level {level} needs"] if lacks else []

    def version(self) -> str:
        check_complete(self)
        return f"{self.prefix}{torch.__version__}.{_cxx_version(_cxx())}.{self.level()}.r{REVISION}"

    def level(self) -> str:
        """What graphs that are compiled here need of a CPU."""
        return CPU_LEVEL if lacking(BF16_LEVEL, self._features) else BF16_LEVEL

    def runs_on(self) -> str:
        return "host CPU"

    def compile(
        self, key: GraphKey, folder: Path, report: ReportPhase, weights: Weights | None = None
    ) -> CompiledGraph:
        check_options(self, key)
        check_complete(self)
        definition = definition_of(key, weights)
        report("export", None)
        in_fp32 = definition.dtype is torch.bfloat16 and self.level() == CPU_LEVEL
        module = InFp32(definition.module) if in_fp32 else definition.module
        program = torch.export.export(module, definition.example_inputs(), strict=False)
        report("compile", None)
        compiled = folder / "graph.pt2"
        _write_graph(_packaged(program, folder), compiled, key)
        return CompiledGraph(compiled, {"cpu_level": self.level()})

    def load(self, path: Path, key: GraphKey) -> LoadedGraph:
        if reasons := self.missing_to_load(key.toolchain):
            raise LoadFailed(f"{key.label()}: {'; '.join(reasons)}")
        try:
            _check_holds(path, key)
            model = _loaded(path)
        except (RuntimeError, ValueError, OSError, KeyError, zipfile.BadZipFile) as error:
            raise LoadFailed(f"{key.label()}: {path} is no AOTInductor package that loads here: {error}") from error
        return HostGraph(model, key)


def _unknown_settings() -> list[str]:
    from torch._inductor import config

    return [name for name in SETTINGS if name not in config.get_config_copy()]


def _cxx() -> str:
    return os.environ.get("CXX", "g++")


@lru_cache(maxsize=4)
def _cxx_version(cxx: str) -> str:
    """``gcc12.2.0`` or ``clang16.0.6``."""
    said = subprocess.run([cxx, "--version"], capture_output=True, text=True, check=True).stdout
    dumped = subprocess.run([cxx, "-dumpfullversion", "-dumpversion"], capture_output=True, text=True, check=True)
    return f"{'clang' if 'clang' in said else 'gcc'}{dumped.stdout.split()[0]}"


def _packaged(program: torch.export.ExportedProgram, folder: Path) -> Path:
    """Run AOTInductor with its caches and temporary files inside ``folder``.

    Raises:
        CompileRejected: with the compiler's message.
        MemoryError: g++ ran out of memory, or was killed for it.
    """
    from torch._inductor import exc

    (folder / "inductor").mkdir()
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    settings = SETTINGS | {"cpp.cxx": (None, str(_reproducible_cxx(folder)))}
    try:
        with patch.dict(os.environ, environment):
            package = folder / "whole.pt2"
            torch._inductor.aoti_compile_and_package(program, package_path=str(package), inductor_configs=settings)
            return package
    except exc.CppCompileError as error:
        if re.search(r"Killed signal|out of memory|memory exhausted", str(error)):
            raise MemoryError(f"the C++ compiler had too little memory: {str(error)[-500:]}") from error
        raise CompileRejected(f"the C++ compiler refused the generated code: {error}") from error
    except (exc.LoweringException, exc.InductorError) as error:
        raise CompileRejected(f"inductor refused the graph: {error}") from error


def _reproducible_cxx(folder: Path) -> Path:
    """The C++ compiler behind a script that keeps this machine's paths out of the bytes: same key, same bytes."""
    script = folder / "cxx"
    include = Path(torch.__file__).parent
    script.write_text(
        f"#!/bin/sh\nexec {shlex.quote(_cxx())} -ffile-prefix-map={shlex.quote(str(folder))}=graph "
        f'-ffile-prefix-map={shlex.quote(str(include))}=torch -s "$@"\n'
    )
    script.chmod(0o700)
    return script


def _write_graph(package: Path, into: Path, key: GraphKey) -> None:
    """The package with its key, and without sources: they hold paths, and nobody runs them."""
    with zipfile.ZipFile(package) as whole, zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as kept:
        for entry in whole.infolist():
            name = entry.filename.partition("/")[2]
            if not name.endswith(".cpp") and name != ".data/serialization_id":
                kept.writestr(zipfile.ZipInfo(f"graph/{name}"), whole.read(entry), zipfile.ZIP_DEFLATED)
        kept.writestr(zipfile.ZipInfo(KEY_ENTRY), key.canonical(), zipfile.ZIP_DEFLATED)


def _check_holds(path: Path, key: GraphKey) -> None:
    with zipfile.ZipFile(path) as graph:
        held = graph.read(KEY_ENTRY).decode("ascii", errors="replace")
    if held != key.canonical():
        raise LoadFailed(f"{path} does not hold the graph of {key.label()}, but of {held}")


def _loaded(path: Path) -> Any:
    """The loader insists on the suffix .pt2, and stores name files by their digest: give it a link."""
    with tempfile.TemporaryDirectory(prefix="graphcache-load-") as folder:
        link = Path(folder) / "graph.pt2"
        link.symlink_to(path.resolve())
        return torch._inductor.aoti_load_package(str(link))
