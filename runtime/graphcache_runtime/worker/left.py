"""What a drained queue still holds, and why this worker leaves it to others. Decisions alone."""

from collections import Counter
from collections.abc import Collection, Iterable

from graphcache_wire.graphs import GraphSummary


def reasons_left(queued: Iterable[GraphSummary], versions: Collection[str]) -> list[str]:
    """One line for each reason, with how many graphs it holds back; empty where nothing is queued.

    Args:
        versions: the toolchains of this worker.
    """
    counted = Counter(_reason(graph, versions) for graph in queued)
    return [f"{count} queued: {reason}" for reason, count in counted.most_common()]


def _reason(graph: GraphSummary, versions: Collection[str]) -> str:
    if graph.key.mode == "baked":
        return f"baked graphs of {graph.key.toolchain}, whose weights only their asker has"
    if graph.key.toolchain not in versions:
        return f"of {graph.key.toolchain}, which this worker does not have"
    return f"of namespace {graph.namespace}, asked for since, or not this worker's to write to"
