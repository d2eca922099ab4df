"""Plans: every assignment runs in exactly one place."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcache_runtime.routing import DeviceCall, Plan, Routing, check_expert_ids, make_plan, slot_rows

INDEX = (
    st.integers(0, 40)
    .flatmap(
        lambda tokens: st.lists(st.lists(st.integers(0, 7), min_size=2, max_size=2), min_size=tokens, max_size=tokens)
    )
    .map(lambda rows: torch.tensor(rows, dtype=torch.int64).view(-1, 2))
)
CALLS = st.sampled_from(
    [
        (),
        (DeviceCall(0, 4, 0, 8),),
        (DeviceCall(0, 4, 0, 8), DeviceCall(0, 4, 8, 64)),
        (DeviceCall(0, 2, 0, 64), DeviceCall(2, 2, 0, 8)),
    ]
)


@given(INDEX, CALLS, st.sampled_from([(0, 1, 2, 3), (5, 1, 5, 7)]))
def test_each_assignment_runs_once_and_with_its_own_expert(
    index_TK: torch.Tensor, calls: tuple[DeviceCall, ...], hot: tuple[int, ...]
) -> None:
    plan = make_plan(Routing(index_TK, 8), hot, calls)
    experts = index_TK.flatten()
    placed = [(a, e) for a, e in zip(plan.host.assignment_C.tolist(), host_experts(plan), strict=True)]
    for packed in plan.packed:
        slots = (packed.place_P // packed.call.bucket + packed.call.first_slot).tolist()
        placed += [(a, hot[s]) for a, s in zip(packed.assignment_P.tolist(), slots, strict=True)]
        assert torch.equal(packed.token_P, packed.assignment_P // 2)
        assert packed.place_P.unique().numel() == packed.place_P.numel()
    assert sorted(placed) == list(enumerate(experts.tolist()))


def host_experts(plan: Plan) -> list[int]:
    return [e for e, n in zip(plan.host.experts, plan.host.counts, strict=True) for _ in range(n)]


def test_an_expert_in_two_slots_shares_its_rows_evenly() -> None:
    index_TK = torch.tensor([[3]] * 7 + [[1]] * 2)
    routing = Routing(index_TK, 4)
    assert slot_rows(routing, (3, 1, 3)) == [4, 2, 3]
    plan = make_plan(routing, (3, 1, 3), (DeviceCall(0, 3, 0, 4),))
    assert plan.hot_rows == 9


def test_rows_above_the_bucket_go_to_the_host() -> None:
    plan = make_plan(Routing(torch.tensor([[0]] * 10), 2), (0,), (DeviceCall(0, 1, 0, 8),))
    assert (plan.hot_rows, plan.host.rows, plan.host.experts) == (8, 2, (0,))


@pytest.mark.parametrize("value", [-1, 8, 1000])
def test_an_expert_id_outside_the_layer_is_an_error_with_layer_and_value(value: int) -> None:
    with pytest.raises(ValueError, match=rf"layers\.3: the router chose expert {value}, .* 0 to 7"):
        check_expert_ids(torch.tensor([[0, value]]), 8, "layers.3")
