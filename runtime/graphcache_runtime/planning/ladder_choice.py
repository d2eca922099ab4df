"""Which rungs a ladder should have: the cheapest for a histogram of busiest-slot rows, by dynamic programming.

With candidates ``v_1 < ... < v_M``, the price t(v) of a call and the price L of a compile spread over the calls:
``C(i, j) = t(v_j) * P(v_i < x <= v_j)`` and ``D[j] = min over i < j of D[i] + C(i, j) + L``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from graphcache_runtime.ladder import Ladder
from graphcache_runtime.planning.costs import Costs
from graphcache_wire.key import MAX_BUCKET

COMPILE_S: Final = 2400.0
"""CPU seconds that an RNGD graph of Qwen3-30B-A3B's size took: 40 minutes."""

_Price = Callable[[int, int], float]


@dataclass(frozen=True, slots=True)
class LadderReport:
    """What a ladder would have cost on the forwards of a histogram.

    ``padding_ratio``: rows computed a row of the busiest slot; ``calls``: device calls a forward; ``call_s``: mean
    seconds of a forward's calls; ``compile_s``: CPU seconds of all compiles, ``graphs`` of them.
    """

    ladder: Ladder
    padding_ratio: float
    calls: float
    call_s: float
    graphs: int
    compile_s: float


@dataclass(frozen=True, slots=True)
class Prices:
    """``slots`` of the hot set; a graph takes ``compile_s``, and a rung ``kinds`` of them (forward, backward).

    ``forwards``: how many forwards the job will make, over all layers that share the graphs.
    """

    costs: Costs
    slots: int
    forwards: int
    kinds: int = 2
    compile_s: float = COMPILE_S

    @property
    def rung_s(self) -> float:
        """A rung's compiles, spread over the job's forwards."""
        return self.kinds * self.compile_s / self.forwards


def choose_ladder(busiest: Mapping[int, int], prices: Prices, rungs: int | None = None) -> Ladder:
    """The cheapest ladder for forwards whose busiest slot had these rows (rows: how often).

    Rows above the largest possible bucket are chunked, so only what is left of them counts. ``rungs`` fixes how many.

    Raises:
        ValueError: the histogram is empty.
    """
    histogram = _left_over(busiest)
    candidates = sorted({_eights(rows) for rows in histogram})
    if not candidates:
        raise ValueError("no forwards were counted, so there is nothing to choose a ladder from")
    below = [0, *(sum(n for rows, n in histogram.items() if rows <= v) for v in candidates)]
    total = below[-1]

    def price(i: int, j: int) -> float:
        return prices.costs.device_s(prices.slots * candidates[j - 1]) * (below[j] - below[i]) / total

    if rungs is None:
        return _cheapest(candidates, price, prices.rung_s)
    return _cheapest_of(candidates, price, min(rungs, len(candidates)))


def _cheapest(candidates: list[int], price: _Price, rung_s: float) -> Ladder:
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for j, value in enumerate(candidates, 1):
        best.append(min((best[i][0] + price(i, j) + rung_s, (*best[i][1], value)) for i in range(j)))
    return Ladder(best[-1][1])


def _cheapest_of(candidates: list[int], price: _Price, rungs: int) -> Ladder:
    best: list[tuple[float, tuple[int, ...]] | None] = [(0.0, ()), *[None] * len(candidates)]
    for _ in range(rungs):
        after: list[tuple[float, tuple[int, ...]] | None] = [None] * len(best)
        for j in range(1, len(best)):
            options = [(at[0] + price(i, j), (*at[1], candidates[j - 1])) for i in range(j) if (at := best[i])]
            after[j] = min(options) if options else None
        best = after
    last = best[-1]
    assert last is not None, "as many rungs as candidates at most always reach the last one"
    return Ladder(last[1])


def report(ladder: Ladder, busiest: Mapping[int, int], prices: Prices) -> LadderReport:
    """What ``ladder`` costs on the histogram."""
    forwards = sum(busiest.values())
    rows = sum(x * n for x, n in busiest.items())
    chunks = [(chunk, n) for x, n in busiest.items() for chunk in ladder.chunks(x)]
    seconds = sum(prices.costs.device_s(prices.slots * chunk.bucket) * n for chunk, n in chunks)
    graphs = prices.kinds * len({chunk.bucket for chunk, _ in chunks})
    return LadderReport(
        ladder,
        padding_ratio=sum(chunk.bucket * n for chunk, n in chunks) / max(rows, 1),
        calls=sum(n for _, n in chunks) / max(forwards, 1),
        call_s=seconds / max(forwards, 1),
        graphs=graphs,
        compile_s=graphs * prices.compile_s,
    )


def _eights(rows: int) -> int:
    return -(-rows // 8) * 8


def _left_over(busiest: Mapping[int, int]) -> dict[int, int]:
    """The histogram with full chunks of the largest possible bucket taken off; forwards without rows make no call."""
    histogram: dict[int, int] = {}
    for rows, forwards in busiest.items():
        rest = rows if rows <= MAX_BUCKET else (rows % MAX_BUCKET or MAX_BUCKET)
        if rest:
            histogram[rest] = histogram.get(rest, 0) + forwards
    return histogram
