"""Buckets and chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcache_runtime.ladder import LADDERS, Ladder

RUNGS = st.lists(st.sampled_from([1, 2, 4, 8, 16, 24, 64, 256, 1024]), min_size=1, unique=True).map(sorted).map(tuple)


@given(RUNGS, st.integers(0, 5000))
def test_chunks_cover_each_row_once_in_order(rungs: tuple[int, ...], rows: int) -> None:
    chunks = Ladder(rungs).chunks(rows)
    covered = [row for chunk in chunks for row in range(chunk.start, chunk.start + chunk.rows)]
    assert covered == list(range(rows))
    assert all(chunk.rows <= chunk.bucket and chunk.bucket in rungs for chunk in chunks)


@given(RUNGS, st.integers(1, 5000))
def test_a_bucket_is_the_smallest_rung_that_holds_the_rows(rungs: tuple[int, ...], rows: int) -> None:
    bucket = Ladder(rungs).bucket_for(rows)
    assert bucket in rungs
    assert all(rung >= bucket for rung in rungs if rung >= rows)


@pytest.mark.parametrize("rows", [300, 301, 302, 303, 320])
def test_long_prefills_on_the_rngd_ladder_ask_for_256_and_64(rows: int) -> None:
    assert {chunk.bucket for chunk in LADDERS["rngd"].chunks(rows)} == {256, 64}


@pytest.mark.parametrize(
    ("rungs", "says"),
    [((), "at least one"), ((4, 1), "ascend"), ((8, 8), "ascend"), ((3,), "bucket of 3"), ((2048,), "bucket of 2048")],
)
def test_rungs_that_no_graph_has_are_refused(rungs: tuple[int, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Ladder(rungs)


def test_a_bucket_for_no_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one row, not 0"):
        LADDERS["packed"].bucket_for(0)


def test_the_ladder_up_to_some_rows_ends_with_their_bucket() -> None:
    assert LADDERS["packed"].up_to(33).rungs == (8, 16, 32, 64)
    assert LADDERS["rngd"].up_to(10_000) == LADDERS["rngd"]


def test_the_platforms_ladders_are_these() -> None:
    assert LADDERS["rngd"].rungs == (1, 4, 16, 64, 256)
    assert LADDERS["atom"].largest == 64
    assert LADDERS["packed"].rungs == (8, 16, 32, 64, 128, 256, 512, 1024)
