#!/usr/bin/env bash
# The demo with graphs of the real RNGD compiler: a small MoE, trained through the lowered graphs where no NPU is.
#   --real-size   one layer of Qwen3-30B-A3B instead, on one node: E 32, H 2048, F 768, 64 rows. Without an NPU the
#                 lowered graphs take minutes a call, so the whole takes half an hour or more; docs/rngd.md has the times.
# Further options go to the demo (python -m graphcache_runtime.demo --help).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

environment=$(scripts/rngd_env.sh)
export PATH="$environment/bin:$PATH"
shape=(--folder .demo-rngd --h 256 --f 128 --experts 16 --e-hot 4 --bucket 16 --rows 16 --compare-rows 16)
if [ "${1:-}" = --real-size ]; then
    shift
    shape=(--folder .demo-rngd-real --nodes 1 --layers 1 --bucket 64 --rows 64 --compare-rows 32 --steps 2)
fi
exec "$environment/bin/python" -m graphcache_runtime.demo --toolchain rngd "${shape[@]}" "$@"
