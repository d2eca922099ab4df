"""Two ranks of one node, started by torchrun: graphs are compiled once for both, and hot sets agree."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fakes

TESTS = Path(fakes.__path__[0]).parent
RANKS = 2


def ranks(folder: Path) -> list[dict[str, Any]]:
    environment = os.environ | {"PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    script = [str(TESTS / "fakes" / "rank_process.py"), str(folder)]
    subprocess.run([*torchrun, *script], env=environment, check=True, timeout=180)
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]


def test_one_rank_gets_each_graph_and_the_other_finds_it_on_disk_and_hot_sets_agree(tmp_path: Path) -> None:
    first, second = ranks(tmp_path)
    compiled = first["compiled"] + second["compiled"]
    assert sorted(compiled) == sorted(set(first["used"]) | set(second["used"]))
    assert first["hot_sets"] == second["hot_sets"]
    assert first["replans"] == second["replans"]
    assert first["costs"] == second["costs"] == first["own_costs"] != second["own_costs"]
