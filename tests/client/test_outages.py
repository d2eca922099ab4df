"""Waiting out an outage: how long a finished compile is kept for a service that is away."""

import pytest

from graphcache_client import LeaseLost, ServiceUnavailable
from graphcache_client.outages import keep_trying
from graphcache_wire import ErrorBody, ErrorCode


class FakeTime:
    """A clock that stands still but for pauses."""

    def __init__(self) -> None:
        self.now, self.pauses = 0.0, []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def unavailable() -> None:
    raise ServiceUnavailable("away")


def lease_lost() -> None:
    raise LeaseLost(409, ErrorBody(code=ErrorCode.LEASE_EXPIRED, message="gone", request_id="r", retryable=False))


def test_publishing_is_tried_with_growing_pauses_until_its_time_is_over():
    time = FakeTime()
    published = keep_trying(unavailable, give_up=lambda: False, pause=time.pause, for_s=120, clock=lambda: time.now)
    assert published is None
    assert time.pauses == [1, 2, 4, 8, 16, 30, 30, 29]


def test_publishing_ends_at_once_where_the_lease_is_lost():
    time = FakeTime()
    assert keep_trying(unavailable, give_up=lambda: True, pause=time.pause, for_s=120, clock=lambda: time.now) is None
    assert time.pauses == [1]


def test_without_patience_publishing_is_tried_once():
    time = FakeTime()
    assert keep_trying(unavailable, give_up=lambda: False, pause=time.pause, for_s=0, clock=lambda: time.now) is None
    assert time.pauses == []


def test_a_lost_lease_is_no_outage():
    with pytest.raises(LeaseLost):
        keep_trying(lease_lost, give_up=lambda: False, pause=FakeTime().pause, for_s=120)
