"""A long run: many steps of many lengths ask for no graph outside the manifest, and memory stays flat."""

import os
import random
from pathlib import Path

from fakes.tiny_models import tiny, token_ids
from fakes.torch_graphs import VERSION, TorchGraphs

from graphcache_runtime import enable

STEPS, WARM_UP, LONGEST = 500, 150, 48
MAX_GROWTH_BYTES = 4 << 20
"""Of 350 steps. The rows of each step alone, kept, would be 350 x 48 x 32 x 4 = 2 MB, a graph ten times that."""


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_five_hundred_steps_of_random_lengths_ask_for_planned_graphs_alone_in_flat_memory() -> None:
    model = tiny("qwen3-moe").train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("q_proj" in name)
    graphs, lengths = TorchGraphs(), random.Random(0)
    handle = enable(
        model,
        graphs=graphs,
        toolchain_version=VERSION,
        e_hot=3,
        policy="wait",
        overflow="bucket",
        strict_tokens=LONGEST,
        backward="keep",
    )
    before = 0
    for step in range(STEPS):
        if step == WARM_UP:
            before = resident_bytes()
        ids = token_ids(LONGEST if step < 2 else lengths.randint(1, LONGEST), batch=1)
        model(ids, labels=ids).loss.backward()
        model.zero_grad()
    assert resident_bytes() - before < MAX_GROWTH_BYTES
    assert set(graphs.loads) <= set(handle.manifest(LONGEST))
    assert handle.stats()["forwards"] == 2 * STEPS
