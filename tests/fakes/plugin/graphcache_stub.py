"""A toolchain as a plug-in: found by its entry point when this folder is on the path. It behaves as its key says."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from graphcache_runtime.experts import GRAPH_OPTIONS, graph_definition
from graphcache_runtime.toolchains.base import CompiledGraph, CompileRejected, LoadFailed, check_inputs
from graphcache_runtime.toolchains.interface import interface_of

VERSION = "stub-1.0"
HOG_BYTES = 1 << 30


class StubGraph:
    """PyTorch's own result; ``wrong`` adds one to it."""

    device = torch.device("cpu")

    def __init__(self, key, weights=None):
        self._interface = interface_of(key)
        self._module = graph_definition(key, *(weights or ())).module
        self._behave = key.options.get("behave", "well")

    def __call__(self, *inputs):
        want = self._interface
        check_inputs(inputs, want.input_shapes, want.input_names, want.dtype)
        with torch.no_grad():
            outputs = self._module(*(tensor.detach().contiguous() for tensor in inputs))
        whole = (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)
        return tuple(output + 1 for output in whole) if self._behave == "wrong" else whole


class StubToolchain:
    name = "stub"
    prefix = "stub-"

    def missing(self):
        return []

    def missing_to_load(self, version=None):
        return [] if version in (None, VERSION) else [f"compiled by {version}; here is {VERSION}"]

    def version(self):
        return VERSION

    def runs_on(self):
        return "host CPU"

    def compile(self, key, folder, report, weights=None):
        if unknown := sorted(key.options.keys() - GRAPH_OPTIONS - {"behave", "flags"}):
            raise CompileRejected(f"stub has no option {', '.join(unknown)}")
        print(f"stub compiler at work, threads {os.environ.get('OMP_NUM_THREADS')}", flush=True)
        report("lower", 0.25)
        report("compile", 0.5)
        self._misbehave(key.options.get("behave", "well"), folder)
        path = folder / "graph.stub"
        torch.save({"key": key.canonical(), "weights": [weights.gate_up, weights.down] if weights else None}, path)
        return CompiledGraph(path, {"made_by": "stub"})

    def load(self, path, key):
        try:
            held = torch.load(path, weights_only=True)
        except Exception as error:
            raise LoadFailed(f"{key.label()}: {error}") from error
        if held["key"] != key.canonical():
            raise LoadFailed(f"{path} holds another graph than {key.label()}")
        return StubGraph(key, held["weights"])

    def _misbehave(self, behave: str, folder: Path) -> None:
        if behave == "reject":
            raise CompileRejected("no tactic found for this graph")
        if behave == "raise":
            raise RuntimeError("an error of the compiler itself")
        if behave == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if behave == "vanish":
            os._exit(3)
        if behave == "hog":
            # Not torch.zeros: its pages would take no memory until written.
            self._held = torch.ones(HOG_BYTES, dtype=torch.uint8)
            time.sleep(600)
        if behave == "no-memory":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        if behave == "hang":
            started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            marker = os.environ.get("STUB_PIDS") or str(folder.parent / "pids")
            Path(marker).write_text(f"{os.getpid()} {started.pid}")
            time.sleep(600)
