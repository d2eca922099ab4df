"""GraphKey: everything that changes the bytes of a compiled graph, and nothing else.

A key has one canonical form (JSON, sorted, no spaces, ASCII) and its sha256 is the key's digest. The form is versioned:
a change of the rules below makes a new ``KEY_VERSION``, so old digests never come to mean something else. A golden file
of keys and digests under ``tests/contract`` holds this.
"""

import hashlib
import json
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Final, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from graphcache_wire.base import ToolchainVersion, WireModel, is_sha256

KEY_VERSION: Final = 1

MAX_EXPERTS: Final = 4_096
MAX_WIDTH: Final = 65_536
MAX_BUCKET: Final = 1_024
MAX_OPTIONS: Final = 32

DTYPES: Final = ("bf16", "fp32")
MODES: Final = ("inputs", "baked")
KEEPS: Final = ("gate_up",)


class Kind(StrEnum):
    """What a graph computes. Legend: E hot experts, B rows of the bucket, H model size, F expert size.

    All kinds take ``x[E, B, H]``, ``gate_up[E, 2F, H]`` (gate first) and ``down[E, H, F]``; a backward takes
    ``dy[E, B, H]`` behind them. With the option ``keep`` a forward also returns ``h[E, B, 2F]``, and a backward takes
    it in the place of ``x``. See ``graphcache_runtime.experts`` for their definitions.
    """

    EXPERTS_FORWARD = "moe-experts-fwd"
    """``y[E, B, H]``."""
    EXPERTS_BACKWARD_LORA = "moe-experts-bwd-lora"
    """``dx[E, B, H]``: the experts are frozen."""
    EXPERTS_BACKWARD_FULL = "moe-experts-bwd-full"
    """``dx``, ``dgate_up[E, 2F, H]``, ``ddown[E, H, F]``."""
    VENDOR_ENTRY = "vendor-cache-entry"
    """No graph of ours, but an entry of a vendor compiler's own cache. Its sizes are 1, its mode is baked, and
    ``weights`` is the sha256 of the vendor's key: shared like a graph, but no worker is asked to compile it."""


def is_bucket(rows: int) -> bool:
    """Whether some ladder may have a rung of ``rows`` rows: 1, 2, 4, or a multiple of 8 up to ``MAX_BUCKET``.

    Devices want rows in eights; the small rungs serve decoding. Other row counts are what an unpadded input asks for,
    and each of those would be one more graph.
    """
    return rows in (1, 2, 4) or (rows % 8 == 0 and 8 <= rows <= MAX_BUCKET)


OptionName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.]{0,47}$")]
OptionValue = Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]{0,256}$", strict=True)]


class GraphKey(WireModel):
    """Names one compiled graph.

    ``options`` is an open map of strings. Four are known to every toolchain. Two are filled in when left out, so that a
    key has one form: ``dtype`` (bf16) and ``mode`` (inputs). In baked mode only, ``weights`` is the sha256 of the
    weights that are constants of the graph; in inputs mode only, ``keep`` is what forward hands to backward.

    Raises:
        pydantic.ValidationError: a field is missing, unknown, of the wrong type or out of range.
    """

    kind: Kind
    e_hot: Annotated[int, Field(strict=True, ge=1, le=MAX_EXPERTS)]
    h: Annotated[int, Field(strict=True, ge=1, le=MAX_WIDTH)]
    f: Annotated[int, Field(strict=True, ge=1, le=MAX_WIDTH)]
    bucket: Annotated[int, Field(strict=True, ge=1, le=MAX_BUCKET)]
    toolchain: ToolchainVersion
    options: Annotated[dict[OptionName, OptionValue], Field(max_length=MAX_OPTIONS)] = Field(
        default_factory=dict, validate_default=True
    )

    @field_validator("bucket")
    @classmethod
    def _bucket_is_on_a_ladder(cls, bucket: int) -> int:
        if not is_bucket(bucket):
            raise ValueError(
                f"no ladder has a bucket of {bucket} rows: use 1, 2, 4 or a multiple of 8 up to {MAX_BUCKET}, "
                "and pad the rows to it"
            )
        return bucket

    @field_validator("options", mode="after")
    @classmethod
    def _options_have_one_form(cls, options: dict[str, str]) -> dict[str, str]:
        whole = {"dtype": "bf16", "mode": "inputs"} | options
        if whole["dtype"] not in DTYPES:
            raise ValueError(f"dtype is one of {', '.join(DTYPES)}, not {whole['dtype']!r}")
        if whole["mode"] not in MODES:
            raise ValueError(f"mode is one of {', '.join(MODES)}, not {whole['mode']!r}")
        if "keep" in whole and (whole["keep"] not in KEEPS or whole["mode"] == "baked"):
            raise ValueError(f"keep is one of {', '.join(KEEPS)}, in inputs mode, or left out; not {whole['keep']!r}")
        if whole["mode"] == "baked" and not is_sha256(whole.get("weights", "")):
            raise ValueError("baked mode needs the option weights: the sha256 of the weights inside the graph")
        if whole["mode"] == "inputs" and "weights" in whole:
            raise ValueError(
                "the option weights belongs to baked mode: in inputs mode weights are no part of the graph"
            )
        return dict(sorted(whole.items()))

    @model_validator(mode="after")
    def _backward_takes_weights_as_inputs(self) -> Self:
        if self.mode == "baked" and self.kind not in (Kind.EXPERTS_FORWARD, Kind.VENDOR_ENTRY):
            raise ValueError("a backward takes its weights as inputs: mode baked is for moe-experts-fwd alone")
        return self

    @model_validator(mode="after")
    def _vendor_entry_has_no_shape(self) -> Self:
        sizes = (self.e_hot, self.h, self.f, self.bucket)
        if self.kind is Kind.VENDOR_ENTRY and (self.mode != "baked" or sizes != (1, 1, 1, 1)):
            raise ValueError("a vendor-cache-entry has mode baked, and e_hot, h, f and bucket 1")
        return self

    @property
    def dtype(self) -> str:
        return self.options["dtype"]

    @property
    def mode(self) -> str:
        return self.options["mode"]

    @property
    def weights(self) -> str | None:
        """The sha256 of the weights of a baked graph."""
        return self.options.get("weights")

    @property
    def keeps_gate_up(self) -> bool:
        """Whether gate_up's product goes from forward to backward, instead of being computed twice."""
        return self.options.get("keep") == "gate_up"

    def canonical(self) -> str:
        """The one text of this key: what is hashed, and what a person compares."""
        fields: dict[str, Any] = {"key_version": KEY_VERSION} | self.model_dump(mode="json")
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @cached_property
    def digest(self) -> str:
        """sha256 of the canonical form, 64 lower-case hexadecimal digits."""
        return hashlib.sha256(self.canonical().encode("ascii")).hexdigest()

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraphKey) and self.digest == other.digest

    def label(self) -> str:
        """For people: ``moe-experts-fwd E32 H2048 F768 B64 bf16``."""
        if self.kind is Kind.VENDOR_ENTRY:
            return f"{self.kind} {(self.weights or '')[:16]}"
        baked = f" baked {self.weights[:8]}" if self.weights else ""
        kept = " keep" if self.keeps_gate_up else ""
        return f"{self.kind} E{self.e_hot} H{self.h} F{self.f} B{self.bucket} {self.dtype}{baked}{kept}"
