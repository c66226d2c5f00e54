#!/usr/bin/env bash
# Cross-builds the library for Windows x64 with what it needs, and runs it under Wine: the command, and programs in C.
#
#   tests/windows.sh DIRECTORY      DIRECTORY/prefix: the dependencies; build: EchoTrain; echotrain: what an application ships; runs: what ran
#
# DIRECTORY's path has no spaces.
#
# Training runs on this machine's lavapipe, which Wine's Vulkan reaches.
#
# The dependencies are built from the source packages of the installed Debian release, from the archive in apt's sources. What has
# been built stays (DIRECTORY/*.done: remove them to build anew). Installing the compiler needs root.
set -euo pipefail
. "$(dirname "$0")/support/apt.sh"
. "$(dirname "$0")/support/dependencies.sh"
[ $# = 1 ] || die "usage: windows.sh DIRECTORY"
root=$(realpath "$(dirname "$0")/..")
mkdir -p "$1"
directory=$(realpath "$1")
prefix=$directory/prefix
tools=(g++-mingw-w64-x86-64-posix mingw-w64-x86-64-dev build-essential cmake ninja-build pkg-config dpkg-dev glslang-tools libvulkan-dev
       spirv-headers nlohmann-json3-dev libcurl4-openssl-dev wine64 xvfb mesa-vulkan-drivers)
readarray -t missing < <(lacking "${tools[@]}")
if [ ${#missing[@]} -gt 0 ]; then
  as_root apt-get update -qq
  install_packages "${missing[@]}"
fi

toolchain=$root/cmake/mingw-w64.cmake
compiler=(CC=x86_64-w64-mingw32-gcc-posix AR=x86_64-w64-mingw32-ar)
jpeg_options=(-DWITH_SIMD=OFF) tbb_options=()
build_dependencies

cd "$root"
if command -v ccache >/dev/null; then . tests/support/ccache.sh; fi
configure "$root" "$directory/build" -DECHOTRAIN_GLOO=OFF "${library_options[@]}"
cmake --build "$directory/build"

# What an application ships: the library with what it needs, the command, the header.
stage=$directory/echotrain runs=$directory/runs
rm -rf "$stage" "$runs"
cmake --install "$directory/build" --prefix "$stage"
for library in libgcc_s_seh-1 libstdc++-6 libwinpthread-1; do
  cp "$(x86_64-w64-mingw32-g++-posix -print-file-name=$library.dll)" "$stage/bin/"
done
cp "$prefix"/bin/libtbb{12,malloc}.dll "$stage/bin/"

# Programs in C that know the header and the import library alone, and which find the libraries on the path.
mkdir "$runs"
cp "$directory/build/samples/draw.exe" "$runs/"
for sample in train feed; do
  x86_64-w64-mingw32-gcc-posix -std=c99 -Wall -Werror -I"$stage/include" samples/c/$sample.c -L"$stage/lib" -lechotrain -o "$runs/$sample.exe"
done

# Wine reaches the Vulkan drivers of this machine, if it has a display.
export WINEPREFIX=$directory/wine WINEDEBUG=-all WINEPATH="Z:${stage//\//\\}\\bin"
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
run() { echo "windows.sh: $*" >&2; (cd "$runs" && timeout 600 "$wine" "$@" | tr -d '\r'); }

run "$stage/bin/echotrain.exe" --version
run "$stage/bin/echotrain.exe" devices
run draw.exe digits 400
run "$stage/bin/echotrain.exe" pack digits digits-shard
run feed.exe digits
losses=$(run train.exe digits)
echo "$losses"
awk '{loss[NR] = $NF + 0} END {exit !(NR == 3 && loss[3] < loss[1])}' <<<"$losses" || die "train.exe did not learn"
run "$stage/bin/echotrain.exe" demo --seconds 20
echo "windows.sh: all passed"
