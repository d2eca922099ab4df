"""Manifest files: what they ask for, and errors that name the place."""

import pytest

from graphcache_client import InvalidInput
from graphcache_client.manifest_file import manifest_text, read_manifest

GOOD = """
name = "job"
toolchain = "stub-1.0"
[[graphs]]
kinds = ["moe-experts-fwd", "moe-experts-bwd-lora"]
e_hot = 32
h = 2048
f = 768
buckets = [16, 32, 64]
"""


def read(tmp_path, text, toolchain=None):
    path = tmp_path / "m.toml"
    path.write_text(text)
    return read_manifest(path, toolchain)


def test_a_table_stands_for_kinds_times_buckets(tmp_path):
    request = read(tmp_path, GOOD)
    assert len(request.keys) == 6
    assert {(key.kind, key.bucket) for key in request.keys} == {
        (kind, bucket) for kind in ("moe-experts-fwd", "moe-experts-bwd-lora") for bucket in (16, 32, 64)
    }


def test_a_key_that_stands_twice_is_asked_for_once(tmp_path):
    assert len(read(tmp_path, GOOD + GOOD[GOOD.index("[[") :]).keys) == 6


def test_the_reader_may_give_the_toolchain(tmp_path):
    text = GOOD.replace('toolchain = "stub-1.0"', "")
    assert read(tmp_path, text, "other-2").keys[0].toolchain == "other-2"
    with pytest.raises(InvalidInput, match=r"graphs\.0 names no toolchain"):
        read(tmp_path, text)


def test_what_is_written_reads_back_to_the_same_keys(tmp_path):
    request = read(tmp_path, GOOD)
    assert read(tmp_path, manifest_text(request)).keys == request.keys


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name = ", "no TOML"),
        ('name = "job"', "graphs"),
        (GOOD.replace("e_hot = 32", 'e_hot = "32"'), r"graphs\.0\.e_hot"),
        (GOOD.replace("e_hot = 32", "e_hott = 32"), r"graphs\.0\.e_hott"),
        (GOOD.replace("64]", "65]"), r"graphs\.0\.bucket: .*no ladder"),
        (GOOD.replace("moe-experts-fwd", "moe"), r"graphs\.0\.kind"),
        (GOOD.replace('name = "job"', 'name = "job"\npriority = 1000'), "priority"),
        (GOOD.replace('name = "job"', 'name = "job"\ncolour = 1'), "colour"),
    ],
)
def test_an_error_names_its_place(tmp_path, text, place):
    with pytest.raises(InvalidInput, match=place):
        read(tmp_path, text)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInput, match=r"none\.toml: No such file"):
        read_manifest(tmp_path / "none.toml")
