"""The graph of every kind, as a function of its key alone: a worker needs nothing else to compile it.

Legend: E hot experts, B rows of the bucket, H model size, F expert size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from graphcache_wire import GraphKey, Kind

DTYPES: dict[str, torch.dtype] = {"bf16": torch.bfloat16, "fp32": torch.float32}

GRAPH_OPTIONS: Final = frozenset({"dtype", "mode", "weights", "keep"})
"""The options of a key that say what a graph computes; whatever else a key has is a setting of its compiler."""


def dtype_name(dtype: torch.dtype) -> str:
    """What a key calls ``dtype``.

    Raises:
        ValueError: no graph has this dtype.
    """
    for name, known in DTYPES.items():
        if dtype is known:
            return name
    raise ValueError(f"graphs are compiled for {', '.join(str(d) for d in DTYPES.values())}, not {dtype}")


def _gate_times_up(h_EB2F: Tensor, f: int) -> Tensor:
    gate, up = h_EB2F[..., :f], h_EB2F[..., f:]
    return gate * torch.sigmoid(gate) * up


class ExpertsForward(nn.Module):
    """``x[E, B, H] -> y[E, B, H]``; each product is one bmm. silu is spelled out: the RNGD compiler takes that form."""

    def forward(self, x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        h = torch.bmm(x, gate_up.transpose(1, 2))
        return torch.bmm(_gate_times_up(h, down.shape[2]), down.transpose(1, 2))


class ExpertsForwardKeeping(nn.Module):
    """``x[E, B, H] -> y[E, B, H], h[E, B, 2F]``: gate_up's product too, for a backward that takes it."""

    def forward(self, x: Tensor, gate_up: Tensor, down: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.bmm(x, gate_up.transpose(1, 2))
        return torch.bmm(_gate_times_up(h, down.shape[2]), down.transpose(1, 2)), h


class BakedExpertsForward(nn.Module):
    """The forward with its weights as constants: ``x[E, B, H] -> y[E, B, H]``."""

    def __init__(self, gate_up: Tensor, down: Tensor) -> None:
        super().__init__()
        self.register_buffer("gate_up", gate_up)
        self.register_buffer("down", down)
        self.experts = ExpertsForward()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.experts(x, self.gate_up.to(x.dtype), self.down.to(x.dtype))
        return y


def _backward(h: Tensor, gate_up: Tensor, down: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """From ``h[E, B, 2F]``, gate_up's product: ``dx``, ``dh``, ``a``."""
    f = down.shape[2]
    gate, up = h[..., :f], h[..., f:]
    s = torch.sigmoid(gate)
    silu = gate * s
    da = torch.bmm(dy, down)
    dgate = da * up * (s + silu * (1 - s))
    dh = torch.cat((dgate, da * silu), dim=-1)
    return torch.bmm(dh, gate_up), dh, silu * up


class ExpertsBackwardLora(nn.Module):
    """``x, gate_up, down, dy -> dx[E, B, H]``: the experts are frozen. Computes gate_up's product again."""

    def forward(self, x: Tensor, gate_up: Tensor, down: Tensor, dy: Tensor) -> Tensor:
        return _backward(torch.bmm(x, gate_up.transpose(1, 2)), gate_up, down, dy)[0]


class ExpertsBackwardLoraKept(nn.Module):
    """``h, gate_up, down, dy -> dx[E, B, H]``: without x, which nothing else of this backward reads."""

    def forward(self, h: Tensor, gate_up: Tensor, down: Tensor, dy: Tensor) -> Tensor:
        return _backward(h, gate_up, down, dy)[0]


class ExpertsBackwardFull(nn.Module):
    """``x, gate_up, down, dy -> dx, dgate_up[E, 2F, H], ddown[E, H, F]``. Computes gate_up's product again."""

    def forward(self, x: Tensor, gate_up: Tensor, down: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dx, dh, a = _backward(torch.bmm(x, gate_up.transpose(1, 2)), gate_up, down, dy)
        return dx, torch.bmm(dh.transpose(1, 2), x), torch.bmm(dy.transpose(1, 2), a)


class ExpertsBackwardFullKept(nn.Module):
    """``h, gate_up, down, dy, x -> dx, dgate_up[E, 2F, H], ddown[E, H, F]``."""

    def forward(self, h: Tensor, gate_up: Tensor, down: Tensor, dy: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dx, dh, a = _backward(h, gate_up, down, dy)
        return dx, torch.bmm(dh.transpose(1, 2), x), torch.bmm(dy.transpose(1, 2), a)


MODULES: dict[tuple[Kind, bool], Callable[[], nn.Module]] = {
    (Kind.EXPERTS_FORWARD, False): ExpertsForward,
    (Kind.EXPERTS_BACKWARD_LORA, False): ExpertsBackwardLora,
    (Kind.EXPERTS_BACKWARD_FULL, False): ExpertsBackwardFull,
    (Kind.EXPERTS_FORWARD, True): ExpertsForwardKeeping,
    (Kind.EXPERTS_BACKWARD_LORA, True): ExpertsBackwardLoraKept,
    (Kind.EXPERTS_BACKWARD_FULL, True): ExpertsBackwardFullKept,
}
"""By kind, and by whether gate_up's product is kept from forward to backward (``GraphKey.keeps_gate_up``)."""

ROWS: Final = ("x", "h", "dy")
"""Inputs whose rows are zeros where padding lies; each of the others is a weight."""


@dataclass(frozen=True, slots=True)
class GraphDefinition:
    """What a compiler is given: the module, and the names, shapes and dtype of its inputs and outputs."""

    module: nn.Module
    input_names: tuple[str, ...]
    input_shapes: tuple[tuple[int, ...], ...]
    output_names: tuple[str, ...]
    output_shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype

    def example_inputs(self) -> tuple[Tensor, ...]:
        """Zeros of the right shapes, for an export; nothing reads them."""
        return tuple(torch.zeros(shape, dtype=self.dtype) for shape in self.input_shapes)

    def random_inputs(self, seed: int) -> tuple[Tensor, ...]:
        """Inputs with the spread of real ones, for a check of the compiled graph: rows about 1, weights 1/sqrt(H)."""
        generator = torch.Generator().manual_seed(seed)

        def random(name: str, shape: tuple[int, ...]) -> Tensor:
            scale = 1.0 if name in ROWS else shape[-1] ** -0.5
            return (torch.randn(shape, generator=generator) * scale).to(self.dtype)

        return tuple(map(random, self.input_names, self.input_shapes))


def graph_definition(key: GraphKey, gate_up: Tensor | None = None, down: Tensor | None = None) -> GraphDefinition:
    """The graph that ``key`` names. ``gate_up`` and ``down`` are given in baked mode, and only there.

    Raises:
        ValueError: a baked key without weights, or weights of another shape than the key says.
    """
    e, b, h, f = key.e_hot, key.bucket, key.h, key.f
    rows, h_rows, gate_up_shape, down_shape = (e, b, h), (e, b, 2 * f), (e, 2 * f, h), (e, h, f)
    dtype = DTYPES[key.dtype]
    if key.mode == "baked":
        if gate_up is None or down is None:
            shapes = f"gate_up{gate_up_shape} and down{down_shape}"
            raise ValueError(f"{key.label()}: a baked graph needs its weights, {shapes}")
        if tuple(gate_up.shape) != gate_up_shape or tuple(down.shape) != down_shape:
            raise ValueError(
                f"{key.label()}: weights are gate_up{tuple(gate_up.shape)}, down{tuple(down.shape)}, "
                f"not gate_up{gate_up_shape}, down{down_shape}"
            )
        baked = BakedExpertsForward(gate_up.detach().to(dtype), down.detach().to(dtype))
        return GraphDefinition(baked, ("x",), (rows,), ("y",), (rows,), dtype)
    kept, weights = key.keeps_gate_up, {"gate_up": gate_up_shape, "down": down_shape}
    module = MODULES[key.kind, kept]()
    if key.kind is Kind.EXPERTS_FORWARD:
        inputs, outputs = {"x": rows} | weights, {"y": rows} | ({"h": h_rows} if kept else {})
    else:
        inputs, outputs = ({"h": h_rows} if kept else {"x": rows}) | weights | {"dy": rows}, {"dx": rows}
    if key.kind is Kind.EXPERTS_BACKWARD_FULL:
        inputs |= {"x": rows} if kept else {}
        outputs |= {"dgate_up": gate_up_shape, "ddown": down_shape}
    return GraphDefinition(
        module, tuple(inputs), tuple(inputs.values()), tuple(outputs), tuple(outputs.values()), dtype
    )
