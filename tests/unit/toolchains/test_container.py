"""The container of NPU graphs: read without a compiler, and never believed unchecked."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from graphcache_runtime.toolchains.container import (
    DESCRIPTION,
    BadContainer,
    Description,
    TensorSpec,
    read_description,
    read_parts,
    write_container,
)
from graphcache_wire import GraphKey

RUNNABLE = Path(__file__).parents[2] / "fixtures" / "rngd" / "moe-experts-fwd_E32_H2048_F768_B64.runnable"
VERSION = "furiosa-torch-2026.4.0+fc43f6a779"
KEY = GraphKey(kind="moe-experts-fwd", e_hot=32, h=2048, f=768, bucket=64, toolchain=VERSION)


@pytest.fixture
def container(tmp_path: Path) -> Path:
    path = tmp_path / "graph"
    described = Description(
        key=KEY,
        toolchain=VERSION,
        inputs=(TensorSpec(name="x", shape=(32, 64, 2048), dtype="bf16"),),
        outputs=(TensorSpec(name="y", shape=(32, 64, 2048), dtype="bf16"),),
        parts={},
        seconds={"lower": 300.0},
        versions={"torch": "2.10.0"},
        settings={},
    )
    write_container(path, described, {"runnable": RUNNABLE.read_bytes(), "lowered": b"lowered" * 1000})
    return path


def changed(container: Path, name: str, data: bytes) -> Path:
    """The same container with other bytes for one entry."""
    path = container.with_name("changed")
    with zipfile.ZipFile(container) as old, zipfile.ZipFile(path, "w") as new:
        for entry in old.namelist():
            new.writestr(entry, data if entry == name else old.read(entry))
    return path


def test_what_is_written_is_read_and_takes_less_room(container):
    described = read_description(container)
    assert described.key == KEY
    assert described.inputs[0].shape == (32, 64, 2048)
    assert described.parts["runnable"].size_bytes == RUNNABLE.stat().st_size
    assert read_parts(container, ["runnable"]) == {"runnable": RUNNABLE.read_bytes()}
    assert container.stat().st_size < RUNNABLE.stat().st_size / 2


def test_it_is_read_without_the_compiler_and_without_torch(container):
    code = (
        "import sys; from pathlib import Path; from graphcache_runtime.toolchains.container import read_description\n"
        "print(read_description(Path(sys.argv[1])).key.label())\n"
        "assert not {'torch', 'furiosa'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(container)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == KEY.label()


def test_a_part_with_other_bytes_is_refused(container):
    flipped = bytearray(RUNNABLE.read_bytes())
    flipped[100] ^= 1
    for data in (bytes(flipped), b"", RUNNABLE.read_bytes() + b"x"):
        with pytest.raises(BadContainer, match="part runnable"):
            read_parts(changed(container, "runnable", data), ["runnable"])


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"format": 2}', b"\xff\xfe"])
def test_a_description_that_cannot_be_read_is_refused(container, data):
    with pytest.raises(BadContainer, match="description"):
        read_description(changed(container, DESCRIPTION, data))


def test_a_missing_part_and_a_file_that_is_no_container_are_refused(container, tmp_path):
    with pytest.raises(BadContainer, match="no part gate_up; it has lowered, runnable"):
        read_parts(container, ["gate_up"])
    (tmp_path / "cut").write_bytes(container.read_bytes()[:-100])
    with pytest.raises(BadContainer):
        read_description(tmp_path / "cut")
    with pytest.raises(BadContainer):
        read_description(tmp_path / "absent")
