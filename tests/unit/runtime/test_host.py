"""Host kernels: the same numbers, whichever is chosen, and no memory of others read."""

import pytest
import torch
from fakes.dense_reference import error, problem, reference

from graphcache_runtime.host.arena import Arena
from graphcache_runtime.host.experts import Grouped, HostKernel, PerExpert, can_group, group_offsets
from graphcache_runtime.host.kernels import choose
from graphcache_runtime.host.weight_gradients import WeightGradients
from graphcache_runtime.routing import HostRows, Routing, make_plan

KERNELS = {"per-expert": lambda: PerExpert(Arena()), "grouped": Grouped}


@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)], ids=str)
def test_each_kernel_agrees_with_the_oracle(make: type[HostKernel], dtype: torch.dtype, bound: float) -> None:
    p = problem(40, top_k=1, h=32, f=16, dtype=dtype)
    kernel, want = make(), reference(p)
    rows = make_plan(Routing(p.index_TK, 8), (), ()).host
    weights_C = p.weights_TK.flatten()[rows.assignment_C, None]
    x, dy = (t.to(kernel.rows_dtype(dtype)) for t in (p.x_TH[rows.token_C], p.dout_TH[rows.token_C] * weights_C))
    ran, grads = kernel.forward(x, rows, p.gate_up, p.down), WeightGradients(p.gate_up, p.down)
    dx = kernel.backward(x, ran.h_C2F, dy, rows, p.gate_up, p.down, grads)
    assert error(ran.y_CH * weights_C, want.out[rows.token_C]) < bound
    assert error(dx, want.dx[rows.token_C]) < bound
    for got, wanted in zip(grads.finish(), (want.dgate_up, want.ddown), strict=True):
        assert error(got, wanted) < bound


def test_offsets_that_do_not_add_up_to_the_rows_are_refused() -> None:
    rows = HostRows(torch.zeros(5, dtype=torch.int64), torch.zeros(5, dtype=torch.int64), (1, 3), (2, 2))
    with pytest.raises(ValueError, match="5 host rows, but the experts' counts add up to 4"):
        group_offsets(rows, 4)


def test_offsets_end_each_experts_rows() -> None:
    rows = HostRows(torch.zeros(5, dtype=torch.int64), torch.zeros(5, dtype=torch.int64), (1, 3), (2, 3))
    assert group_offsets(rows, 4).tolist() == [0, 2, 2, 5]
    assert group_offsets(rows, 4).dtype == torch.int32


def test_weights_that_the_grouped_product_cannot_take_run_an_expert_at_a_time() -> None:
    odd, transposed = torch.zeros(2, 4, 5), torch.zeros(2, 8, 8).transpose(1, 2)
    assert not can_group(odd)
    assert not can_group(transposed)
    assert isinstance(choose(odd, odd, Arena()), PerExpert)


def test_a_second_part_of_an_experts_gradient_is_added() -> None:
    grads = WeightGradients(torch.zeros(2, 4, 3), torch.zeros(2, 3, 2))
    for _ in range(2):
        grads.add(1, torch.ones(4, 3), torch.ones(3, 2))
    gate_up, down = grads.finish()
    assert gate_up.tolist() == [[[0.0] * 3] * 4, [[2.0] * 3] * 4]
    assert down[1].unique().tolist() == [2.0]
