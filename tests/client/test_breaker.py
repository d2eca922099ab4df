"""CircuitBreaker, with a clock that the test moves."""

from graphcache_client.breaker import FAILURES_TO_OPEN, FIRST_PAUSE_S, LONGEST_PAUSE_S, CircuitBreaker


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Clock) -> CircuitBreaker:
    breaker = CircuitBreaker(clock)
    for _ in range(FAILURES_TO_OPEN):
        breaker.failed()
    return breaker


def test_a_few_failures_refuse_calls_at_once():
    assert opened(Clock()).refused_for_s() == FIRST_PAUSE_S


def test_one_failure_refuses_nothing():
    breaker = CircuitBreaker(Clock())
    breaker.failed()
    assert breaker.refused_for_s() is None


def test_after_the_pause_one_call_may_try_and_the_others_wait():
    clock = Clock()
    breaker = opened(clock)
    clock.now = FIRST_PAUSE_S
    assert breaker.refused_for_s() is None
    assert breaker.refused_for_s() is not None


def test_a_trial_that_succeeds_closes_it():
    clock = Clock()
    breaker = opened(clock)
    clock.now = FIRST_PAUSE_S
    assert breaker.refused_for_s() is None
    breaker.succeeded()
    assert breaker.refused_for_s() is None


def test_failed_trials_double_the_pause_up_to_a_limit():
    clock = Clock()
    breaker = opened(clock)
    for _ in range(10):
        clock.now += LONGEST_PAUSE_S
        assert breaker.refused_for_s() is None
        breaker.failed()
    assert breaker.refused_for_s() == LONGEST_PAUSE_S
