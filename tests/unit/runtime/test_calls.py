"""Which calls a forward makes, from counts alone."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcache_runtime.calls import Choice, Chooser, Overflow, Policy, cost_s
from graphcache_runtime.ladder import LADDERS, Ladder
from graphcache_runtime.planning.costs import RNGD, Costs
from graphcache_runtime.routing import DeviceCall

PACKED = LADDERS["packed"]


def chosen(rows: list[int], ladder: Ladder, policy: Policy, is_ready: Callable[[int], bool]) -> Choice:
    def is_there(slots: int, bucket: int) -> bool:
        return is_ready(bucket)

    return Chooser(ladder, policy).choose(rows, is_there, is_there)


def cheapest(rows: list[int], costs: Costs, tiers: tuple[int, ...] = (), ladder: Ladder = PACKED) -> Choice:
    chooser = Chooser(ladder, Policy.WAIT, Overflow.COST, tiers)
    return chooser.choose(rows, lambda slots, bucket: True, lambda slots, bucket: True, costs)


def test_with_waiting_the_busiest_slot_decides_the_bucket() -> None:
    choice = chosen([3, 17, 0], PACKED, Policy.WAIT, lambda bucket: False)
    assert choice.calls == (DeviceCall(0, 3, 0, 32),)
    assert choice.lacking == ""


def test_without_hot_rows_there_is_no_call() -> None:
    assert chosen([0, 0], PACKED, Policy.WAIT, lambda bucket: True).calls == ()


def test_rows_above_the_largest_bucket_are_chunked() -> None:
    choice = chosen([20], Ladder((8,)), Policy.WAIT, lambda bucket: True)
    assert choice.calls == (DeviceCall(0, 1, 0, 8), DeviceCall(0, 1, 8, 8), DeviceCall(0, 1, 16, 8))


@pytest.mark.parametrize("policy", [Policy.HOST, Policy.READY_BUCKETS])
def test_nothing_ready_runs_on_the_host_and_says_what_lacks(policy: Policy) -> None:
    choice = chosen([17], PACKED, policy, lambda bucket: False)
    assert (choice.calls, choice.lacking) == ((), "bucket 32 not ready")


def test_a_larger_ready_bucket_serves() -> None:
    choice = chosen([17], PACKED, Policy.READY_BUCKETS, {64, 128}.__contains__)
    assert choice.calls == (DeviceCall(0, 1, 0, 64),)


def test_chunks_of_a_smaller_ready_bucket_serve() -> None:
    choice = chosen([17], PACKED, Policy.READY_BUCKETS, {8}.__contains__)
    assert [call.first_row for call in choice.calls] == [0, 8, 16]


def test_only_the_wished_bucket_is_asked_for() -> None:
    asked = []

    def ask(slots: int, bucket: int) -> bool:
        asked.append((slots, bucket))
        return False

    Chooser(PACKED, Policy.READY_BUCKETS).choose([17, 3], ask, lambda slots, bucket: False)
    assert asked == [(2, 32)]


def test_the_host_policy_uses_no_other_bucket() -> None:
    assert chosen([17], PACKED, Policy.HOST, {64}.__contains__).calls == ()


FREE_CALLS = Costs(call_s=0.0, device_row_s=1e-6, host_expert_s=1e-3, host_row_s=1e-3, upload_byte_s=0.0)
DEAR_CALLS = Costs(call_s=0.1, device_row_s=1e-6, host_expert_s=1e-3, host_row_s=1e-3, upload_byte_s=0.0)


def test_one_busy_slot_overflows_to_the_host_where_its_padding_costs_more() -> None:
    choice = cheapest([300] + [8] * 63, RNGD)
    assert (choice.way, choice.calls[0].bucket) == ("overflow", 8)


def test_few_rows_stay_on_the_host_where_a_call_costs_more() -> None:
    assert cheapest([1, 1, 1], DEAR_CALLS).calls == ()


def test_tiers_serve_slots_sorted_by_rows_where_calls_are_cheap() -> None:
    choice = cheapest([512, 500, 8, 8], FREE_CALLS, tiers=(2,))
    assert choice.way == "tiers"
    assert choice.calls == (DeviceCall(0, 2, 0, 512), DeviceCall(2, 2, 0, 8))


def test_chunks_of_a_small_bucket_serve_where_the_ladder_has_no_better() -> None:
    assert cheapest([16, 16], FREE_CALLS, ladder=Ladder((8, 1024))).way == "chunks"


def test_a_choice_by_cost_says_what_each_way_would_have_cost() -> None:
    choice = cheapest([300] + [8] * 63, RNGD)
    ways = [way for way, _ in choice.weighed]
    assert ways[0] == choice.way == "overflow"
    assert set(ways) == {"overflow", "bucket", "chunks", "host"}
    assert choice.weighed[0][1] == pytest.approx(cost_s(choice, [300] + [8] * 63, RNGD))


def test_beside_a_busy_host_the_device_takes_all_it_can_in_that_time() -> None:
    rows = [300] + [8] * 31
    chooser = Chooser(PACKED, Policy.WAIT, Overflow.COST)
    buckets = [
        chooser.choose(rows, lambda *_: True, lambda *_: True, RNGD, cold_s).calls[0].bucket
        for cold_s in (None, 0.0, 0.04, 1.0)
    ]
    assert buckets == [8, 8, 128, 512]


@pytest.mark.parametrize(("rows", "ready", "calls"), [(1000, 8, 0), (8, 1024, 0), (200, 128, 2), (100, 256, 1)])
def test_a_ready_bucket_stands_in_only_where_it_costs_less_than_the_host(rows: int, ready: int, calls: int) -> None:
    chooser = Chooser(PACKED, Policy.READY_BUCKETS)
    slots = [rows] * 32
    choice = chooser.choose(slots, lambda *_: False, lambda _, bucket: bucket == ready, RNGD)
    assert len(choice.calls) == calls
    assert choice.lacking == f"bucket {PACKED.bucket_for(rows)} not ready"


@given(st.lists(st.integers(0, 600), min_size=4, max_size=4), st.sampled_from([RNGD, FREE_CALLS, DEAR_CALLS]))
def test_the_cheapest_way_costs_no_more_than_the_host_or_one_bucket(rows: list[int], costs: Costs) -> None:
    best = cost_s(cheapest(rows, costs, tiers=(2, 4)), rows, costs)
    assert best <= cost_s(Choice((), "host"), rows, costs)
    assert best <= cost_s(chosen(rows, PACKED, Policy.WAIT, lambda bucket: True), rows, costs) + 1e-12
