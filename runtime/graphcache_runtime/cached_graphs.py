"""CachedGraphs: a GraphTable whose graphs come from a GraphCache: memory, disk, service, or compiled here."""

import logging
from typing import Final

from graphcache_client import CachedGraph, GraphCache
from graphcache_runtime.graph_table import GraphTable
from graphcache_runtime.toolchains.base import LoadedGraph, LoadFailed, Toolchain, Weights
from graphcache_wire import GraphKey

LOAD_TRIES: Final = 3
"""The service compiles anew after two reports that agree; the third try gets the new bytes."""

log = logging.getLogger(__name__)


class CachedGraphs(GraphTable):
    """The graphs of a training process.

    Args:
        cache: stays the caller's, who closes it.
        toolchain: loads what the cache finds.
    """

    def __init__(self, cache: GraphCache, toolchain: Toolchain) -> None:
        super().__init__(self._load_cached, try_load=self._try_load_cached)
        self._cache = cache
        self._toolchain = toolchain
        self._loaded_keys: set[GraphKey] = set()

    def get(self, key: GraphKey, weights: Weights | None = None) -> LoadedGraph:
        if key in self._loaded_keys:
            self._cache.count_memory_hit(key)
        return super().get(key, weights)

    def _load_cached(self, key: GraphKey) -> LoadedGraph:
        for _ in range(LOAD_TRIES - 1):
            found = self._cache.get(key)
            try:
                return self._load_found(found)
            except LoadFailed as error:
                self._report(found, error)
        return self._load_found(self._cache.get(key))

    def _try_load_cached(self, key: GraphKey) -> LoadedGraph | None:
        found = self._cache.try_get(key)
        if found is None:
            return None
        try:
            return self._load_found(found)
        except LoadFailed as error:
            self._report(found, error)
            raise

    def _load_found(self, found: CachedGraph) -> LoadedGraph:
        graph = self._toolchain.load(found.path, found.key)
        self._loaded_keys.add(found.key)
        return graph

    def _report(self, found: CachedGraph, error: LoadFailed) -> None:
        log.warning("graph_unusable key=%s blob=%s error=%s", found.key.label(), found.artifact.blob, error)
        self._cache.report_unusable(found, "load_failed", str(error))
