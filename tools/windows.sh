#!/usr/bin/env bash
# Cross-builds EchoTrain for Windows x64, with mingw-w64, and everything that it loads and Windows lacks.
#
#   tools/windows.sh DIRECTORY
#
# Leaves in DIRECTORY: echotrain-VERSION-windows-x86_64.zip, an installed prefix with the DLLs of the compiler and of oneTBB, and the same
# as a folder; prefix, the dependencies; build, EchoTrain's build folder. tests/windows.sh runs it. docs/c.md says what works.
#
# The dependencies are built from the source packages of the installed Debian release, from the archive in apt's sources. What has
# been built stays (DIRECTORY/*.done: remove them to build anew). DIRECTORY's path has no spaces. Installing the compiler needs root.
set -euo pipefail
root=$(realpath "$(dirname "$0")/..")
. "$root/tests/support/apt.sh"
. "$root/tests/support/dependencies.sh"
[ $# = 1 ] || die "usage: windows.sh DIRECTORY"
. "$root/tests/support/version.sh"
mkdir -p "$1"
directory=$(realpath "$1")
prefix=$directory/prefix
compiler_packages=(g++-mingw-w64-x86-64-posix gcc-mingw-w64-x86-64-posix-runtime mingw-w64-x86-64-dev)
tools=("${compiler_packages[@]}" build-essential cmake ninja-build pkg-config dpkg-dev glslang-tools libvulkan-dev spirv-headers
       nlohmann-json3-dev libcurl4-openssl-dev zip)
require_packages "${tools[@]}"
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

toolchain=$root/cmake/mingw-w64.cmake
compiler=(CC=x86_64-w64-mingw32-gcc-posix AR=x86_64-w64-mingw32-ar)
jpeg_options=(-DWITH_SIMD=OFF) tbb_options=()
build_dependencies
# The licences of the compiler's libraries. Debian's file names the GPL of GCC's without its text.
for package in "${compiler_packages[@]:1}"; do cp "/usr/share/doc/$package/copyright" "$directory/licences/$package"; done
cp /usr/share/common-licenses/GPL-3 "$directory/licences/gcc-mingw-w64-x86-64-posix-runtime.GPL-3"

cd "$root"
if command -v ccache >/dev/null; then . tests/support/ccache.sh; fi
configure "$root" "$directory/build" -DECHOTRAIN_GLOO=OFF "${library_options[@]}"
cmake --build "$directory/build"

name=echotrain-$version-windows-x86_64
stage=$directory/$name
rm -rf "$stage" "$stage.zip"
umask 022
cmake --install "$directory/build" --prefix "$stage" --strip >"$directory/install.log"
libraries=("$prefix"/bin/libtbb{12,malloc}.dll)
for library in libgcc_s_seh-1 libstdc++-6 libwinpthread-1; do
  libraries+=("$(x86_64-w64-mingw32-g++-posix -print-file-name=$library.dll)")
done
# (It dates them by SOURCE_DATE_EPOCH, whenever it runs.)
for library in "${libraries[@]}"; do x86_64-w64-mingw32-strip -o "$stage/bin/$(basename "$library")" "$library"; done

# What a binary loads is in the package, or part of every Windows that the toolchain file asks for (10). Vulkan's loader comes with
# drivers; it is opened at run time.
windows=" advapi32.dll kernel32.dll msvcrt.dll shell32.dll "
loaded=$(x86_64-w64-mingw32-objdump -p "$stage"/bin/*.{dll,exe} | awk '/file format/ {file = $1} /DLL Name:/ {print file, $3}')
lacks=$(while read -r binary library; do
  [ -e "$stage/bin/$library" ] || [[ $windows == *" ${library,,} "* ]] || echo "  $(basename "$binary") needs $library"
done <<<"$loaded")
[ -z "$lacks" ] || die "libraries that are neither in the package nor part of Windows:"$'\n'"$lacks"

# The same bytes from the same files: dates, modes and order are given, and no owner is kept.
find "$stage" -type d -exec chmod 755 {} + -o -name '*.exe' -exec chmod 755 {} + -o -name '*.dll' -exec chmod 755 {} + -o -exec chmod 644 {} +
find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
(cd "$directory" && find "$name" -type f | LC_ALL=C sort | TZ=UTC zip -q -9 -X -D "$name.zip" -@)
echo "windows.sh: $stage.zip"
