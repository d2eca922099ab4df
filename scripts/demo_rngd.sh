#!/usr/bin/env bash
# The demo with graphs of the real RNGD compiler: a small MoE, trained through the lowered graphs where no NPU is.
#   --real-size   the graphs of a layer of Qwen3-30B-A3B instead (E 32, H 2048, F 768, 64 rows): both are compiled, run
#                 once and compared with PyTorch. No training: a step's two calls take that long each without an NPU.
# Further options go to the demo (python -m graphcache_runtime.demo --help, graphcache_runtime.demo.one_call --help).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

environment=$(scripts/rngd_env.sh)
export PATH="$environment/bin:$PATH"
if [ "${1:-}" = --real-size ]; then
    shift
    exec "$environment/bin/python" -m graphcache_runtime.demo.one_call --folder .demo-rngd-real "$@"
fi
shape=(--folder .demo-rngd --h 256 --f 128 --experts 16 --e-hot 4 --bucket 16 --rows 16 --compare-rows 16)
exec "$environment/bin/python" -m graphcache_runtime.demo --toolchain rngd "${shape[@]}" "$@"
