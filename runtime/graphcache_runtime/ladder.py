"""Ladder: the row counts that graphs are compiled for, and the one place where rows become buckets and chunks."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from graphcache_wire import is_bucket


class Chunk(NamedTuple):
    """Rows ``start`` to ``start + rows`` of an input, padded to ``bucket`` rows."""

    start: int
    rows: int
    bucket: int


@dataclass(frozen=True, slots=True)
class Ladder:
    """Ascending buckets.

    Raises:
        ValueError: no rungs, rungs out of order, or a rung that no graph can have (``graphcache_wire.is_bucket``).
    """

    rungs: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.rungs:
            raise ValueError("a ladder needs at least one rung")
        if list(self.rungs) != sorted(set(self.rungs)):
            raise ValueError(f"rungs must ascend without repeats, not {self.rungs}")
        for rung in self.rungs:
            if not is_bucket(rung):
                raise ValueError(f"no graph can have a bucket of {rung} rows: use 1, 2, 4, or eights up to 1024")

    @property
    def largest(self) -> int:
        return self.rungs[-1]

    def bucket_for(self, rows: int) -> int:
        """The smallest rung that holds ``rows``, or the largest rung where none does: the caller then chunks."""
        if rows < 1:
            raise ValueError(f"a bucket holds at least one row, not {rows}")
        return next((rung for rung in self.rungs if rung >= rows), self.largest)

    def chunks(self, rows: int) -> list[Chunk]:
        """Full chunks of the largest rung, then the rest padded to its own rung. No rows give no chunks."""
        full, rest = divmod(rows, self.largest)
        chunks = [Chunk(i * self.largest, self.largest, self.largest) for i in range(full)]
        if rest:
            chunks.append(Chunk(full * self.largest, rest, self.bucket_for(rest)))
        return chunks

    def up_to(self, rows: int) -> "Ladder":
        """The rungs that inputs of 1 to ``rows`` rows can ask for."""
        return Ladder(tuple(rung for rung in self.rungs if rung <= self.bucket_for(rows)))


LADDERS: Final[dict[str, Ladder]] = {
    "rngd": Ladder((1, 4, 16, 64, 256)),
    "atom": Ladder((1, 4, 16, 64)),
    "packed": Ladder((8, 16, 32, 64, 128, 256, 512, 1024)),
}
"""``rngd`` and ``atom`` serve calls of one expert; ``packed`` serves the batched call of a layer's hot experts."""
