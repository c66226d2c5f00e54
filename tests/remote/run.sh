#!/usr/bin/env bash
# Runs remote_test.py with an S3 server from PyPI. Arguments: a folder to work in, the Python that has the package.
set -euo pipefail
export PIP_NO_CACHE_DIR=1  # nothing is left outside the tree
here=$(cd "$(dirname "$0")" && pwd)
if ! "$1/s3/bin/python" -c "import moto.server, boto3" 2>/dev/null; then
  rm -rf "$1/s3"
  "$2" -m venv "$1/s3"
  "$1/s3/bin/pip" install -q 'moto[server,s3]~=5.2'
fi
S3_PYTHON="$1/s3/bin/python" "$2" "$here/remote_test.py"
