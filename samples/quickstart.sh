#!/usr/bin/env bash
# Installs what is missing, builds, and shows what an echo node does for a GPU that waits for its data.
# Takes two to five minutes after the build on two cores; writes build/quickstart/report.html.
#
#   --backports   Debian 12: take a newer Mesa from backports (see tests/setup.sh)
# ECHOTRAIN_DEVICE chooses the Vulkan device (a number or part of a name from 'echotrain devices').
set -euo pipefail
cd "$(dirname "$0")/.."
bash tests/setup.sh "$@"
cmake --preset release
cmake --build --preset release
mesa=$(dpkg-query -W -f='${Version}' mesa-vulkan-drivers 2>/dev/null || echo 99)
if [ "$mesa" != 99 ] && dpkg --compare-versions "$mesa" lt 24; then
  echo "note: on a CPU, Mesa $mesa trains about six times slower than Mesa 25;"
  echo "      'bash samples/quickstart.sh --backports' installs that on Debian 12"
fi
build/tools/echotrain/echotrain demo build/quickstart ${ECHOTRAIN_DEVICE:+--device "$ECHOTRAIN_DEVICE"}
