#!/usr/bin/env bash
# The samples that lend EchoTrain a transport, over mpi4py and over Ray, with packages of PyPI in a virtual environment of its own.
# What cannot be had is skipped, and said. Arguments: the build folder, a folder to work in.
set -euo pipefail
export PIP_NO_CACHE_DIR=1  # nothing is left outside the tree
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2"
work=$(cd "$2" && pwd)
rm -rf "${work:?}"/*
python3=$(sed -n 's/^_Python_EXECUTABLE:INTERNAL=//p' "$build/CMakeCache.txt")
"$python3" -m venv --system-site-packages "$work/venv"  # NumPy is the system's
for package in mpi4py ray; do
  "$work/venv/bin/pip" install -q --disable-pip-version-check "$package" ||
    echo "transports: $package is SKIPPED: pip cannot install it" >&2
done
PYTHONPATH="$build/bindings/python" "$work/venv/bin/python" "$here/transports_check.py" "$build" "$work"
