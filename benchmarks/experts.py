"""What the experts of one layer cost on this machine, beside transformers' own implementations and the machine's floor.

Experts of Qwen3-30B-A3B's size (H 2048, F 768), 8 of 128 a token, routed by Zipf's law: the 32 busiest (hot) through
compiled inductor graphs and through the host kernel, the 96 others (cold) through the host kernel. One thread; CPU time
of the fastest of three runs. The floor is the larger of FLOPs over the fastest product of this CPU and bytes over the
speed of reading, weights read once a pass and weight gradients written once.

    python benchmarks/experts.py [--tokens 128 512] [--dtypes bf16 fp32] [--no-graphs] [--limit-s 60] [--json]

Graphs are compiled once into --graphs (a minute each). A baseline that would take longer than --limit-s is left out.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from graphcache_runtime.autograd import backward_kind, run_layer
from graphcache_runtime.calls import Chooser
from graphcache_runtime.experts import DTYPES
from graphcache_runtime.graph_table import GraphTable
from graphcache_runtime.host.arena import Arena
from graphcache_runtime.keys import ExpertKeys
from graphcache_runtime.ladder import LADDERS
from graphcache_runtime.layer import HotLayer
from graphcache_runtime.planning.costs import RNGD
from graphcache_runtime.planning.measured import CostMeter
from graphcache_runtime.shared import Shared
from graphcache_runtime.toolchains.base import LoadedGraph
from graphcache_runtime.toolchains.inductor import InductorToolchain
from graphcache_runtime.weights.uploader import Uploader
from graphcache_wire import GraphKey

H, F, EXPERTS, TOP_K, HOT = 2048, 768, 128, 8, 32
MODES = ("forward", "lora", "full")
PASSES = {"forward": (6, 1), "lora": (12, 2), "full": (18, 3)}
"""FLOPs a row over H F, and how often a weight's bytes are read or written, of each mode."""
EAGER_FULL = 12
"""Eager full fine-tuning writes a gradient of all experts for each expert: 12 to 60 times as long as LoRA."""


@dataclass(frozen=True)
class Row:
    """One figure; times in ms of CPU, None where a baseline was left out."""

    case: str
    path: str
    mode: str
    S: int
    E: int
    dtype: str
    ms: float
    floor_ms: float
    eager_ms: float | None
    grouped_mm_ms: float | None


@dataclass(frozen=True)
class Machine:
    """``peak_gflops``: the fastest product of any dtype. ``read_gb_s``: a sum over memory that no cache holds."""

    peak_gflops: float
    read_gb_s: float

    def floor_ms(self, mode: str, rows: int, experts: int, dtype: torch.dtype) -> float:
        flops, reads = PASSES[mode]
        products_ms = flops * rows * H * F / self.peak_gflops / 1e6
        return max(products_ms, reads * experts * 3 * H * F * dtype.itemsize / self.read_gb_s / 1e6)


@dataclass(frozen=True)
class Case:
    """Experts of a layer, and the rows that ``tokens`` tokens send them, each row as a token of its own."""

    name: str
    tokens: int
    x_RH: Tensor
    index_R1: Tensor
    gate_up: Tensor
    down: Tensor

    @property
    def experts(self) -> int:
        return self.down.shape[0]


def cpu_ms(run: Callable[[], object], limit_s: float) -> float:
    """The fastest of three runs; one run where that took long."""
    times: list[float] = []
    while len(times) < 3 and sum(times) < limit_s / 2:
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times) * 1e3


def measure_machine() -> Machine:
    big, square = torch.ones(32, 1024, 1024), {dtype: torch.ones(512, 512, dtype=dtype) for dtype in DTYPES.values()}
    gflops = max(2 * 512**3 / cpu_ms(lambda a=a: a @ a.t(), 1.0) / 1e6 for a in square.values())
    return Machine(gflops, big.numel() * 4 / cpu_ms(big.sum, 10.0) / 1e6)


def routed(tokens: int) -> Tensor:
    """``[S, K]`` experts, by Zipf's law without repeats (Gumbel's trick); expert 0 is the busiest."""
    generator = torch.Generator().manual_seed(0)
    weight_E = -torch.log(torch.arange(1, EXPERTS + 1).float())
    noise = -torch.log(-torch.log(torch.rand(tokens, EXPERTS, generator=generator)))
    return torch.topk(weight_E + noise, TOP_K).indices


def case_of(name: str, tokens: int, dtype: torch.dtype) -> Case:
    first, end = (0, HOT) if name == "hot" else (HOT, EXPERTS)
    chosen = routed(tokens).flatten()
    mine = chosen[(chosen >= first) & (chosen < end)] - first
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).mul_(shape[-1] ** -0.5).to(dtype)

    experts = end - first
    gate_up, down = normal(experts, 2 * F, H), normal(experts, H, F)
    return Case(name, tokens, normal(mine.numel(), H), mine.view(-1, 1), gate_up, down)


