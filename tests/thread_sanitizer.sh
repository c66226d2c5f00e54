#!/usr/bin/env bash
# Builds oneTBB with the thread sanitizer, from the source package of the version that is installed: without that the sanitizer does
# not see what the library synchronizes, and reports about a hundred races that are none.
#
#   tests/thread_sanitizer.sh DIRECTORY      leaves it in DIRECTORY/tbb, where the preset `thread` looks for it
#
# What is there stays. Needs no root: the source comes from the archive in apt's sources.
set -euo pipefail
. "$(dirname "$0")/support/apt.sh"
[ $# = 1 ] || die "usage: thread_sanitizer.sh DIRECTORY"
mkdir -p "$1"
folder=$(realpath "$1")/tbb
[ ! -e "$folder/lib/cmake/TBB" ] || exit 0

work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
version=$(dpkg-query -W -f='${source:Version}' libtbb-dev) || die "libtbb-dev is not installed (tests/setup.sh)"
archive_of_release
private_sources deb-src <<<"$archive"
(cd "$work" && private_apt source --download-only "onetbb=$version") >"$work/log" 2>&1 ||
  die "apt-get source failed: $(cat "$work/log")"
mkdir "$work/source"
tar -xf "$work"/onetbb_*.orig.tar.* -C "$work/source" --strip-components 1
# Its own allocator uses memory again that another thread has let go, which looks like a race: malloc instead.
sed -i 's/bool success = dynamic_link(MALLOCLIB_NAME.*/bool success = false;/' "$work/source/src/tbb/allocator.cpp"
grep -q 'bool success = false;' "$work/source/src/tbb/allocator.cpp" || die "oneTBB $version looks for its allocator elsewhere"
cmake -S "$work/source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTBB_TEST=OFF -DTBB_STRICT=OFF \
  -DCMAKE_CXX_FLAGS=-fsanitize=thread -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_PREFIX="$work/tbb" >"$work/log"
cmake --build "$work/build" >"$work/log" 2>&1 || die "building oneTBB failed: $(tail -n 20 "$work/log")"
cmake --install "$work/build" >"$work/log"
mv "$work/tbb" "$folder"
echo "thread_sanitizer.sh: oneTBB $version with the thread sanitizer is in $folder" >&2
