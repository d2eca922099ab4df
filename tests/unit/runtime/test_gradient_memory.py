"""Gradients' memory: lent again once nobody looks at it, and never before."""

import torch
from torch import nn

from graphcache_runtime.host.gradient_memory import GradientMemory


def test_memory_is_lent_again_once_the_last_tensor_on_it_is_gone() -> None:
    memory, weights = GradientMemory(), torch.zeros(2, 6, 4)
    first = memory.like(weights)
    address, view = first.data_ptr(), first[1]
    del first
    assert memory.returned_bytes() == 0
    assert memory.like(weights).data_ptr() != address
    del view
    assert address in {memory.like(weights).data_ptr() for _ in range(3)}


def test_a_lent_tensor_has_the_layout_of_the_weights() -> None:
    memory = GradientMemory()
    for weights in (torch.zeros(2, 6, 4).bfloat16(), torch.zeros(2, 6, 4).transpose(1, 2), torch.zeros(0, 6, 4)):
        lent = memory.like(weights)
        assert (lent.shape, lent.stride(), lent.dtype) == (weights.shape, weights.stride(), weights.dtype)


class Ones(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weights, memory):
        ctx.memory, ctx.like = memory, weights
        return weights.sum()

    @staticmethod
    def backward(ctx, dout):
        return ctx.memory.like(ctx.like).fill_(1), None


def test_a_gradient_stays_as_it_is_until_the_optimizer_drops_it() -> None:
    memory, weights = GradientMemory(), nn.Parameter(torch.zeros(2, 6, 4))
    addresses = set()
    for _ in range(3):
        Ones.apply(weights, memory).backward()
        addresses.add(weights.grad.data_ptr())
        other = memory.like(weights).fill_(7)
        assert weights.grad.unique().tolist() == [1]
        del other
        weights.grad = None
    assert len(addresses) <= 2
    assert memory.returned_bytes() == 2 * weights.numel() * 4


def test_gradients_that_are_accumulated_return_what_was_added() -> None:
    memory, weights = GradientMemory(), nn.Parameter(torch.zeros(2, 6, 4))
    for _ in range(3):
        Ones.apply(weights, memory).backward()
    assert weights.grad.unique().tolist() == [3]
    assert memory.returned_bytes() == weights.numel() * 4
