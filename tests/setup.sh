#!/usr/bin/env bash
# Installs what building, testing and the samples need, on Debian 12 and Ubuntu 24.04.
#
#   --backports   Debian 12: take Mesa from backports (version 25, whose lavapipe is about six times as fast).
#                 This adds a file to apt's sources, so it happens only on request.
#   --tests       also what only tests, benchmarks and the bindings need
set -euo pipefail
. "$(dirname "$0")/support/apt.sh"

backports=0 tests=0
for argument in "$@"; do
  case "$argument" in
    --backports) backports=1 ;;
    --tests) tests=1 ;;
    *) echo "setup.sh: unknown option $argument" >&2; exit 2 ;;
  esac
done

packages=(build-essential cmake ninja-build pkg-config libtbb-dev libcurl4-openssl-dev libzstd-dev libpng-dev zlib1g-dev libdeflate-dev
          libjpeg-dev nlohmann-json3-dev glslang-tools glslang-dev libvulkan-dev spirv-headers
          libgloo-dev mesa-vulkan-drivers python3-dev python3-venv)
if [ $tests = 1 ]; then
  packages+=(libgtest-dev ccache abigail-tools vulkan-validationlayers libopenblas-dev zstd nginx-light openssl clang libclang-rt-dev python3-clang
             zsh fish mandoc swig python3-numpy default-jdk-headless maven mono-mcs mono-runtime libmono-cecil-private-cil
             monodoc-base doxygen python3-torch python3-pil jupyter-nbconvert
             python3-ipykernel python3-matplotlib python3-tqdm libegl1 libgl1 libx11-6 libxext6
             libopenmpi-dev openmpi-bin libmpich-dev mpich)
fi

readarray -t missing < <(lacking "${packages[@]}")

codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
mesa=$(dpkg-query -W -f='${Version}' mesa-vulkan-drivers 2>/dev/null || echo 0)
want_backports=0
if [ $backports = 1 ] && [ "$codename" = bookworm ] && dpkg --compare-versions "$mesa" lt 24; then
  want_backports=1
fi

if [ ${#missing[@]} -gt 0 ] || [ $want_backports = 1 ]; then
  echo "setup: installing ${missing[*]:-}$([ $want_backports = 1 ] && echo ' mesa-vulkan-drivers (backports)')"
  if [ $want_backports = 1 ]; then
    # The backports live beside the archive that apt already uses: reuse its address.
    uri=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources \
              2>/dev/null || true; } | grep -v '^ *#' | grep -oE '(https?|file)://[^ ]+' |
            grep -E '/debian/?$' | head -n 1 || true)
    if [ -z "$uri" ]; then
      echo "setup.sh: no Debian archive found in apt's sources to take backports from" >&2
      exit 1
    fi
    echo "deb $uri bookworm-backports main" | as_root tee /etc/apt/sources.list.d/echotrain-backports.list >/dev/null
  fi
  as_root apt-get update -q
  [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
  [ $want_backports = 0 ] || install_packages -t bookworm-backports mesa-vulkan-drivers
fi
