"""The vendor's cache entries: packed, shared through a real service, checked, and put in place whole or not at all."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.running_service import RunningService
from pydantic import ValidationError

from graphcache_client import ServiceClient, Signer
from graphcache_client.signing import generate_key
from graphcache_runtime.vendor.cache import FILES, BadVendorEntry, entries, entry_key, pack, unpack
from graphcache_runtime.vendor.share import pull, push
from graphcache_wire import ClaimRequest, GraphKey

REVISION = "fc43f6a779"


def write_entry(root: Path, name: str, content: bytes = b"") -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    for file in FILES:
        (folder / file).write_bytes(f"{file} of {name}".encode() + content)
    (folder / "compile_params.yaml").write_text(f"---\ncompiler_revision: {REVISION}\nnpu_config:\n  num_pe: 8\n")
    (folder / "input.ir_viewer.json").write_text("{}")
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    root = tmp_path / "first" / "compiler"
    write_entry(root, "0123456789abcdef")
    write_entry(root, "fedcba9876543210")
    return root


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[RunningService]:
    service = RunningService(tmp_path_factory.mktemp("service"))
    yield service
    service.stop()


@pytest.fixture
def service(running) -> Iterator[ServiceClient]:
    with ServiceClient(running.url) as client:
        yield client


def contents(root: Path) -> dict[str, bytes]:
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in root.glob("*/*") if path.name in FILES}


def test_unfinished_and_foreign_folders_are_no_entries(cache):
    (cache / "0123456789abcdef" / "output.bin").unlink()
    (cache / "notes").mkdir()
    assert [entry.folder.name for entry in entries(cache)] == ["fedcba9876543210"]
    assert list(entries(cache / "absent")) == []


def test_a_packed_entry_is_the_same_bytes_each_time_and_unpacks_whole(cache, tmp_path):
    entry = next(entries(cache))
    pack(entry, tmp_path / "a")
    pack(entry, tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    put = unpack(tmp_path / "a", entry.key, tmp_path / "other")
    assert unpack(tmp_path / "b", entry.key, tmp_path / "other") == put
    assert contents(put.parent) == {name: data for name, data in contents(cache).items() if put.name in name}


@pytest.mark.parametrize("name", ["../0123456789abcdef/key.bin", "0123456789abcdef/more", "notes/key.bin", "/etc/x"])
def test_other_files_than_an_entrys_are_refused_and_nothing_is_left(cache, tmp_path, name):
    entry = next(entries(cache))
    pack(entry, tmp_path / "packed")
    with zipfile.ZipFile(tmp_path / "packed", "a") as file:
        file.writestr(name, b"x")
    with pytest.raises(BadVendorEntry, match="does not hold the 4 files"):
        unpack(tmp_path / "packed", entry.key, tmp_path / "other")
    assert list((tmp_path / "other").iterdir()) == []


def test_the_entry_of_another_key_or_revision_is_refused(cache, tmp_path):
    first, second = entries(cache)
    pack(first, tmp_path / "packed")
    for key in (second.key, entry_key(first.key_sha256, "0000000000")):
        with pytest.raises(BadVendorEntry, match="asked for"):
            unpack(tmp_path / "packed", key, tmp_path / "other")
    (tmp_path / "noise").write_bytes(b"no zip")
    with pytest.raises(BadVendorEntry):
        unpack(tmp_path / "noise", first.key, tmp_path / "other")


def test_what_one_home_pushed_another_pulls_byte_for_byte(service, cache, tmp_path):
    assert push(service, cache).moved == 2
    assert (push(service, cache).moved, push(service, cache).there) == (0, 2)
    other = tmp_path / "second" / "compiler"
    pulled = pull(service, other, REVISION)
    assert pulled.moved >= 2
    assert contents(cache).items() <= contents(other).items()
    assert pull(service, other, REVISION).moved == 0
    assert pull(service, tmp_path / "third", "another-revision").moved == 0


def test_no_worker_is_asked_to_compile_an_entry(service, cache):
    key = next(entries(cache)).key
    claimed = service.claim(ClaimRequest(owner=service.owner, holder="w", toolchains=[key.toolchain]))
    assert claimed.lease is None


def test_only_entries_signed_by_a_trusted_key_are_pulled(service, tmp_path):
    root = tmp_path / "signed" / "compiler"
    write_entry(root, "00000000000000aa", b"signed")
    mine = generate_key(tmp_path / "key")
    push(service, root, Signer.from_file(tmp_path / "key"))
    write_entry(root, "00000000000000bb", b"unsigned")
    push(service, root)
    other = tmp_path / "other"
    assert pull(service, other, REVISION, trusted_keys=[mine]).skipped >= 1
    assert [entry.folder.name for entry in entries(other)] == ["00000000000000aa"]


@pytest.mark.parametrize("change", [{"e_hot": 2}, {"options": {}}, {"bucket": 8}])
def test_a_key_of_an_entry_has_no_shape_and_is_baked(change):
    fields = entry_key("0" * 64, REVISION).model_dump(mode="json")
    with pytest.raises(ValidationError, match="vendor-cache-entry"):
        GraphKey.model_validate(fields | change)
