#!/usr/bin/env bash
# tests/setup.sh on a system without apt: it says what is missing, or that nothing is.
#
#   setup.sh FOLDER     to work in
set -euo pipefail
cd "$(dirname "$0")/../.."
path=$1/setup-path
rm -rf "$path"
mkdir -p "$path"
for name in bash dirname c++ cmake pkg-config glslangValidator; do ln -s "$(command -v $name)" "$path/$name"; done
without_apt() { PATH=$path bash tests/setup.sh "$@" 2>&1; }
expect() { # text, in
  grep -qF -- "$1" <<<"$2" || { printf 'expected "%s" in:\n%s\n' "$1" "$2"; exit 1; }
}

said=$(without_apt) && { echo "ninja is missing, and it succeeded: $said"; exit 1; }
expect "missing: ninja" "$said"
expect "a C++20 compiler" "$said"
ln -s "$(type -P true)" "$path/dnf"
expect "sudo dnf install" "$(without_apt || true)"
expect "SPIRV-Headers" "$(PKG_CONFIG_LIBDIR=/none without_apt || true)"
ln -s "$(type -P true)" "$path/ninja"
said=$(without_apt --tests) || { echo "nothing is missing, and it failed: $said"; exit 1; }
expect "no apt here" "$said"
