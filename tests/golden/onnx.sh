#!/usr/bin/env bash
# ONNX Runtime in a virtual environment of its own, beside our inference. Arguments: the build folder, a folder to work in.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../support/venv.sh"
"$venv/bin/pip" install -q --disable-pip-version-check onnxruntime==1.32.0 "numpy<2"
"$venv/bin/python" "$here/onnx_check.py" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
tail -n 1 "$work/log"
