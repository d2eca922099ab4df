"""Keys: one canonical form and one digest for ever, held by a golden file."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from graphcache_wire import GraphKey

GOLDEN = Path(__file__).parent / "golden_keys.json"
FIELDS = {
    "kind": "moe-experts-fwd",
    "e_hot": 32,
    "h": 2048,
    "f": 768,
    "bucket": 64,
    "toolchain": "furiosa-torch-2026.4.0+fc43f6a779",
}


def key(**changes: object) -> GraphKey:
    return GraphKey.model_validate(FIELDS | changes)


@pytest.mark.parametrize("entry", json.loads(GOLDEN.read_text()), ids=lambda entry: entry["digest"][:12])
def test_golden_keys_keep_their_canonical_form_and_digest(entry):
    found = GraphKey.model_validate(entry["key"])
    assert found.canonical() == entry["canonical"]
    assert found.digest == entry["digest"]


def test_the_golden_file_covers_every_kind_dtype_and_mode():
    entries = [GraphKey.model_validate(entry["key"]) for entry in json.loads(GOLDEN.read_text())]
    assert {entry.kind for entry in entries} == {"moe-experts-fwd", "moe-experts-bwd-lora", "moe-experts-bwd-full"}
    assert {entry.dtype for entry in entries} == {"bf16", "fp32"}
    assert {entry.mode for entry in entries} == {"inputs", "baked"}


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "moe-experts-bwd-lora"},
        {"e_hot": 33},
        {"h": 2056},
        {"f": 776},
        {"bucket": 72},
        {"toolchain": "furiosa-torch-2026.4.0+fc43f6a77a"},
        {"options": {"dtype": "fp32"}},
        {"options": {"mode": "baked", "weights": "0" * 64}},
        {"options": {"keep": "gate_up"}},
        {"options": {"target": "rngd-2"}},
        {"options": {"flags": "-O3"}},
    ],
    ids=str,
)
def test_each_ingredient_changes_the_key(changes):
    assert key(**changes).digest != key().digest


def test_options_left_out_and_options_spelled_out_are_one_key():
    assert key().digest == key(options={"mode": "inputs", "dtype": "bf16"}).digest


@given(st.permutations(list(FIELDS)), st.permutations(["target", "flags", "dtype"]))
def test_the_order_of_fields_and_options_does_not_matter(fields, names):
    values = {"target": "a", "flags": "b", "dtype": "fp32"}
    shuffled = {name: FIELDS[name] for name in fields} | {"options": {name: values[name] for name in names}}
    assert GraphKey.model_validate_json(json.dumps(shuffled)) == key(options=values)


@pytest.mark.parametrize(("one", "other"), [({"e_hot": 1, "h": 23}, {"e_hot": 12, "h": 3})])
def test_neighbouring_numbers_never_run_together(one, other):
    assert key(**one).digest != key(**other).digest


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_no_separator_can_be_forged_in_options(name, value, other_name, other_value):
    try:
        one, other = key(options={name: value}), key(options={other_name: other_value})
    except ValidationError:
        return
    assert (one.digest == other.digest) == (one.options == other.options)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"e_hot": "32"}, "e_hot"),
        ({"h": 2048.0}, "h"),
        ({"f": True}, "f"),
        ({"e_hot": 0}, "e_hot"),
        ({"h": -1}, "h"),
        ({"h": 2**70}, "h"),
        ({"bucket": 300}, "bucket"),
        ({"bucket": 5}, "bucket"),
        ({"bucket": 2048}, "bucket"),
        ({"kind": "moe-experts"}, "kind"),
        ({"toolchain": "../x"}, "toolchain"),
        ({"toolchain": ""}, "toolchain"),
        ({"options": {"dtype": 16}}, "options.dtype"),
        ({"options": {"dtype": "int4"}}, "options"),
        ({"options": {"mode": "baked"}}, "options"),
        ({"options": {"weights": "0" * 64}}, "options"),
        ({"options": {"keep": "x"}}, "options"),
        ({"options": {"keep": "gate_up", "mode": "baked", "weights": "0" * 64}}, "options"),
        ({"options": {"Bad Name": "x"}}, "options.Bad Name.[key]"),
        ({"host": "node-1"}, "host"),
    ],
    ids=str,
)
def test_a_wrong_field_is_refused_by_its_name(changes, place):
    with pytest.raises(ValidationError) as refused:
        key(**changes)
    assert ".".join(map(str, refused.value.errors()[0]["loc"])) == place


def test_a_missing_field_is_refused_by_its_name():
    with pytest.raises(ValidationError, match="bucket"):
        GraphKey.model_validate({name: value for name, value in FIELDS.items() if name != "bucket"})
