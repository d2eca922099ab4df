"""A worker's folder: its own while it lives, removed after it was killed."""

import pytest

from graphcache_runtime.commands import size_bytes
from graphcache_runtime.worker.folder import LOCK, work_folder


def test_what_a_killed_worker_left_is_removed_and_what_a_live_one_has_is_not(tmp_path):
    left = tmp_path / "worker-left"
    left.mkdir()
    (left / LOCK).touch()
    (left / "graph").write_bytes(b"half a graph")
    with work_folder(tmp_path) as living, work_folder(tmp_path) as other:
        assert not left.exists()
        assert living.exists()
        assert other != living
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("text", "size"), [("6G", 6 * 2**30), ("512m", 2**29), ("1.5 GiB", 3 * 2**29), ("1024", 1024)])
def test_sizes_are_read_in_binary_units(text, size):
    assert size_bytes(text.replace(" ", "")) == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "6X", "0", "6 apples"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="such as 6G"):
        size_bytes(text)
