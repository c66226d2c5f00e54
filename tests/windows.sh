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

# Source packages, the folder of their CMakeLists.txt, and what their builds are told.
packages=(
  "zlib ."
  "libzstd build/cmake -DZSTD_BUILD_PROGRAMS=OFF -DZSTD_BUILD_SHARED=OFF"
  "libpng1.6 . -DPNG_SHARED=OFF -DPNG_TESTS=OFF -DPNG_EXECUTABLES=OFF"
  "libdeflate ."
  "libjpeg-turbo . -DCMAKE_INSTALL_LIBDIR=$prefix/lib -DENABLE_SHARED=OFF -DWITH_TURBOJPEG=OFF -DWITH_SIMD=OFF"
  "onetbb . -DTBB_TEST=OFF -DTBB_STRICT=OFF -DTBB_DISABLE_HWLOC_AUTOMATIC_SEARCH=ON"
  "glslang . -DENABLE_OPT=OFF -DENABLE_CTEST=OFF"
)

configure() { # source build option...
  cmake -S "$1" -B "$2" -G Ninja --toolchain "$root/cmake/mingw-w64.cmake" -DCMAKE_BUILD_TYPE=Release -DCMAKE_FIND_ROOT_PATH="$prefix" \
    -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib "${@:3}"
}

# How each is built; chains, because what stands before || does not end at errors.
build_with_cmake() { # source, build folder, options
  configure "$@" && cmake --build "$2" && cmake --install "$2"
}

build_zlib() { # Debian's source lacks the description of the DLL
  configure "$1" "$2" && cmake --build "$2" --target zlibstatic && mkdir -p "$prefix"/{include,lib} &&
    cp "$1/zlib.h" "$2/zconf.h" "$prefix/include/" && cp "$2/libzlibstatic.a" "$prefix/lib/libz.a"
}

build_libdeflate() { # has no CMakeLists.txt
  local version=${1%/.}
  version=${version##*-}
  make -C "$1" CC=x86_64-w64-mingw32-gcc-posix AR=x86_64-w64-mingw32-ar CFLAGS=-O2 libdeflatestatic.lib &&
    cp "$1/libdeflate.h" "$prefix/include/" && cp "$1/libdeflatestatic.lib" "$prefix/lib/libdeflate.a" &&
    sed "s|@PREFIX@|$prefix|; s|@INCDIR@|$prefix/include|; s|@LIBDIR@|$prefix/lib|; s|@VERSION@|$version|" \
      "$1/libdeflate.pc.in" >"$prefix/lib/pkgconfig/libdeflate.pc"
}

build() { # source package, folder of its CMakeLists.txt, options
  local name=$1 log=$directory/$1.log source
  [ ! -e "$directory/$name.done" ] || return 0
  echo "windows.sh: building $name" >&2
  rm -rf "$work/$name"
  mkdir "$work/$name"
  # Mirrors may lack the newest security update.
  (cd "$work/$name" && { private_apt source "$name" || private_apt source "$name/$codename"; }) >"$log" 2>&1 || die "apt-get source $name failed, see $log"
  source=$(find "$work/$name" -mindepth 1 -maxdepth 1 -type d)
  local how=build_with_cmake
  if declare -F "build_$name" >/dev/null; then how=build_$name; fi
  "$how" "$source/$2" "$work/$name/build" "${@:3}" >>"$log" 2>&1 || die "building $name failed, see $log"
  basename "$source" >"$directory/$name.done"  # with its version
}

headers() { # those without code: as Debian's packages have them
  mkdir -p "$prefix"/{include,share/cmake}
  cp -r /usr/include/{nlohmann,vulkan,vk_video,spirv} "$prefix/include/"
  cp -r "/usr/include/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/curl" "$prefix/include/"
  cp -r /usr/share/cmake/{nlohmann_json,SPIRV-Headers} "$prefix/share/cmake/"
}

work=$directory/work
mkdir -p "$work"
if [ "$(find "$directory" -maxdepth 1 -name '*.done' | wc -l)" -lt ${#packages[@]} ]; then
  archive_of_release
  private_sources deb-src <<<"$archive"
  for package in "${packages[@]}"; do
    # shellcheck disable=SC2086  # several words
    build $package
  done
fi
headers

cd "$root"
if command -v ccache >/dev/null; then . tests/support/ccache.sh; fi
# libcurl is opened at run time; CMake asks for a file.
export PKG_CONFIG_LIBDIR=$prefix/lib/pkgconfig
configure "$root" "$directory/build" -DECHOTRAIN_TESTS=OFF -DECHOTRAIN_BENCH=OFF -DECHOTRAIN_GLOO=OFF -DECHOTRAIN_MPI=OFF \
  -DCURL_INCLUDE_DIR="$prefix/include" -DCURL_LIBRARY=opened-at-run-time
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
