#!/usr/bin/env bash
# Unpacks another Vulkan driver into a folder, on Debian, without installing anything, and prints the variables that choose it,
# or runs a command with them:
#
#   tests/drivers.sh mesa build-test/drivers COMMAND ...         # runs COMMAND on it
#   variables=$(tests/drivers.sh mesa build-test/drivers) && eval "$variables"   # this shell, from now on
#
#   mesa          lavapipe of the release's backports, with the libraries that it needs (Debian 12: Mesa 25, up to 60 MB to
#                 download), and beside it RADV, whose compiler tests/compilers asks
#   swiftshader   Google's driver for CPUs out of the package chromium-common (60 MB): Vulkan 1.3, subgroups of 4, neither int64
#                 nor fp16
#   mock          the Khronos Group's mock driver out of the same package: every extension, and limits at their minimum or 0; it
#                 computes nothing
#   loader        no driver, but the Vulkan loader of Debian 11 (1.2.162) in the place of the installed one. For a newer driver with
#                 it: tests/drivers.sh loader DIRECTORY tests/drivers.sh mesa DIRECTORY COMMAND ...
#
# What is unpacked lies in DIRECTORY/NAME, DIRECTORY/NAME/icd.json is what the Vulkan loader reads, and what is there stays. Needs no
# root: packages come from the archive in apt's sources, through lists and a cache of their own.
set -euo pipefail

. "$(dirname "$0")/support/apt.sh"

[ $# -ge 2 ] || die "usage: drivers.sh mesa|swiftshader|mock|loader DIRECTORY [COMMAND ...]"
driver=$1
case "$driver" in
  mesa | swiftshader | mock | loader) ;;
  *) die "unknown driver $driver: mesa, swiftshader, mock or loader" ;;
esac
mkdir -p "$2"
folder=$(realpath "$2")/$driver
shift 2

# The packages to unpack: for Mesa everything that apt would install or upgrade for it on this system, as NAME=VERSION.
packages() {
  local plan
  case "$driver" in
    swiftshader | mock) echo chromium-common; return ;;
    loader) echo libvulkan1/bullseye; return ;;
  esac
  plan=$(private_apt -s install --no-install-recommends -t "$release" mesa-vulkan-drivers) || return 1
  echo "mesa-vulkan-drivers/$release"
  sed -nE '/^Inst mesa-vulkan-drivers /d; s/^Inst ([^ :]+) (\[[^]]*\] )?\(([^ ]+) .*/\1=\3/p' <<<"$plan"
}

unpack() {
  local package needed
  for tool in apt-get dpkg-deb; do command -v $tool >/dev/null || die "$tool is missing"; done
  work=$(mktemp -d "$folder.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work"/{packages,root,driver}
  archive_of_release
  case "$driver" in mesa) release=$codename-backports ;; loader) release=bullseye ;; *) release= ;; esac
  [ -z "$release" ] || archive+=$'\n'"$release $(awk -v name="$codename" '$1 == name {print $2; exit}' <<<"$archive")"
  private_sources deb <<<"$archive"
  needed=$(packages) || die "apt finds no way to install Mesa of $release"
  (cd "$work/packages" && private_apt download $needed) >"$work/log" 2>&1 ||
    die "apt-get download failed for $needed: $(cat "$work/log")"
  for package in "$work"/packages/*.deb; do dpkg-deb -x "$package" "$work/root"; done
  collect
  mv "$work/driver" "$folder"
  rm -rf "$work"
  trap - EXIT
  echo "drivers.sh: unpacked into $folder: $(paste -sd " " "$folder/packages")" >&2
}

# Keeps a driver, those of the unpacked libraries that it needs, and its manifest.
keep() { # library, manifest, the manifest's new name
  local found json
  found=$(find "$work/root" -name "$1" -print -quit)
  json=$(find "$work/root" -name "$2" -print -quit)
  [ -n "$found" ] && [ -n "$json" ] || die "no $1 with $2 in $(cd "$work/packages" && echo *.deb)"
  LD_LIBRARY_PATH=$(find "$work/root" -name '*.so*' -printf '%h\n' | sort -u | paste -sd :) ldd "$found" >"$work/log"
  ! grep 'not found' "$work/log" >&2 || die "$1 needs the libraries above"
  awk -v root="$work/root/" 'index($3, root) == 1 {print $3}' "$work/log" | xargs -r cp -L -t "$work/driver/lib"
  cp "$found" "$work/driver/lib/"
  cp "$json" "$work/driver/$3"
}

collect() {
  mkdir "$work/driver/lib"
  if [ "$driver" = swiftshader ]; then
    keep libvk_swiftshader.so vk_swiftshader_icd.json icd.json
  elif [ "$driver" = mock ]; then  # which has no manifest
    echo '{"file_format_version": "1.0.0", "ICD": {"library_path": "./libVkICD_mock_icd.so", "api_version": "1.3.0"}}' >"$work/root/mock.json"
    keep libVkICD_mock_icd.so mock.json icd.json
  elif [ "$driver" = loader ]; then
    find "$work/root" -name 'libvulkan.so.1*' -exec cp -P {} "$work/driver/lib/" \;
    [ -e "$work/driver/lib/libvulkan.so.1" ] || die "no libvulkan.so.1 in $(cd "$work/packages" && echo *.deb)"
  else
    keep libvulkan_lvp.so 'lvp_icd*.json' icd.json
    keep libvulkan_radeon.so 'radeon_icd*.json' radeon_icd.json
  fi
  (cd "$work/packages" && ls -- *.deb) >"$work/driver/packages"
}

[ -e "$folder/packages" ] || unpack
variables=(LD_LIBRARY_PATH="$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
if [ "$driver" != loader ]; then
  # The folder may have been moved or copied since.
  grep -qF "\"$folder/lib/" "$folder/icd.json" ||
    sed -i -E "s|(\"library_path\": *)\"([^\"]*/)?|\1\"$folder/lib/|" "$folder"/*.json
  variables+=(VK_DRIVER_FILES="$folder/icd.json" VK_ICD_FILENAMES="$folder/icd.json")
fi
[ $# = 0 ] || exec env "${variables[@]}" "$@"
for variable in "${variables[@]}"; do printf 'export %s=%q\n' "${variable%%=*}" "${variable#*=}"; done
