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
#
# The driver lies in DIRECTORY/NAME, DIRECTORY/NAME/icd.json is what the Vulkan loader reads, and what is there stays. Needs no
# root: packages come from the archive in apt's sources, through lists and a cache of their own.
set -euo pipefail

die() { echo "drivers.sh: $*" >&2; exit 1; }

[ $# -ge 2 ] || die "usage: drivers.sh mesa|swiftshader DIRECTORY [COMMAND ...]"
driver=$1
case "$driver" in
  mesa | swiftshader) ;;
  *) die "unknown driver $driver: mesa or swiftshader" ;;
esac
mkdir -p "$2"
folder=$(realpath "$2")/$driver
shift 2

# Writes the sources: the archive that apt uses, security updates, and backports for Mesa.
write_sources() { # file
  local codename archive suite uri keys=/usr/share/keyrings/debian-archive-keyring.gpg
  codename=$(. /etc/os-release && [ "$ID" = debian ] && echo "${VERSION_CODENAME:-}") || true
  [ -n "$codename" ] || die "$driver comes from Debian's packages, and this is not Debian"
  [ -e "$keys" ] || die "$keys is missing: install the package debian-archive-keyring"
  archive=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' | sort -u |
            awk -v name="$codename" '$2 == "main" && ($1 == name || index($1, name "-") == 1) {print $1, $3}')
  uri=$(awk -v name="$codename" '$1 == name {print $2; exit}' <<<"$archive")
  [ -n "$uri" ] || die "apt's sources have no archive with the suite $codename and the component main"
  [ "$driver" != mesa ] || archive+=$'\n'"$codename-backports $uri"
  sort -u <<<"$archive" | while read -r suite uri; do echo "deb [signed-by=$keys] $uri $suite main"; done > "$1"
  release=$codename-backports
}

# apt-get with the lists, the cache and the sources of a folder of its own. What is installed is the system's.
private_apt() {
  apt-get -q -o Dir::State="$work/state" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$work/cache" \
    -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
    -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1 "$@"
}

# The packages to unpack: for Mesa everything that apt would install or upgrade for it on this system, as NAME=VERSION.
packages() {
  local plan
  if [ "$driver" = swiftshader ]; then
    echo chromium-common
    return
  fi
  plan=$(private_apt -s install --no-install-recommends -t "$release" mesa-vulkan-drivers) || return 1
  echo "mesa-vulkan-drivers/$release"
  sed -nE '/^Inst mesa-vulkan-drivers /d; s/^Inst ([^ :]+) (\[[^]]*\] )?\(([^ ]+) .*/\1=\3/p' <<<"$plan"
}

unpack() {
  local package needed
  for tool in apt-get dpkg-deb; do command -v $tool >/dev/null || die "$tool is missing"; done
  work=$(mktemp -d "$folder.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work"/{state/lists/partial,cache/archives/partial,packages,root,driver}
  write_sources "$work/sources.list"
  private_apt update -qq -o APT::Update::Error-Mode=any >"$work/log" 2>&1 ||
    die "apt-get update failed: $(cat "$work/log")"
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
  else
    keep libvulkan_lvp.so 'lvp_icd*.json' icd.json
    keep libvulkan_radeon.so 'radeon_icd*.json' radeon_icd.json
  fi
  (cd "$work/packages" && ls -- *.deb) >"$work/driver/packages"
}

[ -e "$folder/icd.json" ] || unpack
# The folder may have been moved or copied since.
grep -qF "\"$folder/lib/" "$folder/icd.json" ||
  sed -i -E "s|(\"library_path\": *)\"([^\"]*/)?|\1\"$folder/lib/|" "$folder"/*.json
if [ $# -gt 0 ]; then
  exec env VK_DRIVER_FILES="$folder/icd.json" VK_ICD_FILENAMES="$folder/icd.json" \
    LD_LIBRARY_PATH="$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
fi
printf 'export %s=%q\n' VK_DRIVER_FILES "$folder/icd.json" VK_ICD_FILENAMES "$folder/icd.json" \
  LD_LIBRARY_PATH "$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
