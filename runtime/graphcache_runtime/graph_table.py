"""GraphTable: the loaded graphs of this process, each loaded once, with or without waiting for it."""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from graphcache_runtime.toolchains.base import LoadedGraph, Weights
from graphcache_wire import GraphKey

LoadGraph = Callable[[GraphKey], LoadedGraph]
"""Gives a graph, however long that takes."""
TryLoadGraph = Callable[[GraphKey], LoadedGraph | None]
"""Gives a graph if it is there, and never waits for a compile; asks for the compile where it is not."""
LoadBakedGraph = Callable[[GraphKey, Weights], LoadedGraph]
"""Gives a graph whose weights are constants; only who has the weights can compile it."""

POLL_S: Final = 1.0

log = logging.getLogger(__name__)


class KeyNotPlanned(LookupError):
    """Strict mode: a graph outside the manifest was asked for."""


@dataclass
class _Slot:
    graph: LoadedGraph | None = None
    wanted: bool = False
    error: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


class GraphTable:
    """Graphs by key. Safe to use from several threads.

    Args:
        load: gives a graph, waiting for it.
        try_load: asks for a graph without waiting. Where it is left out, ``load`` runs in the background instead.
        load_baked: gives a graph with baked weights.
        poll_s: how often the background asks anew for graphs that were not there.
    """

    def __init__(
        self,
        load: LoadGraph,
        *,
        try_load: TryLoadGraph | None = None,
        load_baked: LoadBakedGraph | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        self._load, self._try_load, self._load_baked = load, try_load, load_baked
        self._poll_s = poll_s
        self._slots: dict[GraphKey, _Slot] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._allowed: frozenset[GraphKey] | None = None

    def restrict(self, keys: Iterable[GraphKey] | None) -> None:
        """Strict mode: from now on any other key is an error. None ends it."""
        self._allowed = None if keys is None else frozenset(keys)

    def keys(self) -> list[GraphKey]:
        """Every key that was asked for, in the order of the first asking."""
        with self._lock:
            return list(self._slots)

    def get(self, key: GraphKey, weights: Weights | None = None) -> LoadedGraph:
        """The graph, loaded if need be; callers of one key share one load.

        Raises:
            KeyNotPlanned: strict mode, and the key is not in the manifest.
            Exception: whatever the loader raises.
        """
        slot = self._slot(key)
        with slot.lock:
            if slot.graph is None:
                slot.graph = self._loaded(key, weights)
                slot.error = ""
            return slot.graph

    def try_get(self, key: GraphKey) -> LoadedGraph | None:
        """The graph if it is loaded; otherwise None, at once, and the background fetches it."""
        slot = self._slot(key)
        if slot.graph is None and not slot.wanted:
            slot.wanted = True
            self._start()
            self._wake.set()
        return slot.graph

    def is_loaded(self, key: GraphKey) -> bool:
        """Whether the graph is here; asks nobody for it."""
        with self._lock:
            slot = self._slots.get(key)
        return slot is not None and slot.graph is not None

    def error_of(self, key: GraphKey) -> str:
        """Why the background could not load the graph; empty when it only has not yet."""
        with self._lock:
            slot = self._slots.get(key)
        return slot.error if slot else ""

    def poll(self) -> int:
        """Ask once for each graph that is wanted and missing; returns how many are still missing.

        The background thread calls this; a caller without one may call it too.
        """
        with self._lock:
            wanted = [(key, slot) for key, slot in self._slots.items() if slot.wanted and slot.graph is None]
        return sum(not self._fetch(key, slot) for key, slot in wanted if not self._closed.is_set())

    def close(self) -> None:
        """Stop the background; graphs that are loaded stay usable."""
        self._closed.set()
        self._wake.set()

    def _slot(self, key: GraphKey) -> _Slot:
        with self._lock:
            if self._allowed is not None and key not in self._allowed:
                raise KeyNotPlanned(
                    f"{key.label()} is not in the manifest of this job ({len(self._allowed)} keys): "
                    "widen the manifest's rows or ladder, or turn strict off"
                )
            return self._slots.setdefault(key, _Slot())

    def _loaded(self, key: GraphKey, weights: Weights | None) -> LoadedGraph:
        if key.mode != "baked":
            return self._load(key)
        if self._load_baked is None or weights is None:
            raise ValueError(f"{key.label()}: a baked graph needs load_baked and its weights")
        return self._load_baked(key, weights)

    def _fetch(self, key: GraphKey, slot: _Slot) -> bool:
        """Whether the graph is there now. A failure is kept for ``error_of``; the trainer uses the host meanwhile."""
        if not slot.lock.acquire(blocking=False):
            return False
        try:
            if slot.graph is None:
                slot.graph = self._try_load(key) if self._try_load else self._load(key)
            slot.error = ""
        except Exception as error:  # noqa: BLE001 - any loader's failure must leave the trainer running; it is shown in stats
            if not slot.error:
                log.warning("graph_not_loaded key=%s error=%s", key.label(), error)
            slot.error = f"{type(error).__name__}: {error}"
        finally:
            slot.lock.release()
        return slot.graph is not None

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="graphcache-graphs", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.clear()
            missing = self.poll()
            self._wake.wait(self._poll_s if missing else None)
