#!/usr/bin/env bash
# Installs the Java package into a repository of its own, and runs the sample as a project that depends on it.
#
#   maven.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$build/maven
rm -rf "$work"
mkdir -p "$work"
maven() { mvn -q -B -Dmaven.repo.local="$build/m2" "$@"; }

maven -f "$root/bindings/java" install -Dechotrain.build="$build"
ls "$build"/m2/io/echotrain/echotrain/*/*.jar
"$build/samples/draw" "$work/png" 64 1
maven -f "$root/samples/java" compile exec:java -Dsample.target="$work/target" -Dexec.args="$work/png" \
  -Dechotrain.cache.dir="$work/cache" | tee "$work/train.log"
grep -q 'epoch 3: loss' "$work/train.log"
