"""CostMeter: the costs of this machine, measured on its own graphs and host kernel as they come to be there.

Whatever was not measured yet is what was given. A few calls beside training, once a graph and once a process: what real
calls take would change with their rows, and a cost that moves all the time would move hot sets with it.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final

import torch
from torch import Tensor

from graphcache_runtime.host.experts import HostKernel
from graphcache_runtime.planning.costs import Costs
from graphcache_runtime.routing import HostRows
from graphcache_runtime.weights.uploader import UploadCounts

CALL_TIMES: Final = 3
HOST_TIMES: Final = 7
"""The median of so many, after one that warms up. The host's are short: with 3 of them a busy machine gave 1.8 ms an
expert where 7 gave 0.7."""
HOST_EXPERTS: Final = 4
FEW, MANY = 1, 16
"""Rows an expert of the host's two measurements: their difference is the rows' cost, the rest the weights'."""

Size = tuple[int, int]
"""Slots and bucket of a call."""


@dataclass
class CostMeter:
    """``given`` is what counts until something is measured; without ``measures`` for good."""

    given: Costs
    measures: bool = False
    uploads: UploadCounts | None = None
    calls_s: dict[Size, float] = field(default_factory=dict)
    host: tuple[float, float] | None = None
    """Seconds for an expert, and for a row."""

    @property
    def costs(self) -> Costs:
        """The costs as they are known now."""
        costs = self.given
        if not self.measures:
            return costs
        if self.calls_s:
            call_s, row_s = fitted({slots * bucket: s for (slots, bucket), s in self.calls_s.items()}, self.given)
            costs = replace(costs, call_s=call_s, device_row_s=row_s)
        if self.host:
            costs = replace(costs, host_expert_s=self.host[0], host_row_s=self.host[1])
        if self.uploads and self.uploads.byte_s:
            costs = replace(costs, upload_byte_s=statistics.median(self.uploads.byte_s))
        return costs

    def of_rank_0(self) -> Costs:
        """Rank 0's costs on every rank of a torch.distributed job, so that all choose alike; else this process's own.

        Every rank must call it at the same forward, as for any collective.
        """
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return self.costs
        values = torch.tensor(astuple(self.costs), dtype=torch.float64)
        torch.distributed.broadcast(values, src=0)
        return Costs(*values.tolist())

    def measure_call(self, size: Size, run: Callable[[], object]) -> None:
        """Measure a device call of ``size``, its rows' way there and back included; once a size."""
        if size not in self.calls_s:
            self.calls_s[size] = _median_s(lambda _: run(), CALL_TIMES)

    def measure_host(self, kernel: HostKernel, gate_up: Tensor, down: Tensor) -> None:
        """Measure ``kernel`` on these weights, once. Each time with other experts, whose weights no cache holds."""
        if self.host is None:
            few_s, many_s = (_host_s(kernel, gate_up.detach(), down.detach(), rows) for rows in (FEW, MANY))
            row_s = max(0.0, (many_s - few_s) / (MANY - FEW))
            self.host = max(0.0, few_s - FEW * row_s), row_s

    def report(self) -> dict[str, Any]:
        """For the statistics: the costs, and which calls they were measured on. Empty lists: given, not measured."""
        calls = [{"slots": slots, "bucket": bucket, "s": s} for (slots, bucket), s in sorted(self.calls_s.items())]
        names = ("call_s", "device_row_s", "host_expert_s", "host_row_s", "upload_byte_s")
        uploads = len(self.uploads.byte_s) if self.measures and self.uploads else 0
        return dict(zip(names, astuple(self.costs), strict=True)) | {
            "measured_calls": calls,
            "measured_uploads": uploads,
            "measured_host": self.host is not None,
        }


def fitted(call_s: Mapping[int, float], given: Costs) -> tuple[float, float]:
    """A call's own seconds and those of a padded row, from the seconds of calls of so many padded rows.

    One size cannot tell the two apart: they share its seconds as in ``given``. Several: the line of least squares, with
    neither part below zero.
    """
    mean_rows, mean_s = statistics.fmean(call_s), statistics.fmean(call_s.values())
    spread = sum((rows - mean_rows) ** 2 for rows in call_s)
    if not spread:
        scale = mean_s / given.device_s(round(mean_rows))
        return given.call_s * scale, given.device_row_s * scale
    row_s = sum((rows - mean_rows) * (s - mean_s) for rows, s in call_s.items()) / spread
    if row_s <= 0:
        return mean_s, 0.0
    own_s = mean_s - row_s * mean_rows
    return (own_s, row_s) if own_s >= 0 else (0.0, mean_s / mean_rows)


def _host_s(kernel: HostKernel, gate_up: Tensor, down: Tensor, rows_each: int) -> float:
    """Seconds for one expert with so many rows."""
    experts = min(HOST_EXPERTS, gate_up.shape[0])
    at = torch.arange(experts * rows_each)
    x = torch.ones(experts * rows_each, gate_up.shape[2], dtype=kernel.rows_dtype(gate_up.dtype))

    def run(time_of: int) -> None:
        first = time_of * experts % (gate_up.shape[0] - experts + 1)
        rows = HostRows(at, at, tuple(range(first, first + experts)), (rows_each,) * experts)
        kernel.forward(x, rows, gate_up, down)

    return _median_s(run, HOST_TIMES) / experts


def _median_s(run: Callable[[int], object], times: int) -> float:
    seconds = []
    for number in range(times + 1):
        began = time.perf_counter()
        run(number)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])
