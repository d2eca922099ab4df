"""Rows of real text for the demo: Python's own language reference, byte by byte."""

from pydoc_data.topics import topics

import torch

VOCABULARY = 256


def text_rows(seed: int, rows: int) -> torch.Tensor:
    """``ids[1, rows + 1]``: a piece of the reference as byte ids, another piece for another seed."""
    text = "\n".join(topics[name] for name in sorted(topics)).encode("utf-8")
    generator = torch.Generator().manual_seed(seed)
    start = int(torch.randint(0, len(text) - rows - 1, (1,), generator=generator))
    return torch.frombuffer(bytearray(text[start : start + rows + 1]), dtype=torch.uint8).long().unsqueeze(0)
