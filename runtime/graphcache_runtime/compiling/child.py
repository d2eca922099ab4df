"""One compile in a process of its own: ``python -m graphcache_runtime.compiling.child SPEC``.

Started by ``compiling.run``, which hands it a folder and reads its phases from a pipe. It writes ``result.json`` into
the folder; where that is missing, the process died. Its standard input is a pipe on which nothing is ever written: it
ends when the starter does, however that dies.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from graphcache_wire import FailureClass, GraphKey
from graphcache_wire.lease import Phase

RESULT: Final = "result.json"
WORK: Final = "work"
SHELL: Final = "/bin/sh"
KILL_AT_END_OF_INPUT: Final = "read -r _; kill -KILL 0"
"""Waits until standard input ends, then kills its own group. Not a thread of the compile: a compiler may keep the
interpreter's lock for minutes, and what it started (g++) would outlive it. Not a fork of it: 1 MB instead of 20."""

ReportPhase = Callable[[Phase, float | None], None]


@dataclass(frozen=True, slots=True)
class CompileSpec:
    """What the child is told. ``weights``: a file of tensors gate_up and down, for baked mode."""

    toolchain: str
    key: GraphKey
    folder: Path
    events_descriptor: int
    check_seed: int
    weights: Path | None = None

    def to_json(self) -> str:
        return json.dumps(
            {
                "toolchain": self.toolchain,
                "key": self.key.model_dump(mode="json"),
                "folder": str(self.folder),
                "events_descriptor": self.events_descriptor,
                "check_seed": self.check_seed,
                "weights": str(self.weights) if self.weights else None,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "CompileSpec":
        said = json.loads(text)
        return cls(
            toolchain=said["toolchain"],
            key=GraphKey.model_validate(said["key"]),
            folder=Path(said["folder"]),
            events_descriptor=said["events_descriptor"],
            check_seed=said["check_seed"],
            weights=Path(said["weights"]) if said["weights"] else None,
        )


def main(spec_path: str) -> int:
    spec = CompileSpec.from_json(Path(spec_path).read_text())
    os.set_inheritable(spec.events_descriptor, False)
    _die_with_the_starter()
    with os.fdopen(spec.events_descriptor, "w", buffering=1) as events:

        def report(phase: Phase, progress: float | None) -> None:
            events.write(json.dumps({"phase": phase, "progress": progress}) + "\n")

        result = compile_and_check(spec, report)
    unfinished = spec.folder / f"{RESULT}.part"
    unfinished.write_text(json.dumps(result))
    unfinished.rename(spec.folder / RESULT)
    return 0 if result["failure_class"] is None else 1


def compile_and_check(spec: CompileSpec, report: ReportPhase) -> dict[str, Any]:
    """The result as ``result.json`` holds it; ``failure_class`` is null for a good graph."""
    try:
        return _compile_and_check(spec, report)
    # The one place that must turn whatever a compiler raises into a class; the traceback goes to the log.
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        return {"failure_class": _failure_class(error), "message": f"{type(error).__name__}: {error}"[:4_000]}


def _compile_and_check(spec: CompileSpec, report: ReportPhase) -> dict[str, Any]:
    from graphcache_runtime.compiling.check import check_graph
    from graphcache_runtime.toolchains.base import ToolchainUnavailable
    from graphcache_runtime.toolchains.registry import toolchain_named

    toolchain = toolchain_named(spec.toolchain)
    if toolchain.version() != spec.key.toolchain:
        raise ToolchainUnavailable(f"the key asks for {spec.key.toolchain}; here is {toolchain.version()}")
    work = spec.folder / WORK
    work.mkdir()
    weights = _weights(spec)
    began = time.monotonic()
    compiled = toolchain.compile(spec.key, work, report, weights)
    compile_s = time.monotonic() - began
    report("check", None)
    began = time.monotonic()
    checked = check_graph(toolchain.load(compiled.path, spec.key), spec.key, spec.check_seed, weights)
    facts = compiled.facts | {
        "check_s": f"{time.monotonic() - began:.1f}",
        "rms_error": f"{checked.rms_error:.3g}",
        "max_error": f"{checked.max_error:.3g}",
    }
    return {"failure_class": None, "path": str(compiled.path), "compile_s": compile_s, "facts": facts}


def _weights(spec: CompileSpec) -> Any:
    import torch

    from graphcache_runtime.toolchains.base import CompileRejected, Weights

    if spec.weights:
        return Weights(**torch.load(spec.weights, weights_only=True, mmap=True))
    if spec.key.mode == "baked":
        raise CompileRejected(
            "a baked graph is compiled where its weights are: a worker has the key alone. "
            "Compile it in the training process, or use mode inputs."
        )
    return None


def _failure_class(error: BaseException) -> FailureClass:
    from graphcache_runtime.compiling.check import WrongGraph
    from graphcache_runtime.toolchains.base import CompileRejected

    if isinstance(error, CompileRejected | WrongGraph):
        return FailureClass.REJECTED
    said = str(error)
    if isinstance(error, MemoryError) or "can't allocate memory" in said or "OutOfMemory" in type(error).__name__:
        return FailureClass.OUT_OF_MEMORY
    return FailureClass.CRASHED


def _die_with_the_starter() -> None:
    """A compile whose worker was killed must not go on, nor what it started: nobody would read the result.

    Ends with the session: whoever reaps this process kills what is left of it.
    """
    os.posix_spawn(SHELL, [SHELL, "-c", KILL_AT_END_OF_INPUT], os.environ)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
