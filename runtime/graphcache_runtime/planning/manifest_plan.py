"""The graphs that a job will need, from its shapes alone: what is prewarmed, and what strict mode allows."""

from collections.abc import Iterable, Sequence
from typing import Literal

from graphcache_runtime.keys import ExpertKeys
from graphcache_runtime.ladder import Ladder
from graphcache_wire import GraphKey, Kind

Training = Literal["lora", "full"]

BACKWARD: dict[Training | None, Kind | None] = {
    "lora": Kind.EXPERTS_BACKWARD_LORA,
    "full": Kind.EXPERTS_BACKWARD_FULL,
    None: None,
}


def kinds_for(training: Training | None) -> list[Kind]:
    """The kinds of a job; None is inference."""
    backward = BACKWARD[training]
    return [Kind.EXPERTS_FORWARD] if backward is None else [Kind.EXPERTS_FORWARD, backward]


def planned_keys(
    keys: ExpertKeys,
    slots: int,
    ladder: Ladder,
    tokens: int,
    training: Training | None,
    tiers: Sequence[int] = (),
    keep: bool = False,
) -> list[GraphKey]:
    """Every key that calls of 1 to ``tokens`` tokens can ask for, the smallest bucket first.

    An expert gets at most one row a token, so no call needs a bucket above the one that holds ``tokens``. Where
    gate_up's product is kept, evaluation still needs the forward that keeps nothing.
    """
    sizes = [slots, *(slots // groups for groups in tiers if slots % groups == 0)]
    kinds = [(kind, False) for kind in kinds_for(training)]
    if keep and training is not None:
        kinds = [*((kind, True) for kind in kinds_for(training)), (Kind.EXPERTS_FORWARD, False)]
    return [
        keys.key(kind, size, bucket, keep=kept)
        for bucket in ladder.up_to(tokens).rungs
        for size in sizes
        for kind, kept in kinds
    ]


def without_repeats(keys: Iterable[GraphKey]) -> list[GraphKey]:
    """Layers of the same shape ask for the same graphs."""
    return list(dict.fromkeys(keys))
