"""Which calls a forward makes, from counts alone."""

import pytest

from graphcache_runtime.calls import Policy, choose_calls
from graphcache_runtime.ladder import LADDERS, Ladder
from graphcache_runtime.routing import DeviceCall

PACKED = LADDERS["packed"]


def test_with_waiting_the_busiest_slot_decides_the_bucket() -> None:
    choice = choose_calls([3, 17, 0], PACKED, Policy.WAIT, lambda bucket: False)
    assert choice.calls == (DeviceCall(0, 3, 0, 32),)
    assert choice.lacking == ""


def test_without_hot_rows_there_is_no_call() -> None:
    assert choose_calls([0, 0], PACKED, Policy.WAIT, lambda bucket: True).calls == ()


def test_rows_above_the_largest_bucket_are_chunked() -> None:
    choice = choose_calls([20], Ladder((8,)), Policy.WAIT, lambda bucket: True)
    assert choice.calls == (DeviceCall(0, 1, 0, 8), DeviceCall(0, 1, 8, 8), DeviceCall(0, 1, 16, 8))


@pytest.mark.parametrize("policy", [Policy.HOST, Policy.READY_BUCKETS])
def test_nothing_ready_runs_on_the_host_and_says_what_lacks(policy: Policy) -> None:
    choice = choose_calls([17], PACKED, policy, lambda bucket: False)
    assert (choice.calls, choice.lacking) == ((), "bucket 32 not ready")


def test_a_larger_ready_bucket_serves() -> None:
    choice = choose_calls([17], PACKED, Policy.READY_BUCKETS, {64, 128}.__contains__)
    assert choice.calls == (DeviceCall(0, 1, 0, 64),)


def test_chunks_of_a_smaller_ready_bucket_serve() -> None:
    choice = choose_calls([17], PACKED, Policy.READY_BUCKETS, {8}.__contains__)
    assert [call.first_row for call in choice.calls] == [0, 8, 16]


def test_the_host_policy_uses_no_other_bucket() -> None:
    assert choose_calls([17], PACKED, Policy.HOST, {64}.__contains__).calls == ()
