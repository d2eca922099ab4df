"""What a layer asks for and how often: graphs, calls, uploads."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
import torch
from fakes.dense_reference import Problem, error, problem, reference
from fakes.moe_layers import layer_for, run
from fakes.torch_graphs import TorchGraphs
from torch import nn

from graphcache_runtime.autograd import backward_kind, run_layer
from graphcache_runtime.layer import HotLayer
from graphcache_runtime.weights.stamps import watch_optimizers

P = problem(33)


class Trainee:
    """A layer with parameters that stay the same objects between steps."""

    def __init__(self, layer: HotLayer, *, frozen: bool) -> None:
        self.layer = layer
        self.gate_up = nn.Parameter(P.gate_up.clone(), requires_grad=not frozen)
        self.down = nn.Parameter(P.down.clone(), requires_grad=not frozen)

    def step(self) -> torch.Tensor:
        x = P.x_TH.clone().requires_grad_()
        plan = self.layer.plan(P.index_TK, self.gate_up, self.down, backward_kind(x, self.gate_up, self.down))
        out = run_layer(x, P.weights_TK, self.gate_up, self.down, self.layer, plan)
        out.backward(P.dout_TH)
        return out.detach()

    @property
    def uploads(self) -> int:
        return self.layer.shared.uploader.counts.uploads

    def assert_uses_its_weights(self) -> None:
        assert error(self.step(), reference(replace(P, gate_up=self.gate_up, down=self.down)).out) < 1e-5


def test_a_step_makes_two_device_calls_and_48_layers_make_96() -> None:
    layers = [layer_for(P, (0, 1, 2)) for _ in range(48)]
    for layer in layers:
        run(layer, P, full=False)
    assert sum(layer.stats.forward_calls + layer.stats.backward_calls for layer in layers) == 96


def test_one_key_for_all_experts_of_a_shape_and_bucket() -> None:
    graphs = TorchGraphs()
    for hot in ((0, 1, 2), (3, 4, 5)):
        run(layer_for(P, hot, graphs=graphs), P)
    keys = set(graphs.loads)
    assert all(key.kind.value.startswith("moe-experts") and key.e_hot == 3 for key in keys)
    assert len(keys) == len({(key.kind, key.bucket) for key in keys})


def test_the_bucket_is_the_busiest_hot_experts_rows_rounded_up() -> None:
    p, graphs = problem(40, top_k=1), TorchGraphs()
    p = replace(p, index_TK=torch.tensor([0] * 17 + [1] * 3 + [7] * 20).view(-1, 1))
    run(layer_for(p, (0, 1), graphs=graphs), p)
    assert set(graphs.buckets()) == {32}


def test_a_fixed_hot_set_of_frozen_weights_uploads_once() -> None:
    trainee = Trainee(layer_for(P, (0, 1)), frozen=True)
    for _ in range(5):
        trainee.step()
    assert trainee.uploads == 1


def test_a_new_hot_set_uploads_once_more() -> None:
    trainee = Trainee(layer_for(P, (0, 1)), frozen=True)
    for hot in ((0, 1), (0, 2), (0, 2)):
        trainee.layer.hot = hot
        trainee.step()
    assert trainee.uploads == 2
    trainee.assert_uses_its_weights()


OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda weights: torch.optim.SGD(weights, 0.1, foreach=False),
    "foreach": lambda weights: torch.optim.SGD(weights, 0.1, foreach=True),
    "adamw": lambda weights: torch.optim.AdamW(weights, 0.1),
    "fused": lambda weights: torch.optim.AdamW(weights, 0.1, fused=True),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_full_fine_tuning_uploads_once_a_step_with_every_optimizer(
    make: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
) -> None:
    watch_optimizers()
    trainee = Trainee(layer_for(P, range(8)), frozen=False)
    optimizer = make([trainee.gate_up, trainee.down])
    for _ in range(3):
        trainee.step()
        optimizer.step()
        optimizer.zero_grad()
    assert trainee.uploads == 3
    trainee.assert_uses_its_weights()


CHANGES: dict[str, Callable[[nn.Parameter], object]] = {
    "data.copy_": lambda weight: weight.data.copy_(weight.data * 2),
    "data =": lambda weight: setattr(weight, "data", weight.data * 2),
    "numpy": lambda weight: weight.detach().numpy().__imul__(2),
    "copy_": lambda weight: nn.Module.load_state_dict(_Holder(weight), {"weight": weight.detach() * 2}),
}


class _Holder(nn.Module):
    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_next_forward_uses_weights_changed_in_any_way(change: Callable[[nn.Parameter], object]) -> None:
    trainee = Trainee(layer_for(P, range(8)), frozen=True)
    trainee.step()
    change(trainee.gate_up)
    trainee.assert_uses_its_weights()
    assert trainee.uploads == 2


def test_backward_after_an_in_place_change_is_refused_by_autograd() -> None:
    layer, gate_up = layer_for(P, range(8)), nn.Parameter(P.gate_up.clone())
    x = P.x_TH.clone().requires_grad_()
    plan = layer.plan(P.index_TK, gate_up, P.down, backward_kind(x, gate_up, P.down))
    out = run_layer(x, P.weights_TK, gate_up, P.down, layer, plan)
    with torch.no_grad():
        gate_up.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward(P.dout_TH)


def test_backward_of_an_older_forward_brings_its_own_hot_set_back() -> None:
    p = problem(33)
    layer = layer_for(p, (0, 1))
    x = p.x_TH.clone().requires_grad_()
    plan = layer.plan(p.index_TK, p.gate_up, p.down, backward_kind(x, p.gate_up, p.down))
    out = run_layer(x, p.weights_TK, p.gate_up, p.down, layer, plan)
    layer.hot = (5, 6)
    run(layer, p, full=False)
    out.backward(p.dout_TH)
    assert x.grad is not None
    assert error(x.grad, reference(p).dx) < 1e-5


def test_five_hundred_steps_of_random_lengths_stay_inside_the_manifest_and_in_flat_memory() -> None:
    most = 90
    layer = layer_for(P, (0, 1, 2))
    layer.shared.graphs.restrict(layer.planned_keys(most, "lora"))
    all_on_one = problem(most, top_k=1)
    run(layer, replace(all_on_one, index_TK=all_on_one.index_TK * 0), full=False)
    run(layer, replace(problem(most), index_TK=torch.tensor([[3, 4]]).expand(most, 2)), full=False)  # both are cold
    run(layer, problem(most), full=False)
    size_bytes = layer.shared.arena.size_bytes()
    lengths = torch.randint(0, most + 1, (500,), generator=torch.Generator().manual_seed(3)).tolist()
    for tokens in lengths:
        run(layer, problem(tokens, seed=tokens), full=False)
    assert layer.shared.arena.size_bytes() == size_bytes


def test_counts_and_shares_of_a_forward_add_up() -> None:
    p: Problem = problem(33)
    layer = layer_for(p, (0, 1, 2))
    run(layer, p)
    stats = layer.stats
    assert stats.hot_rows + stats.host_rows == stats.rows == 66
    assert stats.padded_rows == 3 * layer.shared.chooser.ladder.bucket_for(max(stats.busiest))
    assert stats.routed.total() == 66
