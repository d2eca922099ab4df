"""Checks a compiled graph against PyTorch on random inputs, before anybody may load it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from graphcache_runtime.experts import ROWS, ExpertsForward, GraphDefinition
from graphcache_runtime.toolchains.base import LoadedGraph, Weights
from graphcache_runtime.toolchains.interface import definition_of
from graphcache_wire import GraphKey

ERROR_BOUNDS: Final = {"bf16": (0.01, 0.04), "fp32": (1e-5, 1e-4)}
"""The largest allowed error of an output: root mean square over that of the reference, and largest difference over its
largest value. bf16 keeps 8 bits: each rounding between two products costs up to 0.4 %, and three of them gave 0.2 to
0.4 % over all kinds and shapes tried; a swapped input or a missing term gives more than 10 %."""


class WrongGraph(Exception):
    """The compiled graph does not compute what its key says; the message names output, error and bound."""


@dataclass(frozen=True, slots=True)
class CheckedGraph:
    """The largest errors over all outputs, relative to the reference, and their bounds."""

    rms_error: float
    max_error: float
    rms_bound: float
    max_bound: float


def check_graph(loaded: LoadedGraph, key: GraphKey, seed: int, weights: Weights | None = None) -> CheckedGraph:
    """Run once on random inputs, whose last row is padding (zeros), and compare with PyTorch in a wider type.

    Raises:
        WrongGraph: shape, dtype or values are wrong, or a padded row does not come out as exact zeros.
    """
    definition = definition_of(key, weights)
    inputs = _with_padding(definition, seed)
    outputs = [output.cpu() for output in loaded(*(tensor.to(loaded.device) for tensor in inputs))]
    _check_form(definition, outputs)
    rms_bound, max_bound = ERROR_BOUNDS[key.dtype]
    errors = _errors(definition, outputs, _references(definition, inputs, weights))
    for name, (rms_error, max_error) in zip(definition.output_names, errors, strict=True):
        # Written so that NaN is refused too.
        if not (rms_error <= rms_bound and max_error <= max_bound):
            raise WrongGraph(
                f"output {name} differs from PyTorch by {rms_error:.2g} (rms, bound {rms_bound:g}) and "
                f"{max_error:.2g} (largest, bound {max_bound:g}), on random inputs of seed {seed}"
            )
    return CheckedGraph(max(rms for rms, _ in errors), max(largest for _, largest in errors), rms_bound, max_bound)


def _with_padding(definition: GraphDefinition, seed: int) -> tuple[Tensor, ...]:
    """Random inputs; with more than one row, the last row of x, h and dy is zero, as padding is."""
    inputs = definition.random_inputs(seed)
    for name, tensor in zip(definition.input_names, inputs, strict=True):
        if name in ROWS and tensor.shape[1] > 1:
            tensor[:, -1] = 0
    return inputs


def _check_form(definition: GraphDefinition, outputs: list[Tensor]) -> None:
    if len(outputs) != len(definition.output_names):
        raise WrongGraph(f"the graph has {len(outputs)} outputs, not {', '.join(definition.output_names)}")
    for name, shape, output in zip(definition.output_names, definition.output_shapes, outputs, strict=True):
        if tuple(output.shape) != shape or output.dtype != definition.dtype:
            raise WrongGraph(
                f"output {name} is {output.dtype}{tuple(output.shape)}, not {definition.dtype}{tuple(shape)}"
            )
        if name in ("y", "h", "dx") and shape[1] > 1 and torch.count_nonzero(output[:, -1]):
            raise WrongGraph(f"output {name}: a padded row of zeros does not come out as zeros")


def _references(
    definition: GraphDefinition, inputs: tuple[Tensor, ...], weights: Weights | None
) -> Iterator[tuple[Tensor, ...]]:
    """The outputs of one expert after the other, which are independent: all at once would need much memory.

    In fp64 for fp32, in fp32 for bf16, where its error is a thousandth of the bound and it takes half the time.
    """
    wide = torch.float64 if definition.dtype is torch.float32 else torch.float32
    module = definition.module
    if weights:
        module = ExpertsForward()
        inputs = (*inputs, weights.gate_up.to(definition.dtype), weights.down.to(definition.dtype))
    for e in range(inputs[0].shape[0]):
        outputs = module(*(tensor[e : e + 1].to(wide) for tensor in inputs))
        yield (outputs,) if isinstance(outputs, Tensor) else outputs


def _errors(
    definition: GraphDefinition, outputs: list[Tensor], references: Iterator[tuple[Tensor, ...]]
) -> list[tuple[float, float]]:
    """(rms error over rms, largest error over largest value) of each output."""
    names = range(len(definition.output_names))
    square, square_error, largest, largest_error = ([0.0 for _ in names] for _ in range(4))
    for e, reference in enumerate(references):
        for n in names:
            difference = outputs[n][e : e + 1].double() - reference[n]
            square[n] += float(reference[n].square().sum())
            square_error[n] += float(difference.square().sum())
            largest[n] = max(largest[n], float(reference[n].abs().max()))
            # max() of Python drops a NaN; the sum of squares above keeps it.
            largest_error[n] = max(largest_error[n], float(difference.abs().max()))
    return [
        ((square_error[n] / square[n]) ** 0.5 if square[n] else square_error[n], largest_error[n] / (largest[n] or 1.0))
        for n in names
    ]
