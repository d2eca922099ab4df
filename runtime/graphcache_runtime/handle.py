"""MoeHandle: a model that runs on graphs: its counts, its keys, its hot sets, and the way back."""

import json
import os
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakSet

from torch import nn

from graphcache_runtime.implementation import attach, detach
from graphcache_runtime.layer import HotLayer
from graphcache_runtime.planning.hotset import first_hot_set
from graphcache_runtime.planning.ladder_choice import COMPILE_S, LadderReport, Prices, choose_ladder, report
from graphcache_runtime.planning.manifest_plan import Training, kinds_for, without_repeats
from graphcache_runtime.shared import Shared
from graphcache_runtime.stats import summary
from graphcache_runtime.weights.stamps import advance_epoch
from graphcache_wire import GraphKey

_handles: WeakSet["MoeHandle"] = WeakSet()


class MoeHandle:
    """Made by ``enable``. ``layers``: the layers of the model in its order, by the names of their modules."""

    def __init__(
        self,
        layers: Mapping[str, HotLayer],
        modules: Mapping[str, Any],
        shared: Shared,
        training: Training | None,
        *,
        owns_graphs: bool = True,
    ) -> None:
        self.layers, self._modules, self._shared, self._training = dict(layers), dict(modules), shared, training
        self._owns_graphs = owns_graphs
        self._before = {name: module.config._experts_implementation for name, module in self._modules.items()}
        following = [*list(self._modules.values())[1:], None]
        for (name, module), then in zip(self._modules.items(), following, strict=True):
            attach(module, self.layers[name], then)
        _handles.add(self)

    def stats(self) -> dict[str, Any]:
        """What all layers did since ``enable``; see ``graphcache_runtime.stats``."""
        layers = (layer.stats for layer in self.layers.values())
        return summary(layers, self._shared.uploader.counts, self._shared.costs.report())

    def save_stats(self, path: Path) -> None:
        """Write the totals and each layer's routed rows as JSON, whole or not at all: ``hot_sets_from`` reads it."""
        layers = [
            {"name": name, "hot": layer.hot, "routed": layer.stats.routed, "busiest": layer.stats.busiest}
            for name, layer in self.layers.items()
        ]
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
            json.dump({"moe_stats": 1, "totals": self.stats(), "layers": layers}, file, indent=1)
        os.replace(file.name, path)

    def keys_used(self) -> list[GraphKey]:
        """The graphs that were asked for, in the order of the first asking."""
        return self._shared.graphs.keys()

    def manifest(self, tokens: int) -> list[GraphKey]:
        """Every graph that steps of up to ``tokens`` tokens (batch times length) can ask for: what to prewarm."""
        planned = [key for layer in self.layers.values() for key in layer.planned_keys(tokens, self._training)]
        return without_repeats(planned)

    def restrict(self, tokens: int | None) -> None:
        """Strict mode: a graph outside ``manifest(tokens)`` is an error from now on. None ends it."""
        self._shared.graphs.restrict(None if tokens is None else self.manifest(tokens))

    def best_ladder(self, forwards: int, compile_s: float = COMPILE_S, rungs: int | None = None) -> LadderReport:
        """The cheapest ladder for the busiest experts' rows as they were counted so far, and what it costs.

        Args:
            forwards: of all layers together that the next job will make; its compiles are spread over them.
            compile_s: what one graph takes to compile.
            rungs: how many rungs; as many as pay otherwise.
        """
        busiest: Counter[int] = Counter()
        for layer in self.layers.values():
            busiest.update(layer.stats.busiest)
        slots = len(next(iter(self.layers.values())).hot)
        kinds = len(kinds_for(self._training))
        prices = Prices(self._shared.costs.costs, slots, forwards, kinds, compile_s)
        return report(choose_ladder(busiest, prices, rungs), busiest, prices)

    def hot_sets(self) -> dict[str, tuple[int, ...]]:
        """The hot experts of each layer, by the module's name."""
        return {name: layer.hot for name, layer in self.layers.items()}

    def weights_changed(self) -> None:
        """Upload all hot weights at their next use. Only a change of single elements through ``.data`` needs it."""
        for module in self._modules.values():
            advance_epoch(module.gate_up_proj)
            advance_epoch(module.down_proj)

    def disable(self) -> None:
        """Back to the experts implementation that the model had. Safe to repeat. A caller's table stays open."""
        for name, module in self._modules.items():
            detach(module, self._before[name])
        _handles.discard(self)
        if self._owns_graphs:
            self._shared.graphs.close()
        self._shared.uploader.close()
        self._shared.device_thread.close()

    def runs(self, model: nn.Module) -> bool:
        """Whether any module of ``model`` is one of its own."""
        own = {id(module) for module in self._modules.values()}
        return any(id(module) in own for module in model.modules())


def moe_stats(model: nn.Module | None = None) -> dict[str, Any]:
    """The counts of ``model``'s layers, or of the one enabled model of this process; see ``MoeHandle.stats``.

    Raises:
        LookupError: no model is enabled, or several are and none was named.
    """
    handles = [handle for handle in list(_handles) if model is None or handle.runs(model)]
    if len(handles) != 1:
        raise LookupError(
            f"{len(handles)} enabled models match: call graphcache_runtime.enable(model, ...) first, and name the "
            "model where several are enabled"
        )
    return handles[0].stats()


def hot_sets_from(path: Path, slots: int) -> dict[int, tuple[int, ...]]:
    """The ``slots`` busiest experts of each layer in a file of ``save_stats``: what ``enable`` takes as ``hot_sets``.

    Raises:
        ValueError: the file is none of ``save_stats``.
    """
    saved = json.loads(path.read_text())
    if not isinstance(saved, dict) or saved.get("moe_stats") != 1:
        raise ValueError(f"{path} is no file of MoeHandle.save_stats")
    hot_sets = {}
    for number, layer in enumerate(saved["layers"]):
        rows = {int(expert): count for expert, count in layer["routed"].items()}
        experts = max([*rows, *layer["hot"]]) + 1
        hot_sets[number] = first_hot_set([float(rows.get(expert, 0)) for expert in range(experts)], slots)
    return hot_sets
