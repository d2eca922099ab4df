"""What a layer did, counted: the numbers behind ``moe_stats()``."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphcache_runtime.weights.uploader import UploadCounts


@dataclass(slots=True)
class LayerStats:
    """Counts of one layer since ``enable``. Rows are assignments: one token to one expert."""

    forwards: int = 0
    backwards: int = 0
    forward_calls: int = 0
    backward_calls: int = 0
    rows: int = 0
    hot_rows: int = 0
    host_rows: int = 0
    overflow_rows: int = 0
    """Rows of hot experts that the host ran, because their bucket was full or their graph not ready."""
    padded_rows: int = 0
    """Rows that device calls computed, padding included."""
    kept_bytes: int = 0
    """The most that one forward kept on the device for its backward: gate_up's outputs, where they are kept."""
    ways: Counter[str] = field(default_factory=Counter)
    """How the calls were chosen, by name."""
    weighed_s: dict[str, dict[str, float]] = field(default_factory=dict)
    """Why: for each way that was chosen, the expected seconds of the ways that were weighed, summed over forwards."""
    not_ready: Counter[str] = field(default_factory=Counter)
    """Forwards that ran otherwise than wished, by reason."""
    busiest: Counter[int] = field(default_factory=Counter)
    """Forwards by the rows of their busiest hot expert: what a ladder is chosen from."""
    routed: Counter[int] = field(default_factory=Counter)
    """Rows by expert: what a hot set is chosen from."""
    recomputed: int = 0
    """Forwards that activation checkpointing ran again, on the first run's plan."""
    replans: int = 0


def summary(layers: Iterable[LayerStats], uploads: UploadCounts, costs: Mapping[str, Any]) -> dict[str, Any]:
    """The totals of all layers, ready for JSON."""
    totals = list(layers)

    def total(name: str) -> int:
        return sum(getattr(layer, name) for layer in totals)

    def merged(name: str) -> dict[Any, int]:
        whole: Counter[Any] = Counter()
        for layer in totals:
            whole.update(getattr(layer, name))
        return dict(sorted(whole.items()))

    rows, hot_rows = total("rows"), total("hot_rows")
    return {
        "layers": len(totals),
        "forwards": total("forwards"),
        "backwards": total("backwards"),
        "device_calls": total("forward_calls") + total("backward_calls"),
        "forward_calls": total("forward_calls"),
        "backward_calls": total("backward_calls"),
        "rows": rows,
        "hot_rows": hot_rows,
        "host_rows": total("host_rows"),
        "overflow_rows": total("overflow_rows"),
        "padded_rows": total("padded_rows"),
        "kept_bytes": total("kept_bytes"),
        "padding_ratio": total("padded_rows") / hot_rows if hot_rows else 0.0,
        "coverage": hot_rows / rows if rows else 0.0,
        "host_share": total("host_rows") / rows if rows else 0.0,
        "weight_uploads": uploads.uploads,
        "weight_upload_s": uploads.seconds,
        "weight_upload_bytes": uploads.size_bytes,
        "weight_uploads_late": uploads.late,
        "recomputed": total("recomputed"),
        "replans": total("replans"),
        "ways": merged("ways"),
        "weighed_s": _weighed(totals),
        "costs": dict(costs),
        "not_ready": merged("not_ready"),
        "busiest_expert_rows": merged("busiest"),
    }


def _weighed(layers: Sequence[LayerStats]) -> dict[str, dict[str, float]]:
    """For each way that was chosen by cost, the mean expected seconds of each way that was weighed then."""
    means: dict[str, dict[str, float]] = {}
    for way in sorted({way for layer in layers for way in layer.weighed_s}):
        forwards = sum(layer.ways[way] for layer in layers)
        sums = means.setdefault(way, {})
        for layer in layers:
            for other, seconds in layer.weighed_s.get(way, {}).items():
                sums[other] = sums.get(other, 0.0) + seconds / forwards
    return means
