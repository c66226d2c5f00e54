#!/usr/bin/env bash
# Installs what is missing, builds, and shows what an echo node does for a GPU that waits for its data.
# Takes about three minutes after the build on two cores; writes build/quickstart/report.html.
#
#   --backports   Debian 12: take a newer Mesa from backports (see tests/setup.sh)
# ECHOTRAIN_DEVICE chooses the Vulkan device (a number or part of a name from 'echotrain devices').
set -euo pipefail
cd "$(dirname "$0")/.."
bash tests/setup.sh "$@"
cmake --preset release
cmake --build --preset release
build/samples/quickstart samples/jobs/quickstart.json build/quickstart
