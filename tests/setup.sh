#!/usr/bin/env bash
# Installs what building, testing and the samples need, on Debian 12 and Ubuntu 24.04. Where there is no apt, it only checks for
# what the build needs, and says what is missing.
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

# None of these names of packages has been tried.
only_check() {
  local name missing=()
  for name in c++ cmake ninja pkg-config; do command -v "$name" >/dev/null || missing+=("$name"); done
  command -v glslangValidator >/dev/null || command -v glslang >/dev/null || missing+=(glslang)
  if command -v pkg-config >/dev/null; then
    for name in tbb libcurl libzstd libpng zlib libdeflate libjpeg nlohmann_json vulkan SPIRV-Headers; do
      pkg-config --exists "$name" || missing+=("$name")
    done
  fi
  if [ ${#missing[@]} = 0 ]; then
    echo "setup: no apt here; what the build needs is there, as far as this script can tell"
    return
  fi
  {
    echo "setup.sh: missing: ${missing[*]}"
    echo "This script installs packages with apt only (Debian 12, Ubuntu 24.04). Elsewhere install them yourself, then run this again:"
    if command -v dnf >/dev/null; then
      echo "  sudo dnf install gcc-c++ cmake ninja-build pkgconf-pkg-config tbb-devel libcurl-devel libzstd-devel libpng-devel zlib-devel \\"
      echo "    libdeflate-devel libjpeg-turbo-devel json-devel glslang glslang-devel vulkan-headers vulkan-loader-devel spirv-headers-devel \\"
      echo "    mesa-vulkan-drivers python3-devel"
    elif command -v pacman >/dev/null; then
      echo "  sudo pacman -S --needed base-devel cmake ninja pkgconf onetbb curl zstd libpng zlib libdeflate libjpeg-turbo nlohmann-json \\"
      echo "    glslang vulkan-headers vulkan-icd-loader spirv-headers vulkan-swrast python"
    elif command -v brew >/dev/null; then
      echo "  brew install cmake ninja pkgconf tbb curl zstd libpng zlib libdeflate jpeg-turbo nlohmann-json glslang vulkan-headers \\"
      echo "    vulkan-loader spirv-headers molten-vk"
    else
      echo "  a C++20 compiler, CMake, Ninja, pkg-config, Python 3, a Vulkan driver, and the development files of oneTBB, libcurl, zstd,"
      echo "  libpng, zlib, libdeflate, libjpeg-turbo, nlohmann-json, glslang, the Vulkan loader and SPIRV-Headers"
    fi
    echo "These names have not been tried; the tests run on Debian 12."
  } >&2
  exit 1
}
if ! command -v apt-get >/dev/null; then
  only_check
  exit 0
fi

packages=(build-essential cmake ninja-build pkg-config libtbb-dev libcurl4-openssl-dev libzstd-dev libpng-dev zlib1g-dev libdeflate-dev
          libjpeg-dev nlohmann-json3-dev glslang-tools glslang-dev libvulkan-dev spirv-headers
          libgloo-dev mesa-vulkan-drivers python3-dev python3-venv)
if [ $tests = 1 ]; then
  packages+=(libgtest-dev ccache abigail-tools vulkan-validationlayers libopenblas-dev zstd nginx-light openssl clang libclang-rt-dev python3-clang
             locales zsh fish mandoc swig python3-numpy default-jdk-headless maven mono-mcs mono-runtime libmono-cecil-private-cil
             monodoc-base doxygen python3-torch python3-onnx python3-pil jupyter-nbconvert
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
