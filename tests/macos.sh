#!/usr/bin/env bash
# Cross-builds the library, the command and the samples in C for macOS 12 or later on arm64, with all dependencies linked in, and checks
# what they load and export. Nothing is run: that needs a Mac.
#
#   tests/macos.sh DIRECTORY               installed: the library and the command; samples: the programs in C
#
# The compiler is Zig's, which has the headers of macOS's C library and the names of its symbols, and links its own C++ library in. The
# dependencies are built from the source packages of the installed Debian release, from the archive in apt's sources; what has been built
# stays. Without optimisation, since nothing runs. DIRECTORY's path has no spaces. Installing tools needs root.
set -euo pipefail
root=$(realpath "$(dirname "$0")/..")
. "$root/tests/support/apt.sh"
. "$root/tests/support/dependencies.sh"
system=12.0
[ $# = 1 ] || die "usage: macos.sh DIRECTORY"
. "$root/tests/support/version.sh"
mkdir -p "$1"
directory=$(realpath "$1")
prefix=$directory/prefix
require_packages build-essential cmake ninja-build pkg-config dpkg-dev glslang-tools libvulkan-dev spirv-headers nlohmann-json3-dev \
  libcurl4-openssl-dev python3 python3-venv

# CMake asks this program for the system's version, and without an answer knows of no search paths for libraries (RPATH).
mkdir -p "$directory/host"
printf '#!/bin/sh\necho %s\n' "$system" >"$directory/host/sw_vers"
chmod +x "$directory/host/sw_vers"
# zlib and libpng take macOS for its predecessor where the compiler defines TARGET_OS_MAC.
use_zig "$directory/venv" "-target aarch64-macos.$system" "-O0 -g0 -fno-sanitize=undefined -fno-define-target-os-macros"
export PATH="$directory/host:$PATH"
cat >>"$toolchain" <<END_OF_TOOLCHAIN
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_OSX_SYSROOT "" CACHE STRING "")
# Changes the paths in binaries as they are installed. They are linked with those that they need there.
set(CMAKE_INSTALL_NAME_TOOL /bin/false)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
END_OF_TOOLCHAIN
compiler+=("RANLIB=$directory/bin/ranlib")
# shellcheck disable=SC2034  # for build_dependencies
jpeg_options=() tbb_options=(-DBUILD_SHARED_LIBS=OFF)
build_dependencies

cd "$root"
if command -v ccache >/dev/null; then . tests/support/ccache.sh; fi
configure "$root" "$directory/build" -DECHOTRAIN_SAMPLES=OFF -DECHOTRAIN_WERROR=ON "${library_options[@]}"
cmake --build "$directory/build"
rm -rf "$directory"/{installed,samples}
cmake --install "$directory/build" --prefix "$directory/installed" >"$directory/install.log"
mkdir "$directory/samples"
for sample in train feed gan; do
  "$directory/bin/cc" -std=c99 -Wall -Werror -I"$directory/installed/include" "samples/c/$sample.c" -L"$directory/installed/lib" -lechotrain \
    -Wl,-rpath,@loader_path/../installed/lib -o "$directory/samples/$sample"
done

python - "$directory" "$system" "${version%.*}" <<'END_OF_CHECKS'
import json, pathlib, re, subprocess, sys
directory, system, abi = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
library, own = f"@rpath/libechotrain.{abi}.dylib", {"/usr/lib/libSystem.B.dylib"}
def check(path, name, libraries, search):
    it = json.loads(subprocess.check_output([sys.executable, "tests/support/mach_o.py", directory / path]))
    exports = set(it.pop("exports"))
    wanted = {"processor": "arm64", "system": f"macOS {system}", "name": name, "libraries": libraries, "search": search, "signed": True}
    it["libraries"].sort()
    if it != wanted:
        sys.exit(f"macos.sh: {path} is {it}, instead of {wanted}")
    print(f"macos.sh: {path}: loads {' and '.join(libraries)}")
    return exports
exports = check(f"installed/lib/libechotrain.{abi}.dylib", library, sorted(own), [])
header = pathlib.Path("capi/include/echotrain/echotrain.h").read_text()
functions = set(re.findall(r"^ETR_API [^;(]*?\b(etr_\w+)\(", header, re.MULTILINE))
lacks = sorted(functions - {name[1:] for name in exports})
if lacks or len(functions) < 50:
    sys.exit(f"macos.sh: of {len(functions)} functions of the C API, the library does not export {lacks}")
print(f"macos.sh: the library exports all {len(functions)} functions of the C API")
both = sorted(own | {library})
check("installed/bin/echotrain", None, both, ["@loader_path/../lib"])
for sample in ("train", "feed", "gan"):
    check(f"samples/{sample}", None, both, ["@loader_path/../installed/lib"])
END_OF_CHECKS
echo "macos.sh: all passed"
