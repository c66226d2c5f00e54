#!/usr/bin/env bash
# Checks bills of materials with the SPDX project's own validator and against the packages.
#
#   sbom.sh BUILD_FOLDER WORK_FOLDER     writes them for each package that the build folder has, and for an installed prefix
#   sbom.sh RELEASE WORK_FOLDER          takes those in a folder that tools/release.sh has made
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
check() { # package, its bill
  "$venv/bin/pyspdxtools" -i "$2"
  python3 "$root/tests/bindings/sbom_check.py" "$1" "$2"
}
install_validator() { PIP_NO_CACHE_DIR=1 "$venv/bin/pip" install -q spdx-tools==0.8.5; }

if [ -e "$1/SHA256SUMS" ]; then
  venv=$2/venv
  python3 -m venv "$venv"
  install_validator
  for bill in "$1"/*.spdx.json; do check "${bill%.spdx.json}" "$bill"; done
  exit
fi
venv_sees= . "$root/tests/support/venv.sh" "$@"
install_validator
cmake --install "$build" --prefix "$work/prefix" > "$work/install.log"
packages=("$work/prefix")
for package in "$build"/bindings/java/echotrain*.jar "$build"/bindings/csharp/EchoTrain.*.nupkg "$build"/wheel/repaired/*.whl; do
  if ! [ -e "$package" ]; then
    echo "sbom: there is no $package; build the packages first" >&2
    exit 1
  fi
  packages+=("$package")
done
for package in "${packages[@]}"; do
  bill=$work/$(basename "$package").spdx.json
  python3 "$root/tools/sbom.py" "$package" --out "$bill"
  check "$package" "$bill"
done
