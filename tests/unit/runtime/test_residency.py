"""Uploads: swapped in whole, bounded in wait, counted."""

import threading

import pytest
import torch
from fakes.dense_reference import error, problem, reference
from fakes.moe_layers import layer_for, run
from torch import Tensor

from graphcache_runtime.weights.residency import Residency, wanted
from graphcache_runtime.weights.uploader import Uploader, copy_tensor

CPU = torch.device("cpu")


def want(scale: float = 1.0, hot: tuple[int, ...] = (0, 2)) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    return torch.full((4, 6, 8), scale), torch.full((4, 8, 3), scale), hot


class HangingCopy:
    """A device whose copies hang until they are let go."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self, device_slot: Tensor, host_matrix: Tensor) -> None:
        self.go.wait(30)
        copy_tensor(device_slot, host_matrix)


def test_an_upload_that_hangs_costs_one_wait_and_then_none() -> None:
    copy = HangingCopy()
    residency = Residency("layer", Uploader(copy), timeout_s=0.01)
    gate_up, down, hot = want()
    assert residency.ensure(wanted(hot, gate_up, down, CPU)) is None
    assert residency.ensure(wanted(hot, gate_up, down, CPU)) is None
    assert residency._uploader.counts.late == 1
    copy.go.set()
    assert residency._pending is not None
    residency._pending.result(10)
    stack = residency.ensure(wanted(hot, gate_up, down, CPU))
    assert stack is not None
    assert stack.gate_up.shape == (2, 6, 8)


def test_a_layer_whose_upload_hangs_runs_on_the_host_and_says_so() -> None:
    p, copy = problem(12), HangingCopy()
    layer = layer_for(p, (0, 1), uploader=Uploader(copy), upload_timeout_s=0.01)
    got = run(layer, p)
    copy.go.set()
    assert error(got.out, reference(p).out) < 1e-5
    assert layer.stats.not_ready == {"upload late": 1}
    assert layer.stats.forward_calls == 0


def test_a_copy_that_fails_is_an_error_and_not_a_stale_weight() -> None:
    def broken(device_slot: Tensor, host_matrix: Tensor) -> None:
        raise RuntimeError("device lost")

    residency = Residency("layer", Uploader(broken))
    gate_up, down, hot = want()
    with pytest.raises(RuntimeError, match="device lost"):
        residency.ensure(wanted(hot, gate_up, down, CPU))


def test_an_upload_never_writes_into_what_may_be_running() -> None:
    residency = Residency("layer", Uploader())
    first = residency.ensure(wanted((0, 2), *want(1.0)[:2], CPU))
    second = residency.ensure(wanted((0, 2), *want(2.0)[:2], CPU))
    assert first is not None
    assert second is not None
    assert first.gate_up.data_ptr() != second.gate_up.data_ptr()
    assert bool((first.gate_up == 1).all())


def test_spare_memory_is_used_again_and_bounded() -> None:
    uploader = Uploader()
    residency = Residency("layer", uploader)
    stacks = [residency.ensure(wanted((0, 2), *want(float(n))[:2], CPU)) for n in range(6)]
    assert len({stack.gate_up.data_ptr() for stack in stacks if stack}) <= 3
    assert len(uploader._spares) <= 2


def test_a_prefetch_is_what_the_next_ensure_takes() -> None:
    residency = Residency("layer", Uploader())
    gate_up, down, hot = want()
    residency.prefetch(wanted(hot, gate_up, down, CPU))
    assert residency.ensure(wanted(hot, gate_up, down, CPU)) is not None
    assert residency._uploader.counts.uploads == 1
