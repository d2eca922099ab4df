"""Runs MoE layers with compiled graphs: buckets, packing, expert graphs, hot sets, toolchains, the compile worker.

    from graphcache_runtime import enable, moe_stats

    handle = enable(
        model,                      # a loaded transformers 5 model, or any module that holds its experts modules
        graphs=cache,               # a GraphCache; or a GraphTable; or a Callable[[GraphKey], LoadedGraph]
        toolchain=toolchain,        # or toolchain_version="..." where graphs is no GraphCache
        e_hot=32,                   # or hot_fraction=0.25, or hot_bytes=...
        hot_sets=None,              # {MoE layer number: [expert, ...]}; None: the first e_hot experts
        training=None,              # or "lora", "full": checked against the parameters
        ladder=LADDERS["packed"],
        policy="ready-buckets",     # or "host"; or "wait" until every graph is there
        overflow="cost",            # the cheapest calls; or "bucket": every hot row runs hot
        costs=None,                 # Costs(...), or "measured" on this machine; None: an RNGD's
        backward="recompute",       # or "keep": gate_up's product stays on the device for backward
    )
    handle.stats()                  # a dict ready for JSON; moe_stats() gives the same
    handle.save_stats(path)         # hot_sets_from(path, slots) gives the next job's hot_sets
    handle.keys_used()              # list[GraphKey]
    handle.manifest(tokens)         # list[GraphKey]: what steps of so many tokens can ask for
    handle.disable()                # back to the model's former experts implementation

Names are imported when they are first used, so that the command line never waits for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcache_runtime.backend import GraphBackend
    from graphcache_runtime.calls import Overflow, Policy
    from graphcache_runtime.graph_table import GraphTable, LoadGraph
    from graphcache_runtime.handle import MoeHandle, hot_sets_from, moe_stats
    from graphcache_runtime.ladder import LADDERS, Ladder
    from graphcache_runtime.layouts import UnsupportedExperts
    from graphcache_runtime.moe import enable
    from graphcache_runtime.planning.costs import Costs

_MODULE_OF = {
    "Costs": "planning.costs",
    "GraphBackend": "backend",
    "GraphTable": "graph_table",
    "LADDERS": "ladder",
    "Ladder": "ladder",
    "LoadGraph": "graph_table",
    "MoeHandle": "handle",
    "Overflow": "calls",
    "Policy": "calls",
    "UnsupportedExperts": "layouts",
    "enable": "moe",
    "hot_sets_from": "handle",
    "moe_stats": "handle",
}

__all__ = [
    "LADDERS",
    "Costs",
    "GraphBackend",
    "GraphTable",
    "Ladder",
    "LoadGraph",
    "MoeHandle",
    "Overflow",
    "Policy",
    "UnsupportedExperts",
    "enable",
    "hot_sets_from",
    "moe_stats",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
