"""What the experts of one layer cost on this machine, beside transformers' own implementations and the machine's floor.

Experts of Qwen3-30B-A3B's size (H 2048, F 768), 8 of 128 a token, routed by Zipf's law: the 32 busiest (hot) through
the host kernel and through compiled inductor graphs, the 96 others (cold) through the host kernel; beside them a loop,
transformers' eager and grouped_mm, a padded bmm, and weights that oneDNN packed. Rounds of all paths in turn; CPU time
of each one's fastest (wall time with more than one thread). The floor is the larger of FLOPs over this CPU's fastest
product and bytes over its speed of reading: weights read once a pass, and their gradients written once.

    python benchmarks/experts.py [--tokens 128 512] [--dtypes bf16 fp32] [--modes lora] [--no-graphs] [--json]

Graphs are compiled once into --graphs (a minute each). A path whose step would take longer than --limit-s is left out.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from expert_paths import (
    Case,
    Forward,
    local_graphs,
    loop_path,
    no_graphs,
    our_path,
    padded_path,
    prepacked_path,
    stepping,
    transformers_path,
)
from torch import Tensor

from graphcache_runtime.experts import DTYPES
from graphcache_runtime.graph_table import GraphTable

H, F, EXPERTS, TOP_K, HOT = 2048, 768, 128, 8, 32
MODES = ("forward", "lora", "full")
PASSES = {"forward": (6, 1), "lora": (12, 2), "full": (18, 3)}
"""FLOPs a row over H F, and how often a weight's bytes are read or written, of each mode."""
OURS, GRAPHS = "host kernel", "inductor graphs"
LONGER = {"loop": 4, "padded bmm": 4, "grouped_mm": 3, "eager": 50}
"""How much longer than LoRA full fine-tuning takes: eager writes a gradient of all experts for each expert."""


@dataclass(frozen=True)
class Row:
    """One figure; times in ms, None where a baseline was left out."""

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
    """``gflops``: the fastest product of each dtype. ``read_gb_s``: a sum over memory that no cache holds."""

    gflops: dict[torch.dtype, float]
    read_gb_s: float

    def floor_ms(self, mode: str, rows: int, experts: int, dtype: torch.dtype) -> float:
        flops, reads = PASSES[mode]
        products_ms = flops * rows * H * F / self.gflops[dtype] / 1e6
        return max(products_ms, reads * experts * 3 * H * F * dtype.itemsize / self.read_gb_s / 1e6)


class Clock:
    """CPU time on one thread, wall time on several."""

    def __init__(self, threads: int) -> None:
        self._now = time.process_time if threads == 1 else time.perf_counter

    def ms(self, run: Callable[[], object]) -> float:
        began = self._now()
        run()
        return (self._now() - began) * 1e3

    def best_ms(self, run: Callable[[], object], runs: int = 5) -> float:
        return min(self.ms(run) for _ in range(runs))


def measure_machine(clock: Clock) -> Machine:
    """Products of 1024 rows, as they are and with oneDNN's packed weights. bf16 may be computed in fp32."""
    big, gflops = torch.ones(32, 1024, 1024), {}
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.ones(1024, 1024, dtype=dtype)
        packed = torch.ops.mkldnn._reorder_linear_weight(a, 1024)
        products = (
            lambda a=a: a @ a.t(),
            lambda a=a, packed=packed: torch.ops.mkldnn._linear_pointwise(a, packed, None, "none", [], ""),
        )
        gflops[dtype] = max(2 * 1024**3 / clock.best_ms(product) / 1e6 for product in products)
    gflops[torch.bfloat16] = max(gflops.values())
    return Machine(gflops, big.numel() * 4 / clock.best_ms(big.sum) / 1e6)


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


def forwards(case: Case, mode: str, graphs: tuple[GraphTable, str] | None) -> dict[str, Callable[[], Forward]]:
    """How to make each path; ours first."""
    paths = {OURS: lambda: our_path(case, 0, GraphTable(no_graphs), "none-1")}
    if graphs is not None and case.name == "hot":
        paths[GRAPHS] = lambda: our_path(case, HOT, *graphs)
    paths["loop"] = lambda: loop_path(case)
    paths["eager"] = lambda: transformers_path("eager", case)
    paths["grouped_mm"] = lambda: transformers_path("grouped_mm", case)
    paths["padded bmm"] = lambda: padded_path(case)
    if mode != "full":
        paths["prepacked"] = lambda: prepacked_path(case)
    return paths


