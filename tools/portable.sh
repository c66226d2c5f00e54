#!/usr/bin/env bash
# Builds EchoTrain for every Linux on one kind of processor, whatever the distribution, with all dependencies but the C library linked in.
#
#   tools/portable.sh DIRECTORY [PROCESSOR]      PROCESSOR: x86_64 or aarch64, by default this machine's
#
# Leaves in DIRECTORY/PROCESSOR: echotrain-VERSION-linux-PROCESSOR.tar.zst, an installed prefix; the Python wheel in wheel/; in java/, a
# jar of the classes and one of the native libraries; in csharp/, a NuGet package. For another processor than this machine's, it first
# builds for this machine's.
#
# The packages need glibc 2.28 (2018) or later: the compiler is Zig's, which has the symbols of every version. The other dependencies
# are built from the source packages of the installed Debian release, from the archive in apt's sources; what has been built stays.
# DIRECTORY's path has no spaces. Installing tools needs root.
set -euo pipefail
root=$(realpath "$(dirname "$0")/..")
. "$root/tests/support/apt.sh"
. "$root/tests/support/dependencies.sh"
glibc=2.28
zig_version=$(sed -nE 's/^ziglang==([0-9.]+).*/\1/p' "$root/tools/portable_requirements.txt")
[ -n "$zig_version" ] || die "tools/portable_requirements.txt names no version of Zig"
[ $# = 1 ] || [ $# = 2 ] || die "usage: portable.sh DIRECTORY [PROCESSOR]"
machine=$(uname -m) processor=${2:-$(uname -m)}
tools=(build-essential cmake ninja-build pkg-config dpkg-dev nasm glslang-tools libvulkan-dev spirv-headers nlohmann-json3-dev
       libcurl4-openssl-dev python3-dev python3-venv zstd default-jdk-headless mono-mcs mono-runtime libmono-cecil-private-cil)
case $processor in
  "$machine") ;;
  aarch64) tools+=(libgcc-s1-arm64-cross) ;;
  x86_64) tools+=(libgcc-s1-amd64-cross) ;;
  *) die "no processor $processor, only x86_64 and aarch64" ;;
esac
. "$root/tests/support/version.sh"
mkdir -p "$1/$processor"
all=$(realpath "$1")
[ "$processor" = "$machine" ] || bash "$0" "$all" "$machine"
directory=$all/$processor
prefix=$directory/prefix
require_packages "${tools[@]}"

unwinder=/usr/$processor-linux-gnu/lib/libgcc_s.so.1
[ "$processor" != "$machine" ] || unwinder=$(cc -print-file-name=libgcc_s.so.1)

target="-target $processor-linux-gnu.$glibc"
# Zig takes what is faster on the oldest processors of a kind for features of theirs, which functions for newer ones then lack.
[ $processor != x86_64 ] || target+=" -mcpu=x86_64-slow_3ops_lea-idivq_to_divl-macrofusion-vzeroupper"
use_zig "$all/venv" "$target"
echo $zig_version >"$directory/zig"
rm -rf "$directory/licences"  # nothing stays of what an earlier version linked in
mkdir "$directory/licences"
cp "$(dirname "$zig")/LICENSE" "$directory/licences/zig"
for library in libcxx libcxxabi libunwind; do cp "$(dirname "$zig")/lib/$library/LICENSE.TXT" "$directory/licences/$library"; done
foreign=()
if [ "$processor" != "$machine" ]; then
  printf 'set(%s %s)\n' CMAKE_SYSTEM_NAME Linux CMAKE_SYSTEM_PROCESSOR $processor >>"$toolchain"
  foreign=(-DECHOTRAIN_HOST_PREFIX="$all/$machine/echotrain-$version-linux-$machine")
fi
jpeg_options=() tbb_options=(-DBUILD_SHARED_LIBS=OFF)
build_dependencies

cd "$root"
if command -v ccache >/dev/null; then . tests/support/ccache.sh; fi
# The system's unwinder, not Zig's: what a program throws in its callback comes from that.
link="-Wl,-s $unwinder -Wl,--allow-shlib-undefined"
# One build folder for all: what the wheel adds is turned off again, should it have been built before.
configure "$root" "$directory/build" -USKBUILD -DECHOTRAIN_PYTHON=OFF -DECHOTRAIN_JAVA=ON -DECHOTRAIN_CSHARP=ON -DECHOTRAIN_GLOO=OFF \
  -DECHOTRAIN_SAMPLES=OFF -DCMAKE_EXE_LINKER_FLAGS=-Wl,-s -DCMAKE_SHARED_LINKER_FLAGS="$link" -DCMAKE_MODULE_LINKER_FLAGS="$link" \
  "${foreign[@]}" "${library_options[@]}"
cmake --build "$directory/build"
rm -rf "$directory"/{java,csharp}
mkdir "$directory"/{java,csharp}
cp "$directory/build/bindings/java/"*.jar "$directory/java/"
cp "$directory/build/bindings/csharp/EchoTrain.$version.nupkg" "$directory/csharp/"
name=echotrain-$version-linux-$processor
rm -rf "${directory:?}/$name"
cmake --install "$directory/build" --prefix "$directory/$name" >"$directory/install.log"
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH
tar -C "$directory" --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+w --mtime="@$SOURCE_DATE_EPOCH" -c "$name" |
  zstd -q -19 -T0 -f -o "$directory/$name.tar.zst"
echo "portable.sh: $directory/$name.tar.zst"

# The wheel, with the same library. Python's stable ABI: one for all versions.
python=$(python -c 'import sysconfig; print(sysconfig.get_path("include"))')
mkdir -p "$prefix/include/python"
cp -rLp "$python/." "$prefix/include/python/"
config=$(dirname "$python")/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/$(basename "$python")/pyconfig.h
[ ! -e "$config" ] || cp -p "$config" "$prefix/include/python/"  # Debian's own Python has it there
rm -rf "$directory/wheel"
env _PYTHON_HOST_PLATFORM="linux-$processor" python -m build --wheel --no-isolation --outdir "$directory/wheel/plain" "$root" \
  -Cbuild-dir="$directory/build" -Ccmake.define.CMAKE_TOOLCHAIN_FILE="$toolchain" -Ccmake.define.SKBUILD=ON \
  -Ccmake.define.ECHOTRAIN_JAVA=OFF -Ccmake.define.ECHOTRAIN_CSHARP=OFF -Ccmake.define.Python_INCLUDE_DIR="$prefix/include/python" \
  >"$directory/wheel.log" 2>&1 || die "building the wheel failed, see $directory/wheel.log"
# Tags the wheel with the oldest C library that has the symbols that its binaries need. Fails if they need a library that not every
# distribution has.
auditwheel repair --only-plat --plat auto -w "$directory/wheel" "$directory"/wheel/plain/*.whl
needs=$(ls "$directory"/wheel/*.whl | sed -nE "s/.*-manylinux_2_([0-9]+)_$processor\.whl/\1/p")
[ "${needs:-99}" -le ${glibc#2.} ] || die "the wheel's tag is not that of glibc $glibc or older: $(ls "$directory/wheel")"
echo "portable.sh: $(ls "$directory"/wheel/*.whl)"
