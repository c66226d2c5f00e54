#!/usr/bin/env bash
# Runs one slice of the day on this machine; README.md says what to do.
#
#   bash run.sh list                     the slices, the most valuable first
#   bash run.sh SLICE RESULTS_DIR        one of them, at most nine minutes
#   bash run.sh next RESULTS_DIR         the first that is not complete in RESULTS_DIR
#   bash run.sh all RESULTS_DIR          all that are not
#   bash run.sh exec PROGRAM ARGUMENT .. one of the kit's programs where the GPU is found, to look closer
#
#   --rehearsal    on a CPU Vulkan device, with tiny sizes: tries the kit, measures nothing
#   --device N     the GPU, as 'nvidia-smi' and 'echotrain devices' number them (0)
#   --seconds S    end a slice earlier than after 520 seconds
#   --again        also repeat what has ended already
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
export PATH

fail() { echo "run.sh: $*" >&2; exit 2; }

[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || fail "the programs are for x86-64 Linux, this is $(uname -s) $(uname -m)"
wanted=$(cat "$here/glibc") || fail "the file 'glibc' is missing: unpack the whole kit"
have=$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{print $2}')
[ -n "$have" ] || fail "this system has no glibc (musl?); the programs need glibc $wanted or later"
[ "$(printf '%s\n%s\n' "$wanted" "$have" | sort -V | head -n 1)" = "$wanted" ] ||
  fail "this system's glibc is $have; the programs need $wanted or later: pack the kit on an older system (Debian 12 has 2.36)"
python=${PYTHON:-python3}
command -v "$python" >/dev/null || fail "there is no '$python': PYTHON=/path/to/python3 names that which has PyTorch"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || fail "'$python' is older than Python 3.9"

# The programs' own time-outs end a slice within its limit; this one ends it even if they do not.
slice() { timeout --kill-after=10 535 "$python" "$here/gpu_day/run.py" "$@"; }

words=() all=0
for word in "$@"; do
  if [ "$word" = all ]; then all=1; words+=(next); else words+=("$word"); fi
done
if [ $all = 0 ]; then
  slice ${words[@]+"${words[@]}"}
  exit
fi
worst=0 last='' said=$(mktemp)
trap 'rm -f "$said"' EXIT
while :; do
  slice "${words[@]}" --after "$last" --say-slice "$said"
  code=$?
  [ $code = 100 ] && exit $worst  # nothing is left
  [ $code = 0 ] || worst=1
  last=$(cat "$said")
done
