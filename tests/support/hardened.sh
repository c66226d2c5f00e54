#!/usr/bin/env bash
# Fails unless each of EchoTrain's binaries for Linux in a folder is hardened (ECHOTRAIN_HARDEN): it can be loaded anywhere, and nothing that
# a mistake could overwrite is executed or jumped through; the library calls the C library's checked functions.
#
#   tests/support/hardened.sh FOLDER
set -euo pipefail
[ $# = 1 ] || { echo "usage: hardened.sh FOLDER" >&2; exit 2; }
readarray -t binaries < <(find "$1" -type f \( -name '*echotrain*.so*' -o -name '_native*.so' -o -path '*/bin/echotrain' -o -name echotrain-gloo \))
[ ${#binaries[@]} -gt 0 ] || { echo "hardened.sh: no binaries in $1" >&2; exit 1; }
for binary in "${binaries[@]}"; do
  text=$(readelf -hdlW --dyn-syms "$binary")
  lacks=
  grep -q '^ *Type: *DYN' <<<"$text" || lacks+=" position independence,"
  { grep -qE 'BIND_NOW|FLAGS_1.*NOW' <<<"$text" && grep -q GNU_RELRO <<<"$text"; } || lacks+=" full RELRO,"
  { grep -q GNU_STACK <<<"$text" && ! grep -q 'GNU_STACK.*E' <<<"$text"; } || lacks+=" a stack that is not executed,"
  [[ $binary != *libechotrain.so* ]] || grep -q '_chk@' <<<"$text" || lacks+=" the C library's checked functions,"
  [ -z "$lacks" ] || { echo "hardened.sh: $binary lacks${lacks%,}" >&2; exit 1; }
done
echo "hardened.sh: ${#binaries[@]} binaries in $1"
