#!/usr/bin/env bash
# Cross-builds the library for Windows x64, and what it needs.
#
#   tests/windows.sh DIRECTORY      DIRECTORY/prefix: the dependencies; DIRECTORY/build: EchoTrain
#
# The dependencies are built from the source packages of the installed Debian release, at the versions that its -dev packages have.
# What is there stays. Installing the compiler needs root; the sources come from the archive in apt's sources.
set -euo pipefail
. "$(dirname "$0")/support/apt.sh"
[ $# = 1 ] || die "usage: windows.sh DIRECTORY"
root=$(realpath "$(dirname "$0")/..")
mkdir -p "$1"
directory=$(realpath "$1")
prefix=$directory/prefix
tools=(g++-mingw-w64-x86-64-posix mingw-w64-x86-64-dev cmake ninja-build pkg-config dpkg-dev googletest libvulkan-dev spirv-headers nlohmann-json3-dev
       libcurl4-openssl-dev)
missing=()
for tool in "${tools[@]}"; do
  dpkg-query -W -f='${Status}' "$tool" 2>/dev/null | grep -q '^install ok installed' || missing+=("$tool")
done
if [ ${#missing[@]} -gt 0 ]; then
  as_root=$([ "$(id -u)" = 0 ] || echo sudo)
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -q --no-install-recommends "${missing[@]}"
fi

# Source packages, the binary packages whose versions they are to have, and what their builds are told.
packages=(
  "zlib zlib1g-dev"
  "libzstd libzstd-dev build/cmake -DZSTD_BUILD_PROGRAMS=OFF -DZSTD_BUILD_SHARED=OFF"
  "libpng1.6 libpng-dev . -DPNG_SHARED=OFF -DPNG_TESTS=OFF -DPNG_EXECUTABLES=OFF -DCMAKE_POLICY_VERSION_MINIMUM=3.5"
  "libdeflate libdeflate-dev . -DLIBDEFLATE_BUILD_SHARED_LIB=OFF -DLIBDEFLATE_BUILD_GZIP=OFF"
  "libjpeg-turbo libjpeg62-turbo-dev . -DENABLE_SHARED=OFF -DWITH_TURBOJPEG=OFF -DWITH_SIMD=OFF"
  "onetbb libtbb-dev . -DTBB_TEST=OFF -DTBB_STRICT=OFF -DTBB_DISABLE_HWLOC_AUTOMATIC_SEARCH=ON"
  "glslang glslang-dev . -DENABLE_GLSLANG_BINARIES=OFF -DENABLE_OPT=OFF -DENABLE_CTEST=OFF"
)

configure() { # source build option...
  cmake -S "$1" -B "$2" -G Ninja --toolchain "$root/cmake/mingw-w64.cmake" -DCMAKE_BUILD_TYPE=Release -DCMAKE_FIND_ROOT_PATH="$prefix" \
    -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib "${@:3}"
}

build() { # source package, its -dev package, folder of its CMakeLists.txt, options
  local name=$1 version log=$directory/$1.log
  [ ! -e "$directory/$name.done" ] || return 0
  version=$(dpkg-query -W -f='${source:Version}' "$2") || die "$2 is not installed (tests/setup.sh)"
  echo "windows.sh: building $name $version" >&2
  rm -rf "$work/$name"
  (cd "$work" && private_apt source "$name=$version" && mv "$(find . -maxdepth 1 -type d -name "$name*-*" -o -maxdepth 1 -type d -name "${name%%1.6}*-*" | head -n 1)" "$name") >"$log" 2>&1 ||
    die "apt-get source $name failed, see $log"
  { configure "$work/$name/${3:-.}" "$work/$name.build" "${@:4}" &&
      if [ "$name" = zlib ]; then
        # Of the DLL, Debian's source lacks the description.
        cmake --build "$work/$name.build" --target zlibstatic && mkdir -p "$prefix"/{include,lib} &&
          cp "$work/zlib/zlib.h" "$work/zlib.build/zconf.h" "$prefix/include/" &&
          cp "$work/zlib.build/libzlibstatic.a" "$prefix/lib/libz.a"
      else
        cmake --build "$work/$name.build" && cmake --install "$work/$name.build"
      fi; } >>"$log" 2>&1 || die "building $name failed, see $log"
  touch "$directory/$name.done"
}

headers() { # those without code: as Debian's packages have them
  mkdir -p "$prefix/include" "$prefix/share"
  cp -r /usr/include/{nlohmann,vulkan,vk_video,spirv} "$prefix/include/"
  cp -r "/usr/include/$(gcc -print-multiarch)/curl" "$prefix/include/"
  cp -r /usr/share/cmake/{nlohmann_json,SPIRV-Headers} "$prefix/share/" 2>/dev/null || true
}

work=$directory/work
mkdir -p "$work"
if compgen -G "$directory/*.done" >/dev/null && [ "$(ls "$directory"/*.done | wc -l)" = ${#packages[@]} ]; then :; else
  archive_of_release
  private_sources deb-src <<<"$archive"
  for package in "${packages[@]}"; do build $package; done
fi
headers
