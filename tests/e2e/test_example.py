"""examples/train_lora.py, run as a user runs it: a model folder, a text file, a service."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.running_service import RunningService
from fakes.tiny_models import VOCABULARY, tiny
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from graphcache_client import ServiceClient

SCRIPT = Path(__file__).parents[2] / "examples" / "train_lora.py"
LETTERS = "abcdefghijklmnopqrstuvwxyz .,"


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A tiny MoE model with a tokenizer of one token a letter."""
    folder = tmp_path / "model"
    tiny("qwen3-moe").save_pretrained(folder)
    vocabulary = {letter: number for number, letter in enumerate(LETTERS, 1)} | {"?": 0}
    assert len(vocabulary) <= VOCABULARY
    letters = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=letters, unk_token="?").save_pretrained(folder)
    return folder


def test_the_example_trains_from_the_first_step_while_no_graph_is_there(model_folder: Path, tmp_path: Path) -> None:
    service = RunningService(tmp_path / "service")
    text = tmp_path / "train.txt"
    text.write_text("every good boy deserves fruit. " * 8)
    try:
        command = [sys.executable, str(SCRIPT), str(model_folder), str(text), "--url", service.url]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [*command, "--steps", "3", "--length", "24", "--overflow", "bucket"],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert [line.split(" loss ")[0] for line in done.stdout.splitlines()] == ["step 0", "step 1", "step 2"]
        with ServiceClient(service.url) as client:
            assert client.stats().totals.compiles["queued"] >= 2
    finally:
        service.stop()
    saved = json.loads((tmp_path / "moe_stats.json").read_text())
    assert saved["totals"]["forwards"] == saved["totals"]["backwards"] == 3 * 2
    assert saved["totals"]["rows"] == 3 * 2 * 24 * 2
