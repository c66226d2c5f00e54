#!/usr/bin/env bash
# ONNX Runtime in a virtual environment of its own, beside our inference. Arguments: the build folder, a folder to work in.
set -euo pipefail
export PIP_NO_CACHE_DIR=1  # nothing is left outside the tree
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2"
work=$(cd "$2" && pwd)
rm -rf "${work:?}"/*
python3=$(sed -n 's/^_Python_EXECUTABLE:INTERNAL=//p' "$build/CMakeCache.txt")
"$python3" -m venv --system-site-packages "$work/venv"  # PyTorch is the system's
"$work/venv/bin/pip" install -q onnxruntime "numpy<2"
PYTHONPATH="$build/bindings/python" "$work/venv/bin/python" "$here/onnx_check.py" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
tail -n 1 "$work/log"