class Bench:
    """Measures cases, and predicts from a path's last step which would take too long."""

    def __init__(self, clock: Clock, limit_s: float, rounds: int, only: list[str] | None) -> None:
        self.machine = measure_machine(clock)
        self._clock, self._limit_ms, self._rounds, self._only = clock, limit_s * 1e3, rounds, only
        self._ms_a_row: dict[tuple[str, str, str, torch.dtype], float] = {}

    def rows(self, case: Case, mode: str, dtype: str, graphs: tuple[GraphTable, str] | None) -> list[Row]:
        ms = self._measure(case, mode, forwards(case, mode, graphs))
        floor_ms = self.machine.floor_ms(mode, len(case.x_RH), case.experts, case.x_RH.dtype)
        what = (mode, case.tokens, case.experts, dtype)
        return [
            Row(case.name, path, *what, round(took, 2), round(floor_ms, 2), ms.get("eager"), ms.get("grouped_mm"))
            for path, took in ms.items()
        ]

    def _measure(self, case: Case, mode: str, paths: dict[str, Callable[[], Forward]]) -> dict[str, float]:
        """The fastest of some rounds of each path; one that takes long runs twice, the first time on fresh memory."""
        best: dict[str, float] = {}
        steps = {}
        for path, make in paths.items():
            if (self._only and path not in self._only) or self._expected_ms(path, case, mode) > self._limit_ms:
                continue
            step = stepping(make(), case, mode)
            best[path] = min(self._clock.ms(step), self._clock.ms(step))
            if best[path] * self._rounds < self._limit_ms:
                steps[path] = step
        for _ in range(self._rounds):
            for path, step in steps.items():
                best[path] = min(best[path], self._clock.ms(step))
        for path, took in best.items():
            self._ms_a_row[path, case.name, mode, case.x_RH.dtype] = took / len(case.x_RH)
        return best

    def _expected_ms(self, path: str, case: Case, mode: str) -> float:
        known = {m: self._ms_a_row.get((path, case.name, m, case.x_RH.dtype), 0.0) for m in MODES}
        shorter = known["lora"] * (LONGER.get(path, 1) if mode == "full" else 1)
        return (known[mode] or shorter) * len(case.x_RH)


def line(row: Row) -> str:
    def beside(ms: float | None) -> str:
        return "left out" if ms is None else f"{ms:8.0f} ({ms / row.ms:5.1f}x)"

    return (
        f"{row.case:4} {row.E:3} S {row.S:4} {row.dtype} {row.mode:7} {row.path:15} {row.ms:8.0f} ms"
        f" | floor {row.floor_ms:6.0f} ({row.ms / row.floor_ms:5.1f}x)"
        f" | eager {beside(row.eager_ms)} | grouped_mm {beside(row.grouped_mm_ms)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[128])
    parser.add_argument("--cases", nargs="+", choices=("hot", "cold"), default=["hot", "cold"])
    parser.add_argument("--dtypes", nargs="+", choices=tuple(DTYPES), default=list(DTYPES))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--paths", nargs="+", help="only these, by the names in the table")
    parser.add_argument("--no-graphs", action="store_true", help="host kernel alone; compile nothing")
    parser.add_argument("--graphs", type=Path, default=Path(".bench/graphs"), help="where compiled graphs are kept")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=60.0, help="leave out longer steps")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    bench = Bench(Clock(options.threads), options.limit_s, options.rounds, options.paths)
    graphs = None if options.no_graphs else local_graphs(options.graphs.resolve())
    gflops = ", ".join(f"{value:.0f} GFLOP/s in {str(dtype)[6:]}" for dtype, value in bench.machine.gflops.items())
    print(f"{gflops}, reading {bench.machine.read_gb_s:.1f} GB/s, threads: {options.threads}", flush=True)
    rows = []
    for dtype in options.dtypes:
        for tokens in options.tokens:
            for name in options.cases:
                case = case_of(name, tokens, DTYPES[dtype])
                for mode in options.modes:
                    for row in bench.rows(case, mode, dtype, graphs):
                        rows.append(row)
                        print(line(row), flush=True)
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
