#!/usr/bin/env bash
# Cross-builds EchoTrain for Windows x64, with mingw-w64, and everything that it loads and Windows lacks.
#
#   tools/windows.sh DIRECTORY [PREFIX]      PREFIX: an installed EchoTrain of this version for this machine, such as the archive of
#                                            tools/portable.sh, which the bindings are asked for: without it, they are not built
#
# Leaves in DIRECTORY: echotrain-VERSION-windows-x86_64.zip, an installed prefix, and the same as a folder; with PREFIX also the Python
# wheel in wheel/; in java/, a jar of the native libraries; in csharp/, a NuGet package; prefix, the dependencies; build, EchoTrain's build
# folder. tests/windows.sh runs them. docs/c.md says what works.
#
# The dependencies are built from the source packages of the installed Debian release, from the archive in apt's sources. All but oneTBB are
# linked in, as the compiler's libraries are. Libraries that have been built stay (DIRECTORY/*.done: remove them to build anew). DIRECTORY's
# path has no spaces. Installing the compiler needs root.
set -euo pipefail
root=$(realpath "$(dirname "$0")/..")
. "$root/tests/support/apt.sh"
. "$root/tests/support/dependencies.sh"
[ $# = 1 ] || [ $# = 2 ] || die "usage: windows.sh DIRECTORY [PREFIX]"
. "$root/tests/support/version.sh"
mkdir -p "$1"
directory=$(realpath "$1")
prefix=$directory/prefix
compiler_packages=({g++,gcc}-mingw-w64-x86-64-posix mingw-w64-x86-64-dev)
tools=("${compiler_packages[@]}" build-essential cmake ninja-build pkg-config dpkg-dev glslang-tools libvulkan-dev spirv-headers
       nlohmann-json3-dev libcurl4-openssl-dev zip)
further=() bindings=(-DECHOTRAIN_JAVA=OFF -DECHOTRAIN_CSHARP=OFF)
if [ $# = 2 ]; then
  [ -x "$2/bin/echotrain" ] && [ "$("$2/bin/echotrain" version)" = "echotrain $version" ] ||
    die "'$2' is not EchoTrain $version, installed, for this machine"
  tools+=(python3-dev python3-venv default-jdk-headless mono-mcs mono-runtime libmono-cecil-private-cil)
  bindings=(-DECHOTRAIN_JAVA=ON -DECHOTRAIN_CSHARP=ON -DECHOTRAIN_HOST_PREFIX="$(realpath "$2")")
fi
require_packages "${tools[@]}"
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

build_python() { # what an extension with Python's stable ABI is built with on Windows: the headers, and the library that has the functions
  mkdir -p "$prefix"/{include/python,lib} && cp -r "$1/Include/." "$1"/PC/pyconfig.h "$prefix/include/python/" &&
    sed -nE '1i LIBRARY python3.dll\nEXPORTS
             s/^EXPORT_FUNC\((\w+)\).*/\1/p; s/^EXPORT_DATA\((\w+)\).*/\1 DATA/p' "$1/PC/python3dll.c" >"$1/python3.def" &&
    x86_64-w64-mingw32-dlltool -d "$1/python3.def" -l "$prefix/lib/libpython3.dll.a"
}

toolchain=$root/cmake/mingw-w64.cmake
compiler=(CC=x86_64-w64-mingw32-gcc-posix AR=x86_64-w64-mingw32-ar)
jpeg_options=(-DWITH_SIMD=OFF) tbb_options=()
if [ $# = 2 ]; then
  use_packaging_tools "$directory/venv"
  further=("$(/usr/bin/python3 -c 'import sys; print(f"python3.{sys.version_info.minor}")') .")
fi
rm -rf "$directory/licences"  # nothing stays of what an earlier version linked in
build_dependencies ${further[@]+"${further[@]}"}
# DLLs: linked into ours, oneTBB stopped at the end of a thread that had used it. (strip dates them by SOURCE_DATE_EPOCH.)
libraries=("$directory"/dlls/libtbb{12,malloc}.dll)
mkdir -p "$directory/dlls"
for library in "${libraries[@]}"; do x86_64-w64-mingw32-strip -o "$library" "$prefix/bin/$(basename "$library")"; done
# The licences of the compiler's libraries. Debian's file names the GPL of GCC's without its text.
rm -f "$directory"/licences/python*  # of which there are headers alone
for package in "${compiler_packages[@]}"; do cp "/usr/share/doc/$package/copyright" "$directory/licences/$package"; done
cp /usr/share/common-licenses/GPL-3 "$directory/licences/gcc-mingw-w64-x86-64-posix.GPL-3"

cd "$root"
if command -v ccache >/dev/null; then . tests/support/ccache.sh; fi
# One build folder for all: what the wheel adds is turned off again, should it have been built before.
configure "$root" "$directory/build" -USKBUILD -DECHOTRAIN_PYTHON=OFF -DECHOTRAIN_SAMPLES=ON -DECHOTRAIN_GLOO=OFF "${bindings[@]}" "${library_options[@]}" \
  -DECHOTRAIN_BUNDLED_LIBRARIES="$(IFS=';'; echo "${libraries[*]}")" -DCMAKE_{EXE,SHARED,MODULE}_LINKER_FLAGS_RELEASE=-s
cmake --build "$directory/build"

name=echotrain-$version-windows-x86_64
stage=$directory/$name
rm -rf "$stage" "$stage.zip"
umask 022
cmake --install "$directory/build" --prefix "$stage" >"$directory/install.log"
cp "${libraries[@]}" "$stage/bin/"

# The same bytes from the same files: dates, modes and order are given, and no owner is kept.
find "$stage" -type d -exec chmod 755 {} + -o -name '*.exe' -exec chmod 755 {} + -o -name '*.dll' -exec chmod 755 {} + -o -exec chmod 644 {} +
find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
(cd "$directory" && find "$name" -type f | LC_ALL=C sort | TZ=UTC zip -q -9 -X -D "$name.zip" -@)
packages=("$stage.zip")
if [ $# = 2 ]; then
  rm -rf "$directory"/{java,csharp,wheel}
  mkdir "$directory"/{java,csharp}
  cp "$directory/build/bindings/java/echotrain-natives.jar" "$directory/java/"
  cp "$directory/build/bindings/csharp/EchoTrain.$version.nupkg" "$directory/csharp/"
  env _PYTHON_HOST_PLATFORM=win-amd64 python -m build --wheel --no-isolation --outdir "$directory/wheel" "$root" \
    -Cbuild-dir="$directory/build" -Ccmake.define.CMAKE_TOOLCHAIN_FILE="$toolchain" -Ccmake.define.SKBUILD=ON \
    -Ccmake.define.ECHOTRAIN_JAVA=OFF -Ccmake.define.ECHOTRAIN_CSHARP=OFF -Ccmake.define.Python_INCLUDE_DIR="$prefix/include/python" \
    -Ccmake.define.Python_SABI_LIBRARY="$prefix/lib/libpython3.dll.a" \
    -Cinstall.strip=false >"$directory/wheel.log" 2>&1 || die "building the wheel failed, see $directory/wheel.log"
  packages+=("$directory"/{wheel/*.whl,java/*.jar,csharp/*.nupkg})
fi

# What a binary loads lies beside it, or is part of every Windows that the toolchain file asks for (10), or of Python. Vulkan's loader comes
# with drivers; it is opened at run time.
rm -rf "$directory/unpacked"
for package in "${packages[@]}"; do
  python3 -m zipfile -e "$package" "$directory/unpacked"
  lacks=$(find "$directory/unpacked" -name '*.dll' ! -name EchoTrain.dll -o -name '*.exe' -o -name '*.pyd' | while read -r binary; do
    x86_64-w64-mingw32-objdump -p "$binary" | awk '/DLL Name:/ {print $3}' | while read -r library; do
      case ${library,,} in advapi32.dll | kernel32.dll | msvcrt.dll | shell32.dll) continue ;; python3.dll) [[ $binary != *.pyd ]] || continue ;; esac
      [ -e "$(dirname "$binary")/$library" ] || echo "  $(basename "$binary") needs $library"
    done
  done)
  [ -z "$lacks" ] || die "$package lacks libraries that are not part of Windows:"$'\n'"$lacks"
  rm -rf "$directory/unpacked"
  echo "windows.sh: $package"
done
