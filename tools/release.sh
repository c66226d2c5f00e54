#!/usr/bin/env bash
# Makes what a release publishes, from the commit that is checked out.
#
#   tools/release.sh VERSION DIRECTORY
#
# Leaves in DIRECTORY/VERSION: the source archive; for every Linux on x86-64 and arm64 (tools/portable.sh) and for Windows (tools/windows.sh),
# an archive of the library, a Python wheel and a jar of natives; the jars of the classes and a NuGet package for all of them; packages for
# the Debian that it runs on; a bill of materials of each; the notes, from CHANGELOG.md; and SHA256SUMS. What was built stays in
# DIRECTORY/work; packed again from that, the files are the same. tests/release.sh, tests/arm64.sh and tests/windows.sh try them;
# docs/releases.md says for whom they are. Installing tools needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
. tests/support/apt.sh
. tests/support/version.sh
[ $# = 2 ] || die "usage: release.sh VERSION DIRECTORY"
mkdir -p "$2"
directory=$(realpath "$2")
out=$directory/$version work=$directory/work

require_packages strip-nondeterminism python3 libopenmpi-dev libmpich-dev  # the last two: Debian packages for both
[ -z "$(git status --porcelain)" ] || die "the checkout has changes that are not committed"
python3 tests/house/versions.py || die "places that name another version than CMakeLists.txt"
[ "$version" = "$1" ] || die "CMakeLists.txt has version $version, not $1"
awk -v version="$version" '/^## / {on = $2 == version; next} on' CHANGELOG.md >"$directory/notes"
grep -q . "$directory/notes" || die "CHANGELOG.md has no section $version"
if [ -n "$(git tag --points-at HEAD "v$version")" ] && grep -qF "## $version (unreleased)" CHANGELOG.md; then
  die "CHANGELOG.md calls $version unreleased: give it the date, and tag that commit"
fi
# Links into the repository lead nowhere from the release's folder.
perl -0pi -e 's/\[([^]]*)\]\((?!https?:)([^)#]+)[^)]*\)/$1 ($2)/g' "$directory/notes"
[ -d "tests/golden_files/${version%.*}" ] || die "later versions could not be tested with files of this one: golden_files has to write tests/golden_files/${version%.*}"

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)  # the date of everything in the packages
export SOURCE_DATE_EPOCH
rm -rf "$out"
mkdir -p "$out" "$work"
mv "$directory/notes" "$out/NOTES.md"
git archive --format=tar --prefix="echotrain-$version/" HEAD | gzip -n -9 >"$out/echotrain-$version.tar.gz"

echo "release.sh: for every Linux" >&2
portable=$work/portable foreign=aarch64
[ "$(uname -m)" != aarch64 ] || foreign=x86_64
bash tools/portable.sh "$portable" $foreign  # and this machine's, first
for processor in x86_64 aarch64; do
  cp "$portable/$processor/echotrain-$version-linux-$processor.tar.zst" "$portable/$processor"/wheel/*.whl "$out/"
  cp "$portable/$processor/java/echotrain-natives.jar" "$out/echotrain-$version-natives-linux-$processor.jar"
done

echo "release.sh: for Windows" >&2
bash tools/windows.sh "$work/windows" "$portable/$(uname -m)/echotrain-$version-linux-$(uname -m)"
cp "$work/windows/echotrain-$version-windows-x86_64.zip" "$work"/windows/wheel/*.whl "$out/"
cp "$work/windows/java/echotrain-natives.jar" "$out/echotrain-$version-natives-windows-x86_64.jar"

# The classes are the same everywhere, and so is the assembly.
bindings=$portable/x86_64/build/bindings
for other in "$portable/aarch64" "$work/windows"; do
  diff -r "$bindings/java/classes" "$other/build/bindings/java/classes" || die "the classes of $other differ"
  cmp "$bindings/csharp/EchoTrain.dll" "$other/build/bindings/csharp/EchoTrain.dll" || die "the C# assembly of $other differs"
done
java=$bindings/java
cp bindings/java/pom.xml "$out/echotrain-$version.pom"
cp "$portable/x86_64/java/echotrain.jar" "$out/echotrain-$version.jar"
rm -rf "$work/licence"
mkdir -p "$work/licence/META-INF/echotrain"
cp LICENSE "$work/licence/META-INF/echotrain/"
jar --create --file "$out/echotrain-$version-sources.jar" -C "$work/licence" META-INF -C bindings/java/src/main/java io -C "$java/generated" io
rm -rf "$work/javadoc"
javadoc -quiet -notimestamp -Xdoclint:all,-missing -Werror -public -windowtitle EchoTrain -d "$work/javadoc" -classpath "$java/classes" \
  -sourcepath "bindings/java/src/main/java:$java/generated" io.echotrain
jar --create --file "$out/echotrain-$version-javadoc.jar" -C "$work/licence" META-INF -C "$work/javadoc" .
rm -rf "$work/nuget"
mkdir "$work/nuget"
for platform in "$work/windows" "$portable"/{aarch64,x86_64}; do
  (cd "$work/nuget" && cmake -E tar xf "$platform/csharp/EchoTrain.$version.nupkg")
done
cmake -DLAYOUT="$work/nuget" -DPACKAGE="$out/EchoTrain.$version.nupkg" -P bindings/csharp/pack.cmake
strip-nondeterminism --timestamp "$SOURCE_DATE_EPOCH" "$out"/*.jar
strip-nondeterminism --type zip --timestamp "$SOURCE_DATE_EPOCH" "$out"/*.nupkg

echo "release.sh: for this Debian" >&2
bash tests/setup.sh
if command -v ccache >/dev/null; then . tests/support/ccache.sh; fi
cmake -S . -B "$work/debian" -G Ninja -DCMAKE_BUILD_TYPE=Release -DECHOTRAIN_TESTS=OFF -DECHOTRAIN_BENCH=OFF -DECHOTRAIN_SAMPLES=OFF -DECHOTRAIN_HARDEN=ON \
  -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_CXX_FLAGS="-ffile-prefix-map=$root=." -DCMAKE_C_FLAGS="-ffile-prefix-map=$root=."
cmake --build "$work/debian"
(cd "$work/debian" && cpack -G DEB -B "$work/debian/packages" >"$work/cpack.log" 2>&1) || die "cpack failed, see $work/cpack.log"
cp "$work"/debian/packages/*.deb "$out/"

for package in "$out"/*.whl "$out"/*.{tar.zst,zip,jar,nupkg}; do
  case $(basename "$package") in *windows* | *win_amd64*) sources=$work/windows ;; *aarch64*) sources=$portable/aarch64 ;; *) sources=$portable/x86_64 ;; esac
  python3 tools/sbom.py "$package" --sources "$sources" --out "$package.spdx.json"
done
for package in "$out"/*.deb; do python3 tools/sbom.py "$package" --out "$package.spdx.json"; done
for bill in "$out"/*.spdx.json; do python3 tests/bindings/sbom_check.py "${bill%.spdx.json}" "$bill"; done
# (tests/support/dependencies.sh; only with ECHOTRAIN_OLDER_LIBRARIES in the environment.)
older=$(cat "$portable"/*/*.older "$work"/windows/*.older 2>/dev/null | sort -u) || true
[ -z "$older" ] || printf '\n**Not to be published:** these security updates of libraries are missing.\n\n%s\n' "$older" >>"$out/NOTES.md"
(cd "$out" && sha256sum -- * >SHA256SUMS)
echo "release.sh: $out"
