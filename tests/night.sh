#!/usr/bin/env bash
# What takes too long for every change; docs/test_results.md has the last result of each part.
#
#   tests/night.sh DIRECTORY [--seconds N] [PART ...]    all parts, or those named; --seconds for each fuzz target (600)
#
#   bare_debian      the README's two commands in a Debian with nothing installed (bare_debian.sh)
#   debian_13        the same in Debian 13
#   pages            blocks of the pages that install and build, or need a network or others' packages (pages.sh)
#   everything       everything on a newer Mesa (run.sh --all --mesa); builds what the parts below need
#   wide_vectors     the operations with vectors of 512 bits (the label `night`)
#   golden           every model of the golden table against PyTorch, not only the small ones
#   peft             LoRA adapters beside Hugging Face's PEFT, also on quantised weights
#   ddp              data-parallel training beside PyTorch's (golden/ddp.py)
#   matrix_units     the operations on the lavapipe of Debian's unstable release, which has matrix units (newer_mesa.sh), and with
#                    vectors of 512 bits
#   gpu_kernels      the kernels that only GPUs choose (minutes of compilation each)
#   slurm            two ranks on two nodes of a real Slurm (slurm.sh); skipped where Slurm's daemons are not installed
#   ranks            100 steps of every way to train on several ranks, against one device (golden/ranks.py)
#   tensor_parallel  the same with threads as ranks, for ranks that share tensors
#   stages           and for models cut into stages
#   faults           200 faults of runs on several ranks
#   shares           the rest of an epoch shared out in 1,000 ways
#   kills            2,000 kills of training on one device
#   failing_writes   a write fails at 600 places of training runs, which are then resumed
#   crash            500 states of the disk after each change that a save makes
#   remote_faults    500 reads over the network from a server with faults
#   changing_files   1,000 files that change while they are read
#   allocation       the memory runs out at every allocation (hours; ECHOTRAIN_TEST_FAILURES as below)
#   failing_vulkan   every call of the Vulkan driver fails, with every error that it may give (hours; with ECHOTRAIN_TEST_FAILURES=N in
#                    the environment, N cases of each test, evenly spread, with K/N the K-th of N parts; also in the next two)
#   failing_system   the same for starts of threads and for sockets
#   failing_input    the same for calls that open, list and read files
#   walk             a random walk of 1,000,000 calls over the C API
#   walk_python      and one over the Python package
#   walk_java        one of 250,000 calls over the Java binding
#   walk_csharp      and one over the C# binding
#   soak             everything opened and closed in one process for 90 minutes
#   mutation         every small mistake in the parsers, positions, checkpoints and the echo node: would the tests notice?
#   windows          cross-built for Windows, and run under Wine
#   arm64            cross-built for arm64, and run in QEMU
#   macos            cross-built for macOS, where nothing of it has run
#   sbom             the bill of materials of each package, with SPDX's validator
#   package_managers EchoTrain in another CMake project, from Conan and, with VCPKG_ROOT in the environment, from vcpkg
#   release          the packages of a release, made (tools/release.sh), compared with their bills of materials (sbom.sh), and tried in
#                    Debian 12 and 11 (release.sh), from Maven (maven.sh), in QEMU (arm64.sh) and under Wine (windows.sh)
#   fuzz             all fuzz targets, those of models and jobs too
#
# As root (debootstrap). Goes on after a part that fails, and fails at the end. DIRECTORY/results.txt collects the results of all
# calls, so that the parts may run on several evenings.
set -uo pipefail
usage() { echo "usage: night.sh DIRECTORY [--seconds N] [PART ...]" >&2; exit 2; }
[ $# -ge 1 ] || usage
mkdir -p "$1"
work=$(realpath "$1") seconds=600
shift
if [ "${1:-}" = --seconds ]; then
  [[ ${2:-} =~ ^[0-9]+$ ]] || usage
  seconds=$2
  shift 2
fi
cd "$(dirname "$0")/.."
parts=$(sed -nE 's/^part ([a-z0-9_]+) .*/\1/p' tests/night.sh)
for name in "$@"; do
  grep -qx -e "$name" <<<"$parts" || { echo "night.sh: no part $name, only" $parts >&2; exit 2; }
done
wanted=("$@")

export ECHOTRAIN_OLDER_LIBRARIES=1  # nothing of this is published, and a mirror that lags behind fails nothing (support/dependencies.sh)
failed=0
report() { echo "$*" | tee -a "$work/results.txt"; }
part() { # name, command
  local name=$1 began=$SECONDS status=0
  shift
  [ ${#wanted[@]} = 0 ] || [[ " ${wanted[*]} " == *" $name "* ]] || return 0
  "$@" >"$work/$name.log" 2>&1 || status=$?
  case $status in
    0) report "$(date +%F) $name: passed in $(((SECONDS - began + 59) / 60)) min" ;;
    77) report "$(date +%F) $name: $(tail -n 1 "$work/$name.log")" ;;  # says that it is skipped, and why
    *) report "$(date +%F) $name: FAILED, see $work/$name.log"; failed=1 ;;
  esac
}
fuzz() {
  local target name corpus failed=0 logs=()
  cmake --build --preset fuzz --target fuzzers || return 1
  for target in build-fuzz/tests/fuzz/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    name=$(basename "$target")
    corpus=tests/fuzz/corpus/${name#fuzz_}
    [ -d "$corpus" ] || corpus=
    mkdir -p "$work/found/$name"
    logs+=("$work/$name.log")
    "$target" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 -print_funcs=0 \
      -artifact_prefix="$work/$name-" "$work/found/$name" $corpus 2>&1 | tee "$work/$name.log" || failed=1
  done
  grep -h number_of_executed_units "${logs[@]}" | awk '{sum += $2} END {print sum " inputs of " NR " targets"}'
  return $failed
}
matrix_units() {
  bash tests/newer_mesa.sh "$work/sid" build-test/tests/ops_tests &&
    LP_NATIVE_VECTOR_WIDTH=512 bash tests/newer_mesa.sh "$work/sid" build-test/tests/ops_tests
}
release() {
  local version packages
  . tests/support/version.sh
  packages=$work/release/$version
  bash tools/release.sh "$version" "$work/release" && bash tests/bindings/sbom.sh "$packages" "$work/sbom_release" &&
    bash tests/release.sh "$packages" "$work/bare" && bash tests/release.sh "$packages" "$work/bare" bullseye &&
    bash tests/bindings/maven.sh "$packages" "$work/maven_release" &&
    bash tests/arm64.sh "$work/arm64" "$packages" && bash tests/windows.sh "$work/release/work/windows" "$packages"
}

part bare_debian bash tests/bare_debian.sh "$work/bare"
part debian_13 bash tests/bare_debian.sh "$work/debian_13" "" "" trixie
part pages bash tests/pages.sh "$work/pages"
part everything bash tests/run.sh --all --mesa
part wide_vectors bash tests/drivers.sh mesa build-drivers ctest --test-dir build-test --output-on-failure --no-tests=error -L night
part golden env PYTHONPATH=build-test/bindings/python /usr/bin/python3 tests/golden/golden.py
part peft bash tests/golden/peft.sh build-test "$work/peft"
part ddp /usr/bin/python3 tests/golden/ddp.py --program build-test/tests/bench/side_bench
part matrix_units matrix_units
part gpu_kernels build-test/tests/ops_tests --gtest_also_run_disabled_tests --gtest_filter='*DISABLED*'
part slurm bash tests/slurm.sh build-test "$work/slurm"
part ranks python3 tests/golden/ranks.py --program build-test/tools/echotrain/echotrain
part tensor_parallel build-test/tests/parallel_tests --gtest_filter='TensorParallel*' --gtest_also_run_disabled_tests
part faults python3 tests/faults/faults.py build-test/tools/echotrain/echotrain --faults 200
part shares env ECHOTRAIN_TEST_SHARES=1000 build-test/tests/pipeline_tests --gtest_filter='Share.*'
part stages build-test/tests/train_tests --gtest_also_run_disabled_tests --gtest_filter="*ForAHundredSteps*"
part kills python3 tests/faults/kills.py build-test/tools/echotrain/echotrain build-test/samples/draw --kills 2000 --seed "$(date +%Y%m%d)"
part failing_writes python3 tests/faults/failing_writes.py build-test/tools/echotrain/echotrain build-test/samples/draw \
  build-test/tests/libfailing_disk.so --runs 600 --seed "$(date +%Y%m%d)"
part crash env ECHOTRAIN_TEST_CRASHES=500 build-test/tests/crash_tests
part remote_faults env PYTHONPATH=build-test/bindings/python /usr/bin/python3 tests/remote/fault_matrix.py --trials 500
part changing_files env ECHOTRAIN_TEST_CHANGES=60 build-test/tests/sources_tests --gtest_filter='*ChangingFiles*'
part allocation env ECHOTRAIN_TEST_FAILURES="${ECHOTRAIN_TEST_FAILURES:-0}" build-test/tests/allocation_tests
part failing_vulkan env ECHOTRAIN_TEST_FAILURES="${ECHOTRAIN_TEST_FAILURES:-0}" build-test/tests/failing_vulkan_tests
part failing_system env ECHOTRAIN_TEST_FAILURES="${ECHOTRAIN_TEST_FAILURES:-0}" build-test/tests/failing_system_tests
part failing_input env ECHOTRAIN_TEST_FAILURES="${ECHOTRAIN_TEST_FAILURES:-0}" build-test/tests/failing_input_tests
part walk build-test/tests/walk --calls 1000000 --within 1 --seed "$(date +%Y%m%d)"
part walk_python env PYTHONPATH=build-test/bindings/python /usr/bin/python3 tests/walk/walk.py --calls 1000000 --seed "$(date +%Y%m%d)"
part walk_java env -C "$work" ECHOTRAIN_ENGINES="$PWD/build-test/capi/echotrain" java -Dechotrain.cache.dir="$work/java-cache" \
  -cp "$PWD/build-test/tests/bindings/java:$PWD/build-test/bindings/java/echotrain.jar:$PWD/build-test/bindings/java/echotrain-natives.jar" \
  Walk --calls 250000 --seed "$(date +%Y%m%d)"
part walk_csharp env -C "$work" ECHOTRAIN_ENGINES="$PWD/build-test/capi/echotrain" MONO_PATH="$PWD/build-test/bindings/csharp/mono" \
  mono "$PWD/build-test/tests/bindings/csharp/Walk.exe" --calls 250000 --seed "$(date +%Y%m%d)"
part soak bash tests/drivers.sh mesa build-drivers build-test/tests/soak --seconds 5400
part mutation /usr/bin/python3 tests/mutation/mutate.py build-test
part windows bash tests/windows.sh "$work/windows"
part arm64 bash tests/arm64.sh "$work/arm64"
part macos bash tests/macos.sh "$work/macos"
part sbom bash tests/bindings/sbom.sh build-test "$work/sbom"
part package_managers bash tests/package_managers.sh "$work/package_managers"
part release release
part fuzz fuzz
exit $failed