Forward = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``forward(x, gate_up, down)``."""


def transformers_path(implementation: str, case: Case) -> Forward:
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

    sizes = SimpleNamespace(num_experts=0, hidden_size=H, moe_intermediate_size=F, hidden_act="silu")
    module: Any = Qwen3MoeExperts(sizes)
    module.num_experts, sizes._experts_implementation = case.experts, implementation
    ones = torch.ones(case.index_R1.shape, dtype=case.x_RH.dtype)

    def forward(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        module._parameters.update(gate_up_proj=gate_up, down_proj=down)
        out: Tensor = module(x, case.index_R1, ones)
        return out

    return forward


def our_path(case: Case, hot: int, graphs: GraphTable, version: str) -> Forward:
    shared = Shared(graphs, Chooser(LADDERS["packed"]), Uploader(), Arena(), CostMeter(RNGD))
    layer = HotLayer(case.name, case.experts, ExpertKeys(version, H, F, case.down.dtype), range(hot), shared)
    ones = torch.ones(case.index_R1.shape, dtype=case.x_RH.dtype)

    def forward(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        plan = layer.plan(case.index_R1, gate_up, down, backward_kind(x, gate_up, down))
        return run_layer(x, ones, gate_up, down, layer, plan)

    return forward


def stepping(forward: Forward, case: Case, mode: str) -> Callable[[], None]:
    """One step: forward alone, or with its backward."""
    x = case.x_RH.clone().requires_grad_(mode != "forward")
    gate_up, down = (nn.Parameter(weight, requires_grad=mode == "full") for weight in (case.gate_up, case.down))

    def step() -> None:
        x.grad = gate_up.grad = down.grad = None
        out = forward(x, gate_up, down)
        if mode != "forward":
            out.backward(case.x_RH)

    return step


def local_graphs(folder: Path) -> tuple[GraphTable, str]:
    toolchain = InductorToolchain()

    def load(key: GraphKey) -> LoadedGraph:
        kept, work = folder / f"{key.digest}.pt2", folder / key.digest
        if not kept.exists():
            print(f"compiling {key.label()}", flush=True)
            work.mkdir(parents=True)
            toolchain.compile(key, work, lambda phase, progress: None).path.rename(kept)
        return toolchain.load(kept, key)

    return GraphTable(load), toolchain.version()


class Bench:
    """Measures cases and predicts from the last one of a path whether the next would take too long."""

    def __init__(self, limit_s: float, graphs: tuple[GraphTable, str] | None) -> None:
        self.machine, self._limit_s, self._graphs = measure_machine(), limit_s, graphs
        self._ms_a_row: dict[tuple[str, str, str, str], float] = {}

    def rows(self, case: Case, dtype: str) -> Iterator[Row]:
        for mode in MODES:
            baselines = {name: self._baseline(name, case, mode, dtype) for name in ("eager", "grouped_mm")}
            for path, hot in self._paths(case):
                graphs, version = self._graphs or (GraphTable(_no_graphs), "none-1")
                step = stepping(our_path(case, hot, graphs, version), case, mode)
                step()
                floor_ms = self.machine.floor_ms(mode, len(case.x_RH), case.experts, case.x_RH.dtype)
                yield Row(
                    case.name,
                    path,
                    mode,
                    case.tokens,
                    case.experts,
                    dtype,
                    cpu_ms(step, self._limit_s),
                    floor_ms,
                    baselines["eager"],
                    baselines["grouped_mm"],
                )

    def _paths(self, case: Case) -> list[tuple[str, int]]:
        graphs = [("inductor graphs", HOT)] if self._graphs and case.name == "hot" else []
        return [*graphs, ("host kernel", 0)]

    def _baseline(self, name: str, case: Case, mode: str, dtype: str) -> float | None:
        what = (name, case.name, mode, dtype)
        if self._ms_a_row.get(what, 0.0) * len(case.x_RH) > self._limit_s * 1e3:
            return None
        shorter = self._ms_a_row.get((name, case.name, "lora", dtype), 0.0) * len(case.x_RH)
        if mode == "full" and name == "eager" and shorter * EAGER_FULL > self._limit_s * 1e3:
            return None
        ms = cpu_ms(stepping(transformers_path(name, case), case, mode), self._limit_s)
        self._ms_a_row[what] = ms / len(case.x_RH)
        return ms


def _no_graphs(key: GraphKey) -> LoadedGraph:
    raise LookupError(f"{key.label()} was asked for, and this run has no graphs")


def line(row: Row) -> str:
    def beside(ms: float | None) -> str:
        return "left out" if ms is None else f"{ms:8.0f} ({ms / row.ms:5.1f}x)"

    return (
        f"{row.case:4} {row.E:3} S {row.S:4} {row.dtype} {row.mode:7} {row.path:15} {row.ms:8.0f} ms"
        f" | floor {row.floor_ms:6.0f} ({row.ms / row.floor_ms:4.1f}x)"
        f" | eager {beside(row.eager_ms)} | grouped_mm {beside(row.grouped_mm_ms)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[128])
    parser.add_argument("--cases", nargs="+", choices=("hot", "cold"), default=["hot", "cold"])
    parser.add_argument("--dtypes", nargs="+", choices=tuple(DTYPES), default=list(DTYPES))
    parser.add_argument("--no-graphs", action="store_true", help="host kernel alone; compile nothing")
    parser.add_argument("--graphs", type=Path, default=Path(".bench/graphs"), help="where compiled graphs are kept")
    parser.add_argument("--limit-s", type=float, default=60.0, help="leave out longer baselines")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bench = Bench(options.limit_s, None if options.no_graphs else local_graphs(options.graphs.resolve()))
    machine = bench.machine
    print(f"{machine.peak_gflops:.0f} GFLOP/s, reading {machine.read_gb_s:.1f} GB/s, one thread", flush=True)
    rows = []
    for dtype in options.dtypes:
        for tokens in options.tokens:
            for name in options.cases:
                for row in bench.rows(case_of(name, tokens, DTYPES[dtype]), dtype):
                    rows.append(row)
                    print(line(row), flush=True)
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
