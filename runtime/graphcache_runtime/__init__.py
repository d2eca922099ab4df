"""Runs MoE layers with compiled graphs: buckets, packing, expert graphs, hot sets, toolchains, the compile worker.

    from graphcache_runtime import enable, moe_stats

    handle = enable(
        model,                      # a loaded transformers 5 model, or any module that holds its experts modules
        graphs=load,                # Callable[[GraphKey], LoadedGraph], or a GraphTable
        toolchain_version=version,  # toolchain.version()
        e_hot=32,                   # or hot_fraction=0.25
        hot_sets=None,              # {MoE layer number: [expert, ...]}; None: the first e_hot experts
        training=None,              # or "lora", "full": checked against the parameters
        ladder=LADDERS["packed"],
        policy="wait",              # or "host", "ready-buckets"
    )
    handle.stats()                  # a dict ready for JSON; moe_stats() gives the same
    handle.keys_used()              # list[GraphKey]
    handle.disable()                # back to the model's former experts implementation

Names are imported when they are first used, so that the command line never waits for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcache_runtime.backend import GraphBackend
    from graphcache_runtime.calls import Policy
    from graphcache_runtime.graph_table import GraphTable, LoadGraph
    from graphcache_runtime.ladder import LADDERS, Ladder
    from graphcache_runtime.layouts import UnsupportedExperts
    from graphcache_runtime.moe import MoeHandle, enable, moe_stats

_MODULE_OF = {
    "GraphBackend": "backend",
    "GraphTable": "graph_table",
    "LADDERS": "ladder",
    "Ladder": "ladder",
    "LoadGraph": "graph_table",
    "MoeHandle": "moe",
    "Policy": "calls",
    "UnsupportedExperts": "layouts",
    "enable": "moe",
    "moe_stats": "moe",
}

__all__ = [
    "LADDERS", "GraphBackend", "GraphTable", "Ladder", "LoadGraph", "MoeHandle", "Policy", "UnsupportedExperts",
    "enable", "moe_stats",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
