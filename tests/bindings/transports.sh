#!/usr/bin/env bash
# The samples that lend EchoTrain a transport, over mpi4py and over Ray, with packages of PyPI in a virtual environment of its own.
# What cannot be had is skipped, and said. Arguments: the build folder, a folder to work in.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../support/venv.sh"
for package in mpi4py ray; do
  "$venv/bin/pip" install -q --disable-pip-version-check "$package" ||
    echo "transports: $package is SKIPPED: pip cannot install it" >&2
done
"$venv/bin/python" "$here/transports_check.py" "$build" "$work"
