"""Two ranks of one node: graphs are compiled once for both, and hot sets agree."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fakes

TESTS = Path(fakes.__path__[0]).parent


def ranks(folder: Path) -> list[dict[str, Any]]:
    environment = os.environ | {"PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(TESTS / "fakes" / "rank_process.py"), str(rank), str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=180)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0]
    return [json.loads(text.splitlines()[-1]) for text in said]


def test_one_rank_gets_each_graph_and_the_other_finds_it_on_disk_and_hot_sets_agree(tmp_path: Path) -> None:
    first, second = ranks(tmp_path)
    compiled = first["compiled"] + second["compiled"]
    assert sorted(compiled) == sorted(set(first["used"]) | set(second["used"]))
    assert first["hot_sets"] == second["hot_sets"]
    assert first["replans"] == second["replans"]
    assert first["costs"] == second["costs"] == first["own_costs"] != second["own_costs"]
