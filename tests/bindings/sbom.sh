#!/usr/bin/env bash
# Writes the bill of materials of each package that the build folder has, and of an installed prefix; checks them, and those of a release,
# with the SPDX project's own validator and against the packages.
#
#   sbom.sh BUILD_FOLDER WORK_FOLDER [RELEASE]      RELEASE: a folder that tools/release.sh has made
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
venv_sees= . "$root/tests/support/venv.sh" "$@"
"$venv/bin/pip" install -q spdx-tools==0.8.5

cmake --install "$build" --prefix "$work/prefix" > "$work/install.log"
packages=("$work/prefix")
for package in "$build"/bindings/java/echotrain*.jar "$build"/bindings/csharp/EchoTrain.*.nupkg "$build"/wheel/repaired/*.whl; do
  if ! [ -e "$package" ]; then
    echo "sbom: there is no $package; build the packages first" >&2
    exit 1
  fi
  packages+=("$package")
done
check() { # package, its bill
  "$venv/bin/pyspdxtools" -i "$2"
  python3 "$root/tests/bindings/sbom_check.py" "$1" "$2"
}
for package in "${packages[@]}"; do
  bill=$work/$(basename "$package").spdx.json
  python3 "$root/tools/sbom.py" "$package" --out "$bill"
  check "$package" "$bill"
done
[ -n "${3:-}" ] || exit 0
for bill in "$3"/*.spdx.json; do check "${bill%.spdx.json}" "$bill"; done
