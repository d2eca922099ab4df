"""What host-compiled code asks of a CPU, and what this one has."""

from collections.abc import Set
from pathlib import Path
from typing import Final

X86_64_V2: Final = frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"})
X86_64_V3: Final = X86_64_V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
X86_64_V4: Final = X86_64_V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
BF16: Final = X86_64_V4 | {"avx512_bf16"}
LEVELS: Final = {"x86-64-v2": X86_64_V2, "x86-64-v3": X86_64_V3, "x86-64-v4": X86_64_V4, "x86-64-v4-bf16": BF16}
"""The micro-architecture levels of the x86-64 psABI, and one of ours, in /proc/cpuinfo's words (abm holds lzcnt)."""


def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The feature flags of this machine's first CPU; empty where the system does not say."""
    try:
        text = cpuinfo.read_text()
    except OSError:
        return frozenset()
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(flags.partition(":")[2].split())


def lacking(level: str, features: Set[str]) -> list[str]:
    """The features of ``level`` that are not among ``features``, sorted."""
    return sorted(LEVELS[level] - features)
