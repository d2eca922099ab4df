#!/usr/bin/env bash
# Runs the tests of the RNGD toolchain with the vendor's compiler; makes its environment first where it is missing.
# Arguments go to pytest.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
environment=$("$root/scripts/rngd_env.sh")
cd "$root"
exec "$environment/bin/python" -m pytest -m rngd -q tests/rngd "$@"
