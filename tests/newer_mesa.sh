#!/usr/bin/env bash
# Runs a test program of a build on the Vulkan driver of Debian's unstable release: lavapipe of a newer Mesa, which has matrix
# units (VK_KHR_cooperative_matrix). For the kernel family `matrix`, and to meet what users of newer systems will meet.
#
#   tests/newer_mesa.sh DIRECTORY build-test/tests/ops_tests [ARGUMENT ...]
#
# As root, with debootstrap; DIRECTORY receives the system (800 MB, some minutes) and keeps it for the next time. ECHOTRAIN_TEST_*
# and LP_* variables are passed on.
set -euo pipefail
. "$(dirname "$0")/support/apt.sh"
directory=$1 program=$(realpath "$2")
shift 2
if [ ! -e "$directory/usr/share/vulkan/icd.d" ]; then
  archive_of_release
  mirror=$(awk -v name="$codename" '$1 == name {print $2; exit}' <<<"$archive")
  debootstrap --variant=minbase --include=mesa-vulkan-drivers,libvulkan1,vulkan-validationlayers sid "$directory" "$mirror"
fi
# The program, and those of its libraries that the newer system has under other names or not at all.
mkdir -p "$directory/program"
cp "$program" "$directory/program/run"
ldd "$program" | awk '$3 ~ /^\// {print $3}' | while read -r library; do
  name=$(basename "$library")
  [ -e "$directory/usr/lib/$(uname -m)-linux-gnu/$name" ] || cp -L "$library" "$directory/program/"
done
exec chroot "$directory" env LD_LIBRARY_PATH=/program HOME=/tmp /program/run "$@"
