#!/usr/bin/env bash
# Installs the Java package into a Maven repository of its own, and runs the sample as a project that depends on it.
#
#   maven.sh BUILD_FOLDER            the package that Maven makes from the sources and a build
#   maven.sh RELEASE WORK_FOLDER     the jars and the pom in a folder that tools/release.sh has made
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/support/blocks.sh"
from=$(realpath "$1")
work=${2:-$from/maven}
rm -rf "$work"
mkdir -p "$work"
work=$(realpath "$work")
repository=$from/m2
[ $# = 1 ] || repository=$work/m2
maven() { mvn -q -B -Dmaven.repo.local="$repository" -Dechotrain.natives="natives-linux-$(uname -m)" "$@"; }

if [ $# = 1 ]; then
  maven -f "$root/bindings/java" install -Dechotrain.build="$from"
else
  (cd "$from" && sha256sum --quiet --check SHA256SUMS)
  (
    cd "$from"
    mvn() { command mvn -q -B -Dmaven.repo.local="$repository" "$@"; }
    run_block "$root/docs/releases.md" "mvn install:install-file"
  )
fi
ls "$repository"/io/echotrain/echotrain/*/*.jar
PYTHONPATH=$root/tests/bindings /usr/bin/python3 -c 'import sys, png; png.write_classes(sys.argv[1], 64)' "$work/png"
maven -f "$root/samples/java" compile exec:java -Dsample.target="$work/target" -Dexec.args="$work/png" \
  -Dechotrain.cache.dir="$work/cache" | tee "$work/train.log"
grep -q 'epoch 3: loss' "$work/train.log"
