"""A training step of one decoder layer of Qwen3-30B-A3B's size: every expert on the host, against some of 128 hot.

LoRA of rank 16 on q and v, experts frozen in bf16, all else in fp32, routing by Zipf's law. There is no NPU in this
machine, so the hot step is part measurement, part model, and says so: everything the host does is run and timed, with a
device that only waits, for as long as was measured on an RNGD (one call of 32 experts, 64 rows: rows over 2.6 ms,
forward 6.3, backward 9.0, rows back 7.8; each call 10 ms more). "beside": the host computes its experts in that time.

    python benchmarks/step.py [--tokens 128 512] [--hot 32] [--repeats 3] [--json]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphcache_runtime import enable
from graphcache_runtime.experts import graph_definition
from graphcache_runtime.graph_table import GraphTable
from graphcache_runtime.host.arena import Arena
from graphcache_runtime.host.path import HostPath
from graphcache_runtime.planning.costs import RNGD, Costs
from graphcache_runtime.planning.measured import CostMeter
from graphcache_runtime.toolchains.base import LoadedGraph
from graphcache_wire import GraphKey, Kind

TOP_K = 8
BESIDE_MS, ROWS_OVER_MS, ROWS_BACK_MS = 10.0, 2.6, 7.8
WORK_MS = {Kind.EXPERTS_FORWARD: 6.3, Kind.EXPERTS_BACKWARD_LORA: 9.0}
MEASURED_ROWS = 32 * 64
PREDECESSORS_RATIO = 0.97
CASES = (("bucket", False), ("bucket", True), ("cost", False), ("cost", True))


@dataclass(frozen=True)
class MeasuredSize:
    """The sizes of a layer; the defaults are those of Qwen3-30B-A3B with a quarter of the experts hot."""

    h: int = 2048
    f: int = 768
    experts: int = 128
    hot: int = 32


SIZE = MeasuredSize()
"""What the device's figures were measured with; its work grows with h and f, its transfers with h."""


@dataclass(frozen=True)
class Row:
    """One figure. ``modelled_ms``: what the model waited for; ``ratio``: to the step on the host alone."""

    case: str
    path: str
    S: int
    hot: int
    dtype: str
    ms: float
    modelled_ms: float
    ratio: float
    padding_ratio: float
    coverage: float
    ways: dict[str, int]


class WaitingGraph:
    """A device that answers with memory of the right shape, after the time that an RNGD would have taken."""

    def __init__(self, key: GraphKey, clock: list[float]) -> None:
        definition = graph_definition(key)
        self.device = torch.device("cpu")
        self._outputs = tuple(torch.zeros(shape, dtype=definition.dtype) for shape in definition.output_shapes)
        self._clock, self._ms = clock, modelled_ms(key)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        self._clock.append(self._ms)
        time.sleep(self._ms / 1e3)
        return self._outputs


def modelled_ms(key: GraphKey) -> float:
    """A call on an RNGD: a backward takes x and dy over, a forward x; work and rows grow with the padded rows."""
    over = 2 if key.kind is not Kind.EXPERTS_FORWARD else 1
    grown = key.e_hot * key.bucket / MEASURED_ROWS * key.h / SIZE.h
    return BESIDE_MS + grown * (over * ROWS_OVER_MS + WORK_MS[key.kind] * key.f / SIZE.f + ROWS_BACK_MS)


class ZipfRouter(nn.Module):
    """A router whose choice follows Zipf's law, as a trained one's roughly does; expert 0 is the busiest.

    It knows what up to ``tokens`` tokens choose, whatever they are.
    """

    def __init__(self, tokens: int, experts: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        weight_E = -torch.log(torch.arange(1, experts + 1).float())
        noise = -torch.log(-torch.log(torch.rand(tokens, experts, generator=generator)))
        self.experts = experts
        self.index_TK = torch.topk(weight_E + noise, TOP_K).indices
        self.weights_TK = torch.full((tokens, TOP_K), 1.0 / TOP_K)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        tokens = hidden.shape[:-1].numel()
        return torch.zeros(tokens, self.experts), self.weights_TK[:tokens], self.index_TK[:tokens]


def build(tokens: int, size: MeasuredSize = SIZE) -> Any:
    """One decoder layer for up to ``tokens`` tokens, with LoRA on q and v."""
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3MoeConfig, Qwen3MoeModel

    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=256,
        hidden_size=size.h,
        intermediate_size=size.f,
        moe_intermediate_size=size.f,
        num_hidden_layers=1,
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
        num_experts=size.experts,
        num_experts_per_tok=TOP_K,
    )
    with torch.device("meta"):
        model = Qwen3MoeModel(config)
    moe = model.layers[0].mlp
    moe.experts.bfloat16()
    model = model.to_empty(device="cpu")
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.0, 0.02)
    model.rotary_emb = type(model.rotary_emb)(config)
    model.layers[0].mlp.gate = ZipfRouter(tokens, size.experts)
    return get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"])).train()


