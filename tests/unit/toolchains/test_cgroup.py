"""Memory limits and kills for want of memory, as control groups of v1 and v2 tell them, in a container and outside."""

from pathlib import Path

import pytest

from graphcache_runtime.compiling.cgroup import memory_limit_bytes, oom_kills

UNLIMITED_V1 = 9223372036854771712
GIB = 2**30


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(text))


@pytest.fixture
def machine(tmp_path):
    """A machine whose kernel counted 7 kills in all."""
    write(tmp_path / "vmstat", "pgfault 1\noom_kill 7\n")
    return tmp_path


def kills(machine):
    found = oom_kills(machine / "root", machine / "own", machine / "vmstat")
    return found.count, found.source.name


def limit(machine):
    return memory_limit_bytes(machine / "root", machine / "own")


def version_2(machine, path: str) -> None:
    write(machine / "root" / "cgroup.controllers", "cpu memory")
    write(machine / "own", f"0::{path}\n")


def test_version_2_tells_of_the_own_group(machine):
    version_2(machine, "/pod/worker")
    write(machine / "root/pod/worker/memory.events", "oom 3\noom_kill 2\noom_group_kill 0\n")
    write(machine / "root/pod/worker/memory.max", "max\n")
    assert kills(machine) == (2, "memory.events")
    assert limit(machine) is None
    write(machine / "root/pod/memory.max", 4 * GIB)
    assert limit(machine) == 4 * GIB


def test_in_a_container_the_mount_is_the_own_group(machine):
    version_2(machine, "/as/the/host/names/it")
    write(machine / "root/memory.events", "oom_kill 1\n")
    write(machine / "root/memory.max", 2 * GIB)
    assert kills(machine) == (1, "memory.events")
    assert limit(machine) == 2 * GIB


def test_version_1_tells_of_the_own_group(machine):
    write(machine / "own", "4:memory:/job\n1:cpu:/\n0::/\n")
    write(machine / "root/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    write(machine / "root/memory/job/memory.limit_in_bytes", 3 * GIB)
    write(machine / "root/memory/memory.limit_in_bytes", UNLIMITED_V1)
    assert kills(machine) == (5, "memory.oom_control")
    assert limit(machine) == 3 * GIB


def test_where_the_group_does_not_say_the_whole_machines_count_is_taken(machine):
    version_2(machine, "/")
    assert kills(machine) == (7, "vmstat")
    assert limit(machine) is None


def test_without_any_count_none_was_killed(tmp_path):
    assert kills(tmp_path) == (0, "vmstat")
