#!/usr/bin/env bash
# What takes too long for every change; docs/testing.md has the last result.
#
#   tests/night.sh DIRECTORY [SECONDS]     SECONDS for each fuzz target; 600 without it
#
#   1. the README's two commands in a Debian with nothing installed (bare_debian.sh)
#   2. everything on a newer Mesa (run.sh --all --mesa)
#   3. the operations with vectors of 512 bits (the label `night`)
#   4. every model of the golden table against PyTorch, not only the small ones
#   5. data-parallel training beside PyTorch's (golden/ddp.py)
#   6. 100 steps of every way to train on several ranks, against one device (golden/ranks.py)
#   7. the same with threads as ranks, for ranks that share tensors and for models cut into stages
#   8. 200 faults of runs on several ranks, and the rest of an epoch shared out in 1,000 ways
#   9. the kernels for matrix units, on the lavapipe of Debian's unstable release (newer_mesa.sh)
#  10. two ranks under a real srun (slurm.sh); skipped where Slurm's daemons are not installed
#  11. 2,000 kills of training on one device, and 500 states of the disk after each change that a save makes
#  12. every call of the Vulkan driver and of the system fails, with every error that it may give
#  13. all fuzz targets, those of models and jobs too, for SECONDS each
#
# As root (debootstrap). Goes on after a part that fails, and fails at the end.
set -uo pipefail
[ $# -ge 1 ] || { echo "usage: night.sh DIRECTORY [SECONDS]" >&2; exit 2; }
mkdir -p "$1"
work=$(realpath "$1") seconds=${2:-600}
cd "$(dirname "$0")/.."

failed=0
part() { # name, command
  local name=$1 began=$SECONDS status=0
  shift
  "$@" >"$work/$name.log" 2>&1 || status=$?
  case $status in
    0) echo "$name: passed in $(((SECONDS - began + 59) / 60)) min" ;;
    77) tail -n 1 "$work/$name.log" ;;  # says that it is skipped, and why
    *) echo "$name: FAILED, see $work/$name.log"; failed=1 ;;
  esac
}
fuzz() {
  local target name
  cmake --build --preset fuzz --target fuzzers || return 1
  for target in build-fuzz/tests/fuzz/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    name=$(basename "$target")
    mkdir -p "$work/found/$name"
    "$target" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=2048 -timeout=20 -artifact_prefix="$work/$name-" \
      "$work/found/$name" $(ls -d "tests/fuzz/corpus/${name#fuzz_}" 2>/dev/null) || return 1
  done
}

part bare_debian bash tests/bare_debian.sh "$work/bare"
part everything bash tests/run.sh --all --mesa
part wide_vectors bash tests/drivers.sh mesa build-drivers ctest --test-dir build-test --output-on-failure --no-tests=error -L night
part golden env PYTHONPATH=build-test/bindings/python /usr/bin/python3 tests/golden/golden.py
part ddp /usr/bin/python3 tests/golden/ddp.py --program build-test/tests/bench/side_bench
part matrix_units bash tests/newer_mesa.sh "$work/sid" build-test/tests/ops_tests
part slurm bash tests/slurm.sh build-test "$work/slurm"
part ranks python3 tests/golden/ranks.py --program build-test/tools/echotrain/echotrain
part tensor_parallel build-test/tests/parallel_tests --gtest_filter='TensorParallel*' --gtest_also_run_disabled_tests
part faults python3 tests/faults/faults.py build-test/tools/echotrain/echotrain --faults 200
part shares env ECHOTRAIN_TEST_SHARES=1000 build-test/tests/pipeline_tests --gtest_filter='Share.*'
part stages build-test/tests/train_tests --gtest_also_run_disabled_tests --gtest_filter="*ForAHundredSteps*"
part kills python3 tests/faults/kills.py build-test/tools/echotrain/echotrain build-test/samples/draw --kills 2000
part crash env ECHOTRAIN_TEST_CRASHES=500 build-test/tests/crash_tests
for what in vulkan system input; do
  part "failing_$what" env ECHOTRAIN_TEST_FAILURES=0 "build-test/tests/failing_${what}_tests"
done
part fuzz fuzz
exit $failed
