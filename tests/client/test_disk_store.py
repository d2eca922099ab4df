"""DiskStore: whole or absent, checked at every read, shared by processes."""

import hashlib
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from graphcache_client import DiskStore, StoreUnusable
from graphcache_wire import Artifact

KEY = "1" * 64


def artifact(content: bytes, key: str = KEY) -> Artifact:
    return Artifact(
        key_digest=key,
        blob=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        toolchain="stub-1.0",
        compile_s=1.0,
        producer="node",
        producer_id="a" * 32,
        created_at=datetime.now(UTC),
    )


def put(store: DiskStore, content: bytes, key: str = KEY) -> Artifact:
    written = artifact(content, key)
    with store.temporary_file() as temporary:
        temporary.write_bytes(content)
        store.write(written, temporary)
    return written


def test_what_was_written_is_read_back(store):
    written = put(store, b"graph")
    path, read = store.read(KEY, None)
    assert (path.read_bytes(), read) == (b"graph", written)


def test_an_unknown_key_is_a_miss_without_a_reason(store):
    reasons = []
    assert store.read(KEY, None, reasons.append) is None
    assert reasons == []


@pytest.mark.parametrize("damage", ["cut", "flip", "remove", "entry"])
def test_a_broken_entry_is_a_miss_once_and_heals_with_the_next_write(store, damage):
    written = put(store, b"graph")
    blob = store.blob_path(written.blob)
    if damage == "entry":
        store._entry(KEY).write_text("{}")
    elif damage == "remove":
        blob.unlink()
    else:
        blob.write_bytes(b"grap" if damage == "cut" else b"grapH")
    assert store.read(KEY, None) is None
    put(store, b"graph")
    assert store.read(KEY, None)[0].read_bytes() == b"graph"


@pytest.mark.parametrize(("damage", "reason"), [(b"grap", "4 bytes"), (b"grapH", "sha256")])
def test_the_reason_of_a_broken_entry_is_told(store, damage, reason):
    reasons = []
    store.blob_path(put(store, b"graph").blob).write_bytes(damage)
    store.read(KEY, None, reasons.append)
    assert reason in reasons[0]


def test_an_entry_of_another_key_is_never_read(store):
    put(store, b"graph")
    other = "2" * 64
    store._entry(other).parent.mkdir(parents=True, exist_ok=True)
    store._entry(other).write_bytes(store._entry(KEY).read_bytes())
    assert store.read(other, None) is None


def test_two_keys_with_the_same_bytes_share_one_blob(store):
    put(store, b"same", "1" * 64)
    put(store, b"same", "2" * 64)
    assert store.used_bytes() == 4
    assert store.read("1" * 64, None)[0] == store.read("2" * 64, None)[0]


def test_the_folder_is_the_users_alone(tmp_path):
    store = DiskStore(tmp_path / "new")
    assert store.root.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_is_refused(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(StoreUnusable, match="chmod 700"):
        DiskStore(tmp_path / "open")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnusable, match="file"):
        DiskStore(tmp_path / "file" / "below")


def test_the_least_recently_read_goes_when_there_is_too_much(tmp_path):
    store = DiskStore(tmp_path / "small", max_bytes=10)
    old, kept = put(store, b"123456", "1" * 64), put(store, b"abc", "2" * 64)
    os.utime(store.blob_path(old.blob), (0, 0))
    put(store, b"ABCD", "3" * 64)
    assert store.read("1" * 64, None) is None
    assert store.read("2" * 64, None)[1] == kept


def test_nothing_temporary_is_left(store):
    put(store, b"graph")
    with store.temporary_folder() as folder:
        (folder / "x").write_text("x")
    assert list((store.root / "v1" / "tmp").iterdir()) == []


def test_the_kernel_frees_the_lock_of_a_killed_process(store):
    script = (
        "import sys, pathlib; from graphcache_client import DiskStore\n"
        f"with DiskStore(pathlib.Path({str(store.root)!r})).lock({KEY!r}): print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with store.lock(KEY, deadline=0.0) as held:
        assert not held
    holder.kill()
    holder.wait()
    with store.lock(KEY) as held:
        assert held


READ_WITHOUT_DESCRIPTORS = """
import os, resource, sys
from pathlib import Path
from graphcache_client import DiskStore
store, reasons = DiskStore(Path(sys.argv[1])), []
taken = [os.open("/dev/null", os.O_RDONLY)]
resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
print(store.read(sys.argv[2], None, reasons.append), reasons)
"""


def test_an_entry_that_cannot_be_read_now_is_a_miss_with_a_reason_and_stays(store):
    put(store, b"graph")
    run = [sys.executable, "-c", READ_WITHOUT_DESCRIPTORS, str(store.root), KEY]
    told = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert told.startswith("None")
    assert "Too many open files" in told
    assert store.read(KEY, None) is not None
