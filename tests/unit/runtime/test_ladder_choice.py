"""The ladder as an optimisation: never dearer than what it is compared with."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcache_runtime.ladder import LADDERS, Ladder
from graphcache_runtime.planning.costs import RNGD
from graphcache_runtime.planning.ladder_choice import Prices, choose_ladder, report

PRICES = Prices(RNGD, slots=32, forwards=100_000)
HISTOGRAMS = st.dictionaries(st.integers(1, 128), st.integers(1, 50), min_size=1, max_size=8)


def total_s(ladder: Ladder, busiest: dict[int, int], prices: Prices = PRICES) -> float:
    return report(ladder, busiest, prices).call_s + len(ladder.rungs) * prices.rung_s


@settings(max_examples=30)
@given(HISTOGRAMS)
def test_no_ladder_of_the_same_rungs_is_cheaper(busiest: dict[int, int]) -> None:
    candidates = sorted({-(-rows // 8) * 8 for rows in busiest})
    best = total_s(choose_ladder(busiest, PRICES), busiest)
    for count in range(len(candidates)):
        for rungs in combinations(candidates[:-1], count):
            assert best <= total_s(Ladder((*rungs, candidates[-1])), busiest) + 1e-12


@settings(max_examples=30)
@given(HISTOGRAMS, st.integers(1, 4))
def test_a_fixed_number_of_rungs_is_kept_and_holds_every_row(busiest: dict[int, int], rungs: int) -> None:
    ladder = choose_ladder(busiest, PRICES, rungs)
    assert len(ladder.rungs) <= rungs
    assert ladder.largest >= max(busiest)


def test_dear_compiles_leave_one_rung() -> None:
    busiest = {8: 10, 64: 10, 128: 10}
    assert choose_ladder(busiest, Prices(RNGD, 32, forwards=10)).rungs == (128,)
    assert choose_ladder(busiest, Prices(RNGD, 32, forwards=10**9)).rungs == (8, 64, 128)


def test_rows_above_the_largest_bucket_are_chunked() -> None:
    assert choose_ladder({1024 + 60: 5}, PRICES).rungs == (64,)
    assert report(Ladder((64, 1024)), {1024 + 60: 5}, PRICES).calls == 2


def test_three_chosen_rungs_cost_no_more_than_eight_powers_of_two() -> None:
    busiest = {40 + 2 * n: 10 + n for n in range(30)}
    ours = choose_ladder(busiest, PRICES, 3)
    assert total_s(ours, busiest) <= total_s(LADDERS["packed"], busiest)


def test_a_report_counts_padding_calls_and_compiles() -> None:
    got = report(Ladder((8, 16)), {8: 1, 12: 1}, Prices(RNGD, 1, forwards=2, compile_s=100.0))
    assert (got.padding_ratio, got.calls, got.graphs, got.compile_s) == (24 / 20, 1.0, 4, 400.0)


def test_nothing_counted_is_refused() -> None:
    with pytest.raises(ValueError, match="no forwards were counted"):
        choose_ladder({}, PRICES)
    with pytest.raises(ValueError, match="no forwards were counted"):
        choose_ladder({0: 12}, PRICES)
