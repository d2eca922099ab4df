"""What RNGD graphs cost to compile: seconds, memory, bytes, and their error against PyTorch, as a table.

Runs in the environment of scripts/rngd_env.sh:

    $(scripts/rngd_env.sh)/bin/python benchmarks/rngd.py                 the small shapes, some minutes
    $(scripts/rngd_env.sh)/bin/python benchmarks/rngd.py --keep          the same, gate_up's product kept for backward
    $(scripts/rngd_env.sh)/bin/python benchmarks/rngd.py --real          E 32, H 2048, F 768, 64 rows: Qwen3-30B-A3B
"""

import argparse
import tempfile
from pathlib import Path

from graphcache_runtime.compiling.run import CompileResult, run_compile
from graphcache_runtime.toolchains.container import read_description
from graphcache_runtime.toolchains.registry import toolchain_named
from graphcache_wire import GraphKey, Kind

SMALL = ((2, 64, 32, 8), (4, 256, 128, 16), (8, 512, 256, 32))
REAL = (32, 2048, 768, 64)
KINDS = (Kind.EXPERTS_FORWARD, Kind.EXPERTS_BACKWARD_LORA, Kind.EXPERTS_BACKWARD_FULL)
COLUMNS = (
    "graph", "E, H, F, rows", "wall s", "lower s", "check s", "CPU s", "peak GiB", "runnable B", "container B",
    "rms error", "largest error",
)  # fmt: skip


def row(key: GraphKey, compiled: CompileResult) -> tuple[str, ...]:
    described = read_description(compiled.path)
    return (
        f"{key.kind.value} keep" if key.keeps_gate_up else key.kind.value,
        f"{key.e_hot}, {key.h}, {key.f}, {key.bucket}",
        f"{compiled.compile_s:.0f}",
        f"{described.seconds['lower']:.0f}",
        f"{float(compiled.facts['check_s']):.0f}",
        f"{compiled.cpu_s:.0f}",
        f"{compiled.peak_memory_bytes / 2**30:.1f}",
        f"{described.parts['runnable'].size_bytes:,}",
        f"{compiled.path.stat().st_size:,}",
        compiled.facts["rms_error"],
        compiled.facts["max_error"],
    )


def size(text: str) -> tuple[int, ...]:
    """``8,2048,768,8``: experts, H, F, rows."""
    numbers = tuple(map(int, text.split(",")))
    if len(numbers) != len(REAL):
        raise argparse.ArgumentTypeError(f"a size is E,H,F,ROWS, not {text!r}")
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="the real size instead of the small ones")
    parser.add_argument("--size", type=size, action="append", help="E,H,F,ROWS instead of the small ones")
    parser.add_argument("--keep", action="store_true", help="graphs that keep gate_up's product for backward")
    parser.add_argument("--kind", choices=[kind.value for kind in KINDS], action="append", help="only these kinds")
    arguments = parser.parse_args()
    version, options = toolchain_named("rngd").version(), {"keep": "gate_up"} if arguments.keep else {}
    print(f"{version}, bf16, inputs mode\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
    sizes = [*(arguments.size or []), *([REAL] if arguments.real else [])] or SMALL
    for e_hot, h, f, bucket in sizes:
        for kind in arguments.kind or KINDS:
            key = GraphKey(kind=Kind(kind), e_hot=e_hot, h=h, f=f, bucket=bucket, toolchain=version, options=options)
            with tempfile.TemporaryDirectory(prefix="graphcache-benchmark-") as folder:
                compiled = run_compile("rngd", key, Path(folder), lambda phase, progress: None)
                print(f"| {' | '.join(row(key, compiled))} |", flush=True)


if __name__ == "__main__":
    main()
