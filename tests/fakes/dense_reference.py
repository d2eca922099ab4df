"""The oracle: every token through its experts, densely, in fp64, with gradients by PyTorch's autograd."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Problem:
    """A layer's inputs. Legend: T tokens, K experts a token, E experts, H model size, F expert size."""

    x_TH: Tensor
    index_TK: Tensor
    weights_TK: Tensor
    gate_up: Tensor
    down: Tensor
    dout_TH: Tensor


@dataclass(frozen=True)
class Result:
    """The output and the gradients of x, router weights, gate_up and down."""

    out: Tensor
    dx: Tensor
    dweights: Tensor
    dgate_up: Tensor
    ddown: Tensor


def problem(
    tokens: int,
    *,
    experts: int = 8,
    top_k: int = 2,
    h: int = 16,
    f: int = 24,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Problem:
    """A random layer; router weights sum to 1 a token."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64)

    index = torch.stack([torch.randperm(experts, generator=g)[:top_k] for _ in range(tokens)]) if tokens else None
    return Problem(
        normal(tokens, h).to(dtype),
        torch.zeros(0, top_k, dtype=torch.int64) if index is None else index,
        torch.softmax(normal(tokens, top_k), -1).to(dtype),
        (normal(experts, 2 * f, h) * h**-0.5).to(dtype),
        (normal(experts, h, f) * f**-0.5).to(dtype),
        normal(tokens, h).to(dtype),
    )


def reference(p: Problem) -> Result:
    """All of it in fp64."""
    x, weights, gate_up, down = (
        tensor.detach().double().requires_grad_() for tensor in (p.x_TH, p.weights_TK, p.gate_up, p.down)
    )
    h = torch.einsum("th,efh->tef", x, gate_up)
    gate, up = h.chunk(2, dim=-1)
    y_TEH = torch.einsum("tef,ehf->teh", gate * torch.sigmoid(gate) * up, down)
    picked = torch.nn.functional.one_hot(p.index_TK, p.down.shape[0]).double()
    out = torch.einsum("tke,tk,teh->th", picked, weights, y_TEH)
    out.backward(p.dout_TH.double())
    grads = [torch.zeros_like(t) if t.grad is None else t.grad for t in (x, weights, gate_up, down)]
    return Result(out.detach(), *grads)


def error(got: Tensor, want: Tensor) -> float:
    """The largest difference over the largest value, 0 for two empty or two zero tensors."""
    assert got.shape == want.shape, (got.shape, want.shape)
    scale = float(want.abs().max()) if want.numel() else 0.0
    difference = float((got.double() - want).abs().max()) if want.numel() else 0.0
    return difference if scale == 0.0 else difference / scale
