#!/usr/bin/env bash
# Builds and packs the kit for a machine with a GPU: bash tests/gpu_day/pack.sh [KIT.tar.xz]
set -euo pipefail
kit=$(realpath -m "${1:-$(dirname "$0")/../../build-test/gpu_day_kit.tar.xz}")
cd "$(dirname "$0")/../.."
[ -e build-test/build.ninja ] || { bash tests/setup.sh --tests; cmake --preset test; }
cmake --build --preset test --target gpu_day_programs
exec python3 tests/gpu_day/pack.py build-test "$kit"
