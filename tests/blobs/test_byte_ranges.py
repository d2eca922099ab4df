"""Headers of partial content, parsed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcache_service.api.byte_ranges import ByteRange, ContentRange, sent_range, wanted_range


@given(st.integers(1, 10**12), st.integers(0, 10**12), st.integers(0, 10**12))
def test_wanted_range_lies_inside_the_blob(size_bytes: int, first: int, length: int) -> None:
    wanted = wanted_range(f"bytes={first}-{first + length}", size_bytes)
    if first >= size_bytes:
        assert wanted == "unsatisfiable"
    else:
        assert wanted == ByteRange(first, min(size_bytes, first + length + 1))


@given(st.text(max_size=40), st.integers(1, 10**6))
def test_no_header_breaks_the_parser(header: str, size_bytes: int) -> None:
    wanted = wanted_range(header, size_bytes)
    if isinstance(wanted, ByteRange):
        assert 0 <= wanted.start < wanted.stop <= size_bytes
    sent_range(header)


@given(st.integers(1, 10**12), st.integers(1, 10**6))
def test_suffix_gives_the_last_bytes(size_bytes: int, suffix: int) -> None:
    assert wanted_range(f"bytes=-{suffix}", size_bytes) == ByteRange(max(0, size_bytes - suffix), size_bytes)


@pytest.mark.parametrize(
    ("header", "parsed"),
    [
        ("bytes 0-9/10", ContentRange(ByteRange(0, 10), 10)),
        ("bytes 5-5/10", ContentRange(ByteRange(5, 6), 10)),
        ("bytes */10", ContentRange(None, 10)),
        ("bytes 5-10/10", None),
        ("bytes 5-4/10", None),
        ("bytes=0-9/10", None),
        ("bytes 0-9/*", None),
        ("", None),
    ],
)
def test_content_range_is_parsed_or_refused(header: str, parsed: ContentRange | None) -> None:
    assert sent_range(header) == parsed
