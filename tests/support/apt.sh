# Debian's packages: installed, or fetched without installing any, by apt with lists, a cache and sources of its own in the folder
# $work. Sourced.

die() { echo "$(basename "$0"): $*" >&2; exit 1; }

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q '^install ok installed'; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

install_packages() { as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"; }

# Those of the packages that are not installed.
lacking() { for package in "$@"; do installed "$package" || echo "$package"; done; }

# Installs those.
require_packages() {
  local missing
  readarray -t missing < <(lacking "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  as_root apt-get update -qq
  install_packages "${missing[@]}"
}

# The release's suites in apt's own sources, as lines "SUITE URI"; sets codename.
archive_of_release() {
  codename=$(. /etc/os-release && [ "$ID" = debian ] && echo "${VERSION_CODENAME:-}") || true
  [ -n "$codename" ] || die "this takes Debian's packages, and this is not Debian"
  archive=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' | sort -u |
            awk -v name="$codename" '$2 == "main" && ($1 == name || index($1, name "-") == 1) {print $1, $3}')
  [ -n "$(awk -v name="$codename" '$1 == name' <<<"$archive")" ] ||
    die "apt's sources have no archive with the suite $codename and the component main (run apt-get update first)"
}

# Reads "SUITE URI" lines and makes them the sources, of packages (deb) or of their source code (deb-src).
private_sources() { # deb|deb-src
  local keys=/usr/share/keyrings/debian-archive-keyring.gpg suite uri
  [ -e "$keys" ] || die "$keys is missing: install the package debian-archive-keyring"
  mkdir -p "$work"/{state/lists/partial,cache/archives/partial}
  sort -u | while read -r suite uri; do echo "$1 [signed-by=$keys] $uri $suite main"; done > "$work/sources.list"
  private_apt update -qq -o APT::Update::Error-Mode=any >"$work/log" 2>&1 || die "apt-get update failed: $(cat "$work/log")"
}

# What is installed is the system's. apt_options, an array, are further options.
private_apt() {
  apt-get -q -o Dir::State="$work/state" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$work/cache" \
    -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
    -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1 ${apt_options[@]+"${apt_options[@]}"} "$@"
}