def step_ms(model: Any, tokens: int, repeats: int, between: Callable[[], None]) -> float:
    """Median wall time of a step after one that is not counted."""
    ids, times = torch.arange(tokens)[None] % 256, []
    for repeat in range(repeats + 1):
        between()
        began = time.perf_counter()
        model(input_ids=ids).last_hidden_state.square().mean().backward()
        if repeat:
            times.append(time.perf_counter() - began)
        model.zero_grad()
    return statistics.median(times) * 1e3


def measure(tokens: int, hot: list[int], repeats: int) -> list[Row]:
    model = build(tokens)
    nowhere = GraphTable(_no_device, try_load=lambda key: None)
    handle = enable(model, graphs=nowhere, toolchain_version="none-1", e_hot=SIZE.hot, policy="host")
    host_ms = step_ms(model, tokens, repeats, lambda: None)
    handle.disable()
    costs = costs_here(model)
    rows = [Row("block", "host alone", tokens, 0, "bf16", host_ms, 0.0, 1.0, 0.0, 0.0, {})]
    for slots in hot:
        for overflow, beside in CASES:
            rows.append(hot_row(model, tokens, slots, repeats, overflow, beside, costs, host_ms))
    return rows


def costs_here(model: Any) -> Costs:
    """An RNGD's, with the host's part measured on this host."""
    experts = model.get_base_model().layers[0].mlp.experts
    gate_up, down = experts.gate_up_proj, experts.down_proj
    meter = CostMeter(RNGD, measures=True)
    meter.measure_host(HostPath(Arena()).kernel(gate_up, down), gate_up, down)
    return meter.costs


def hot_row(
    model: Any, tokens: int, slots: int, repeats: int, overflow: str, beside: bool, costs: Costs, host_ms: float
) -> Row:
    clock: list[float] = []
    handle = enable(
        model,
        graphs=lambda key: WaitingGraph(key, clock),
        toolchain_version="none-1",
        e_hot=slots,
        policy="wait",
        overflow=overflow,
        beside=beside,
        costs=costs,
    )
    whole_ms, device_ms = step_ms(model, tokens, repeats, clock.clear), sum(clock)
    stats = handle.stats()
    handle.disable()
    counted = (stats["padding_ratio"], stats["coverage"], stats["ways"])
    path = f"{overflow}, {'beside' if beside else 'apart'}"
    return Row("block", path, tokens, slots, "bf16", whole_ms, device_ms, whole_ms / host_ms, *counted)


def _no_device(key: GraphKey) -> LoadedGraph:
    raise LookupError(f"{key.label()} was asked for on a host without a device")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--hot", type=int, nargs="+", default=[SIZE.hot], help="hot experts, of 128")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for tokens in options.tokens:
        for row in measure(tokens, options.hot, options.repeats):
            rows.append(row)
            print(
                f"S {row.S:4} {row.path:14} hot {row.hot:3} {row.ms:8.0f} ms, "
                f"device {row.modelled_ms:5.0f} ms (modelled) | {row.ratio:.2f} of host alone | "
                f"coverage {row.coverage:.0%}, padding {row.padding_ratio:.1f}x {row.ways or ''}",
                flush=True,
            )
    print(f"The predecessors' hot step, measured on an RNGD at S 128, took {PREDECESSORS_RATIO} of their host step.")
    print("No NPU was used here: the device's part of each hot step is a model.")
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
