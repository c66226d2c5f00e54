#!/usr/bin/env bash
# Installs what is missing, builds with warnings as errors, and runs every test through ctest:
#   1. Release: everything, GPU tests on the first Vulkan device
#   2. the same GPU tests under the Vulkan validation layers, with synchronization validation
#   3. the unit tests in a build with address and undefined-behaviour sanitizers
#   4. the fuzz targets, from their corpus
#   5. the packages: a wheel in an empty virtual environment, Maven's in a project of its own, NuGet's on CoreCLR;
#      exported models in ONNX Runtime; the references of all languages
#
#   --backports   passed to setup.sh (Debian 12: a newer Mesa)
#   --quick       only the first step
set -euo pipefail
cd "$(dirname "$0")/.."

setup=(--tests) quick=0
for argument in "$@"; do
  case "$argument" in
    --backports) setup+=(--backports) ;;
    --quick) quick=1 ;;
    *) echo "run.sh: unknown option $argument" >&2; exit 2 ;;
  esac
done
bash tests/setup.sh "${setup[@]}"

build() { # preset
  cmake --preset "$1"
  cmake --build --preset "$1"
}

total=0
run() { # build folder, ctest arguments
  local folder=$1; shift
  (cd "$folder" && ctest --output-on-failure --no-tests=error "$@") | tee "$folder/ctest.log"
  local passed
  passed=$(grep -oE 'out of [0-9]+' "$folder/ctest.log" | grep -oE '[0-9]+' | tail -n 1)
  total=$((total + passed))
}

build test
run build-test
if [ $quick = 0 ]; then
  echo "== under the Vulkan validation layers"
  ECHOTRAIN_TEST_VALIDATION=1 run build-test -L gpu
  echo "== under address and undefined-behaviour sanitizers"
  build sanitize
  # The driver's own allocations at exit are not ours to report. The driver frees large aligned blocks in every step;
  # a quarantine of the usual 256 MB keeps 24 GB of them.
  ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=16 LSAN_OPTIONS=suppressions="$PWD/tests/lsan.supp" run build-sanitize -LE slow
fi
if [ $quick = 0 ]; then
  echo "== fuzz targets, for a moment each"
  build fuzz
  run build-fuzz
fi
if [ $quick = 0 ]; then
  echo "== packages"
  bash tests/bindings/wheel.sh build-test/wheel
  bash tests/bindings/maven.sh build-test
  bash tests/bindings/coreclr.sh build-test
  bash tests/golden/onnx.sh build-test build-test/onnx
  echo "== references"
  bash docs/reference/build.sh build-test
  total=$((total + 5))
fi
echo "$total passed, 0 failed"
