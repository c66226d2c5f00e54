#!/usr/bin/env bash
# Installs what is missing, builds with warnings as errors, and runs the tests through ctest.
#
#   bash tests/run.sh           every room, the C API, all bindings, the command and the samples, on the first Vulkan device:
#                               20 to 30 minutes on two cores
#   bash tests/run.sh --rest    what that leaves out
#     1. what takes longer: devices with low limits, another maker's driver (SwiftShader), every kernel against the host, failing
#        allocations, remote files, PyTorch
#     2. the GPU tests under the Vulkan validation layers, with synchronization validation
#     3. the packages: a wheel in an empty virtual environment, Maven's in a project of its own, NuGet's on CoreCLR; the types
#        of the Python package; exported models in ONNX Runtime; the references of all languages; the site, with every link
#   bash tests/run.sh --sanitizers   three more builds, about an hour on two cores: the unit tests under address and
#                               undefined-behaviour sanitizers, those of the host under the thread sanitizer, and the fuzz
#                               targets of everything that reads data, from their corpus
#   bash tests/run.sh --all     all three
#
#   --mesa        on a newer Mesa's lavapipe, unpacked beside the build (Debian 12; see tests/drivers.sh)
#   --backports   passed to setup.sh: installs that Mesa
#
# Prints how many entries passed and which tests were skipped. With CI=true in the environment a skipped test is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

setup=(--tests) part=usual mesa=0
for argument in "$@"; do
  case "$argument" in
    --rest | --sanitizers | --all) part=${argument#--} ;;
    --mesa) mesa=1 ;;
    --backports) setup+=(--backports) ;;
    *) echo "run.sh: unknown option $argument (--rest, --sanitizers, --all, --mesa, --backports)" >&2; exit 2 ;;
  esac
done
began=$SECONDS
begin() { printf '== %s (after %d min)\n' "$1" $(((SECONDS - began) / 60)); }

bash tests/setup.sh "${setup[@]}"
# The wheel's library is compiled as that of the tests is.
. tests/support/ccache.sh
use_newer_mesa() {
  local variables
  variables=$(bash tests/drivers.sh mesa build-drivers)
  eval "$variables"
}
[ $mesa = 0 ] || use_newer_mesa

passed=0 skipped=
note_skips() { # file: what gtest, unittest, ctest and CMake say of tests that did not run
  local found
  found=$(grep -aoE '^\[  SKIPPED \] [^ ]+ \(|skipped=[0-9]+|Test +#[0-9]+: .*\*\*\*Skipped|[a-z_]+ is SKIPPED: .*' "$1") || return 0
  skipped+=$(sed 's/^/  /; s/ ($//' <<<"$found")$'\n'
}
build() { # preset, further arguments of cmake
  local log=build-$1.log
  cmake --preset "$@" | tee "$log"
  note_skips "$log"
  rm "$log"
  cmake --build --preset "$1"
}
run() { # build folder, arguments of ctest
  local folder=$1; shift
  (cd "$folder" && ctest --output-on-failure --no-tests=error -j "$(nproc)" "$@") | tee "$folder/ctest.log"
  passed=$((passed + $(sed -nE 's/.*tests passed.* out of ([0-9]+)/\1/p' "$folder/ctest.log" | tail -n 1)))
  note_skips "$folder/Testing/Temporary/LastTest.log"
}

if [ $part = usual ]; then
  build test
  run build-test -LE 'more|swiftshader|night'
fi
if [ $part = rest ] || [ $part = all ]; then
  build test -DECHOTRAIN_TEST_DRIVERS=build-drivers
  if [ $part = all ]; then run build-test -LE night; else run build-test -L 'more|swiftshader|newer'; fi
  begin "under the Vulkan validation layers"
  ECHOTRAIN_TEST_VALIDATION=1 run build-test -L gpu
  begin "packages"
  bash tests/bindings/wheel.sh build-test/wheel
  bash tests/bindings/typing.sh build-test build-test/typing
  bash tests/bindings/maven.sh build-test
  bash tests/bindings/coreclr.sh build-test
  bash tests/golden/onnx.sh build-test build-test/onnx
  bash tests/bindings/transports.sh build-test build-test/transports
  begin "references"
  bash docs/reference/build.sh build-test
  begin "site"
  python3 tests/docs/site.py build-test
  passed=$((passed + 8))
fi
if [ $part = sanitizers ] || [ $part = all ]; then
  begin "address and undefined-behaviour sanitizers"
  build sanitize
  # Mesa 22 is unloaded before the leak checker looks, which then cannot tell that the leaks are the driver's.
  installed=$(dpkg-query -W -f='${Version}' mesa-vulkan-drivers 2>/dev/null || echo 99)
  [ $mesa = 1 ] || ! dpkg --compare-versions "$installed" lt 24 || use_newer_mesa
  # The driver's own allocations at exit are not ours to report. The driver frees large aligned blocks in every step;
  # a quarantine of the usual 256 MB keeps 24 GB of them.
  ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=16 LSAN_OPTIONS=suppressions="$PWD/tests/lsan.supp" run build-sanitize -LE slow
  begin "thread sanitizer"
  bash tests/thread_sanitizer.sh build-thread
  build thread
  # Some tests start threads in a child process, which the sanitizer refuses unless it is told.
  TSAN_OPTIONS=die_after_fork=0 run build-thread -L host
  begin "fuzz targets, for a moment each"
  build fuzz
  run build-fuzz -LE night
fi
skips=$(grep -c . <<<"$skipped" || true)
[ "$skips" = 0 ] || printf 'skipped:\n%s' "$skipped"
begin "done"
if [ "$skips" != 0 ] && [ "${CI:-}" = true ]; then
  echo "run.sh: nothing may be skipped in CI" >&2
  exit 1
fi
echo "$passed passed, 0 failed, $skips skipped"
