#!/usr/bin/env bash
# Runs the library for Windows x64 under Wine, from the archive that tools/windows.sh makes: the command, programs in C and C++ of two
# compilers, the tests of the C API, and the files of earlier versions.
#
#   tests/windows.sh DIRECTORY [PACKAGES]      DIRECTORY: that of tools/windows.sh; package: the unpacked archive; tests: a build folder;
#                                              runs: what ran. PACKAGES: the folder that tools/release.sh has made, whose archive is tried
#                                              instead
#
# DIRECTORY's path has no spaces. Training runs on this machine's lavapipe, which Wine's Vulkan reaches. Installing packages needs root.
set -euo pipefail
. "$(dirname "$0")/support/apt.sh"
. "$(dirname "$0")/support/dependencies.sh"
[ $# = 1 ] || [ $# = 2 ] || die "usage: windows.sh DIRECTORY [PACKAGES]"
root=$(realpath "$(dirname "$0")/..")
bash "$root/tools/windows.sh" "$1"
directory=$(realpath "$1")
prefix=$directory/prefix
# shellcheck disable=SC2034  # for configure
toolchain=$root/cmake/mingw-w64.cmake
tools=(googletest python3 python3-venv wine64 xvfb mesa-vulkan-drivers)
require_packages "${tools[@]}"

# The C API's tests that are left out, and why; all others have to pass.
left_out=() reasons=()
leave_out() { # reason, tests
  left_out+=("${@:2}")
  reasons+=("  ${*:2}: $1")
}
leave_out "Windows does not cancel threads; pthread_cancel and pthread_exit are mingw-w64's, and the library cannot hold them off" \
  Functions.AThreadInAFunctionIsNotCancelled Functions.AThreadInACallIsNotCancelled FunctionsDeathTest.OneThatEndsItsThreadIsNamed
leave_out "ranks in several processes need the Gloo engine, which is not built for Windows" \
  ParameterServer.ServesTrainersOfTheJob ParameterServer.WorkersLearnThatAShardWasStopped

. "$root/tests/support/version.sh"
name=echotrain-$version-windows-x86_64
runs=$directory/runs
rm -rf "$directory/package" "$runs"
mkdir "$directory/package" "$runs"
archive=$directory/$name.zip
if [ $# = 2 ]; then
  (cd "$2" && sha256sum --quiet --check SHA256SUMS)
  archive=$2/$name.zip
fi
python3 -m zipfile -e "$archive" "$directory/package"
package=$directory/package/$name

cd "$root"
if command -v ccache >/dev/null; then . tests/support/ccache.sh; fi
both="$prefix;$package"
configure "$root/tests/windows" "$directory/tests" -DCMAKE_FIND_ROOT_PATH="$both"
cmake --build "$directory/tests"
configure "$root/tests/consumer" "$directory/consumer" -DCMAKE_FIND_ROOT_PATH="$package"
cmake --build "$directory/consumer"
cp "$directory"/{build/samples/draw.exe,tests/{capi_tests,golden_files,gan,gan_c}.exe,consumer/train.exe} "$runs/"

# Programs that know the header and the import library alone: of the same compiler, and of Zig's, which is LLVM's with another linker and
# another C library (the Universal C Runtime), in the version of tools/portable.sh.
[ -x "$directory/venv/bin/python" ] || python3 -m venv "$directory/venv"
sed -n '/^ziglang==/,/[^\\]$/p' tools/portable_requirements.txt >"$directory/zig.txt"
"$directory/venv/bin/pip" install -q --disable-pip-version-check --require-hashes -r "$directory/zig.txt"
zig=("$directory/venv/bin/python" -m ziglang cc -target x86_64-windows-gnu)
for sample in train feed gan; do
  compile=(-std=c99 -O2 -Wall -Werror -I"$package/include" "samples/c/$sample.c" "$package/lib/libechotrain.dll.a")
  x86_64-w64-mingw32-gcc-posix "${compile[@]}" -o "$runs/$sample-gcc.exe"
  "${zig[@]}" "${compile[@]}" -o "$runs/$sample-zig.exe"
done

# Wine reaches the Vulkan drivers of this machine, if it has a display.
export WINEPREFIX=$directory/wine WINEDEBUG=-all WINEPATH="Z:${package//\//\\}\\bin"
display=$directory/display
rm -f "$display"
Xvfb -displayfd 3 -nolisten tcp -screen 0 640x480x16 3>"$display" 2>/dev/null &
server=$!
end_all() {
  "$(command -v wineserver || echo /usr/lib/wine/wineserver)" -k 2>/dev/null || true
  kill $server 2>/dev/null || true
}
trap end_all EXIT
for _ in $(seq 50); do [ -s "$display" ] || sleep 0.1; done
[ -s "$display" ] || die "Xvfb did not start"
DISPLAY=:$(cat "$display")
export DISPLAY
wine=$(command -v wine64 || echo /usr/lib/wine/wine64)
run() { echo "windows.sh: $*" >&2; (cd "$runs" && timeout 1800 "$wine" "$@" | tr -d '\r'); }

run "$package/bin/echotrain.exe" --version
run "$package/bin/echotrain.exe" devices
run draw.exe digits 400
run "$package/bin/echotrain.exe" pack digits digits-shard
for program in feed-gcc feed-zig; do run $program.exe digits; done
for program in train train-gcc train-zig; do
  losses=$(run $program.exe digits)
  echo "$losses"
  awk '{loss[NR] = $NF + 0} END {exit !(NR == 3 && loss[3] < loss[1])}' <<<"$losses" || die "$program.exe did not learn"
done
for program in gan gan_c gan-zig; do run $program.exe 20; done
run "$package/bin/echotrain.exe" demo --seconds 20
run golden_files.exe check-all "Z:${root//\//\\}\\tests\\golden_files"
filter=-$(IFS=:; echo "${left_out[*]}")
known=$(run capi_tests.exe --gtest_list_tests "--gtest_filter=${filter#-}" | grep -c '^  ')
[ "$known" = ${#left_out[@]} ] || die "of the ${#left_out[@]} tests to be left out, there are $known"
run capi_tests.exe --gtest_brief=1 "--gtest_filter=$filter"
echo "windows.sh: all passed. Left out of the C API's tests:"
printf '%s\n' "${reasons[@]}"
