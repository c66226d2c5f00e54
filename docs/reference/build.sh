#!/usr/bin/env bash
# Builds the references, from the headers, the sources and the library's schemas; a warning is an error.
#
#   docs/reference/build.sh [BUILD_FOLDER]     # one with all bindings: build-test, unless another is named
#
# Result: BUILD_FOLDER/reference/{c,python,java,csharp}/index.html
set -euo pipefail
root=$(realpath "$(dirname "$0")/../..")
build=$(realpath "${1:-$root/build-test}")
if [ ! -e "$build/bindings/python" ] || [ ! -e "$build/bindings/java" ] || [ ! -e "$build/bindings/csharp" ]; then
  echo "build.sh: '$build' is no build with all bindings; 'bash tests/setup.sh --tests', 'cmake --preset test' and" >&2
  echo "'cmake --build --preset test' make one in build-test" >&2
  exit 2
fi
cd "$root"
export OUT=$build/reference
rm -rf "$OUT"
mkdir -p "$OUT"

python3 bindings/generate.py --library "$build/capi/libechotrain.so" --markdown "$OUT"
doxygen docs/reference/Doxyfile

python=$(sed -n 's/^_*Python_EXECUTABLE:[A-Z]*=//p' "$build/CMakeCache.txt" | head -n 1)  # the binding's
"$python" -m venv --system-site-packages "$OUT/venv"
PIP_NO_CACHE_DIR=1 "$OUT/venv/bin/pip" install -q --disable-pip-version-check pdoc
PYTHONPATH=$build/bindings/python "$OUT/venv/bin/python" -W error::UserWarning -m pdoc -d numpy --no-show-source \
  -o "$OUT/python" echotrain '!echotrain.native'

java=$build/bindings/java
javadoc -quiet -Xdoclint:all,-missing -Werror -public -windowtitle EchoTrain -d "$OUT/java" \
  -classpath "$java/classes" -sourcepath bindings/java/src/main/java:"$java/generated" io.echotrain

mdoc update -o "$OUT/csharp-xml" -i "$build/bindings/csharp/EchoTrain.xml" "$build/bindings/csharp/mono/EchoTrain.dll" >"$OUT/mdoc.log" 2>&1
# What has nothing to say says nothing.
grep -rlZ 'To be added' "$OUT/csharp-xml" | xargs -0 sed -i -E 's/<(summary|remarks|Remarks|value|returns|Copyright)>To be added\.<.*>/<\1 \/>/; s/To be added\.?( *)//g'
mdoc export-html -o "$OUT/csharp" "$OUT/csharp-xml" >>"$OUT/mdoc.log" 2>&1
if grep -E '^mdoc:|[Ww]arning:|[Ee]rror:' "$OUT/mdoc.log"; then exit 1; fi
ls "$OUT"/{c,python,java,csharp}/index.html
