"""Which experts modules of transformers can run here, and why another cannot.

The graphs compute ``down(silu(gate(x)) * up(x))`` of ``gate_up_proj[E, 2F, H]``, gate first, and
``down_proj[E, H, F]``.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from graphcache_runtime.experts import DTYPES


class UnsupportedExperts(ValueError):
    """An experts module whose layout or arithmetic the graphs do not have; the message names class and reason."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """E experts of ``gate_up[E, 2F, H]`` and ``down[E, H, F]``."""

    experts: int
    h: int
    f: int
    dtype: torch.dtype


def experts_modules(model: nn.Module) -> list[tuple[str, Any]]:
    """Every module of ``model`` that transformers dispatches through its registry of experts implementations."""
    return [
        (name, module)
        for name, module in model.named_modules()
        if hasattr(type(module), "_apply_gate") and hasattr(module, "is_concatenated") and hasattr(module, "config")
    ]


def shapes_of(module: Any) -> Shapes:
    """The shapes of a supported module.

    Raises:
        UnsupportedExperts: what about the module the graphs do not have.
    """
    reason = why_not(module)
    if reason:
        raise UnsupportedExperts(
            f"{type(module).__name__} cannot run on graphs: {reason}. Leave this model on another experts "
            "implementation (eager or grouped_mm)"
        )
    experts, h, f = module.down_proj.shape
    return Shapes(experts, h, f, module.down_proj.dtype)


def why_not(module: Any) -> str:
    """Why the module cannot run on graphs; empty when it can."""
    # The default gate lives in transformers; its name is all that is asked, so that nothing private is imported.
    own_gate = type(module)._apply_gate.__name__ != "_default_apply_gate"
    checks = (
        (not module.has_gate, "it has no gate projection"),
        (module.has_bias, "its projections have a bias"),
        (module.is_transposed, "its weights are stored transposed"),
        (not module.is_concatenated, "its gate and up are interleaved"),
        (module.has_post_expert_norm, "it norms each expert's output"),
        (own_gate, "it has an activation of its own (_apply_gate)"),
        (not _is_silu(getattr(module, "act_fn", None)), "its activation is not silu"),
        (getattr(module, "_is_expert_parallel", False), "its experts are split over ranks (expert parallelism)"),
    )
    reasons = [reason for failed, reason in checks if failed]
    return "; ".join(reasons) if reasons else _why_not_shapes(module)


def _is_silu(act: Any) -> bool:
    if act is None:
        return False
    probe = torch.linspace(-4, 4, 9)
    return bool(torch.allclose(act(probe), probe * torch.sigmoid(probe), atol=1e-6))


def _why_not_shapes(module: Any) -> str:
    gate_up, down = module.gate_up_proj, module.down_proj
    if gate_up.ndim != 3 or down.ndim != 3:
        return f"its weights are not stacked: gate_up{tuple(gate_up.shape)}, down{tuple(down.shape)}"
    experts, h, f = down.shape
    if tuple(gate_up.shape) != (experts, 2 * f, h):
        return f"gate_up is {tuple(gate_up.shape)} where down[E, H, F] = {tuple(down.shape)} asks for [E, 2F, H]"
    if gate_up.dtype != down.dtype or down.dtype not in DTYPES.values():
        return f"its weights are {gate_up.dtype} and {down.dtype}; graphs are compiled for bf16 and fp32"
    return ""
