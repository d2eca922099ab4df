#!/usr/bin/env bash
# Makes the environment in which RNGD graphs are compiled, or finds the one made before, and prints its folder.
#
# The vendor's packages (7.3 GB) lie outside the checkout, in a folder named by the hash of their requirements, so that
# every checkout of this machine shares them. On top of it each checkout has a thin environment of its own, with the
# project installed editable: that is the folder printed. Its bin/python and bin/graphcache are what one runs.
#
#   GRAPHCACHE_RNGD_HOME   where environments are kept; default ~/.cache/graphcache
#   PYTHON                 the Python to start from; default python3.11
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
requirements=$root/docker/requirements-rngd.txt
home=${GRAPHCACHE_RNGD_HOME:-$HOME/.cache/graphcache}
python=${PYTHON:-python3.11}
short_sha() { sha256sum | cut -c1-12; }
base=$home/rngd-$(short_sha <"$requirements")
thin=$base/checkouts/$(printf %s "$root" | short_sha)
say() { echo "rngd-env: $*" >&2; }

require_cross_compiler() {
    command -v aarch64-linux-gnu-gcc >/dev/null && [ -e /usr/aarch64-linux-gnu/include/stdio.h ] && return
    local packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing $packages"
        { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $packages; } >&2
    else
        say "the RNGD compiler needs a cross compiler for arm64: run 'sudo apt-get install $packages' and try again"
        exit 1
    fi
}

make_base() {
    [ -e "$base/complete" ] && return
    say "installing the vendor's packages into $base (7.3 GB, some minutes; once a machine)"
    rm -rf "$base"
    "$python" -m venv "$base" >&2
    "$base/bin/python" -m pip install -q --disable-pip-version-check -r "$requirements" >&2
    touch "$base/complete"
}

make_thin() {
    local stamp
    stamp=$(short_sha <"$root/pyproject.toml")
    [ "$(cat "$thin/complete" 2>/dev/null)" = "$stamp" ] && return
    say "installing this checkout into $thin"
    # In place: a worker or a test may be running in it.
    [ -e "$thin/bin/python" ] || "$base/bin/python" -m venv --without-pip "$thin" >&2
    "$base/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
        >"$("$thin/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vendor.pth"
    "$base/bin/python" -m pip --python "$thin/bin/python" install -q --disable-pip-version-check --no-deps \
        --no-build-isolation -e "$root" >&2
    printf %s "$stamp" >"$thin/complete"
}

require_cross_compiler
mkdir -p "$home"
exec 9>"$base.lock"
flock 9
make_base
make_thin
echo "$thin"
