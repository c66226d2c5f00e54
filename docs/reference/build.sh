#!/usr/bin/env bash
# Builds the references, from the headers, the sources and the library's schemas; a warning is an error.
#
#   docs/reference/build.sh [BUILD_FOLDER]     # one with all bindings: build-test, unless another is named
#
# Result: BUILD_FOLDER/reference/{c,python,java,csharp}/index.html; and options.md and command.md, pages of the site (docs/site)
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

echotrain=$build/tools/echotrain/echotrain
overview=$("$echotrain" help)
{
  printf '# The command\n\n`echotrain help` and `echotrain COMMAND --help` print what is on this page.\n\n```text\n%s\n```\n' "$overview"
  for command in $(awk '/^usage:/ { list = 1 } /^.echotrain COMMAND/ { list = 0 } list && /^  [a-z]/ { print $1 }' <<<"$overview"); do
    text=$("$echotrain" help "$command")
    printf '\n## %s\n\n```text\n%s\n```\n' "$command" "$text"
  done
} >"$OUT/command.md"

python=$(sed -n 's/^_*Python_EXECUTABLE:[A-Z]*=//p' "$build/CMakeCache.txt" | head -n 1)  # the binding's
"$python" -m venv --system-site-packages "$OUT/venv"
PIP_NO_CACHE_DIR=1 "$OUT/venv/bin/pip" install -q --disable-pip-version-check pdoc==16.0.0
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
# Links of both programs that lead nowhere.
find "$OUT/csharp" -name '*.html' -exec sed -i -E 's/(href="[^"]*#M:[^"()]+)"/\1()"/g; /<a href="#Members">/d' {} +
grep -rL 'id="nested-classes"' "$OUT/c" --include='*.html' | xargs sed -i '/href="#nested-classes"/d'
ls "$OUT"/{c,python,java,csharp}/index.html
