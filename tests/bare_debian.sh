#!/usr/bin/env bash
# Runs the README's two commands as a newcomer would: in a Debian of the running release with nothing installed, on a copy of what is
# committed here.
#
#   tests/bare_debian.sh DIRECTORY [COMMAND [FOLDER [RELEASE]]]     DIRECTORY receives the system (removed first where a run left
#                                                                   one), 4 GB
#
# As root, with debootstrap. COMMAND runs there instead of the two, in the copy. FOLDER is copied to /folder there. RELEASE is another
# one of Debian, such as bullseye, from the same archive.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: bare_debian.sh DIRECTORY [COMMAND [FOLDER [RELEASE]]]" >&2; exit 2; }
mkdir -p "$1"
system=$(realpath "$1")/system
source=$(cd "$(dirname "$0")/.." && pwd)
. "$source/tests/support/apt.sh"
. "$source/tests/support/blocks.sh"
command=${2:-$(block "$source/README.md" "bash samples/quickstart.sh")}

archive_of_release
release=${4:-$codename}
archive=$(sed "s/^$codename/$release/" <<<"$archive")
unmount() {
  local at
  for at in sys proc dev/pts; do ! mountpoint -q "$system/$at" || umount "$system/$at"; done
}
trap unmount EXIT
unmount
rm -rf "$system"
debootstrap --variant=minbase "$release" "$system" "$(awk -v name="$release" '$1 == name {print $2; exit}' <<<"$archive")" \
  >"$system.log" || die "debootstrap failed: $(tail -n 5 "$system.log")"
# The same archive, with its security updates, and the machine's way to it and to pip's.
while read -r suite uri; do echo "deb $uri $suite main"; done <<<"$archive" >"$system/etc/apt/sources.list"
cp -r /etc/apt/apt.conf.d "$system/etc/apt/"
cp /etc/resolv.conf /etc/hosts /etc/pip.conf "$system/etc/" 2>/dev/null || true
mkdir -p "$system/usr/local/share/ca-certificates"
cp /usr/local/share/ca-certificates/*.crt "$system/usr/local/share/ca-certificates/" 2>/dev/null || true
mkdir "$system/echotrain"
git -C "$source" archive HEAD | tar -x -C "$system/echotrain"
[ -z "${3:-}" ] || cp -r "$3" "$system/folder"
mount -t proc proc "$system/proc"
mount -t sysfs -o ro sysfs "$system/sys"  # MPI reads it, and complains where it is missing
mkdir -p "$system/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$system/dev/pts"
ln -sf pts/ptmx "$system/dev/ptmx"
for device in null zero random urandom; do
  [ -e "$system/dev/$device" ] || cp -a "/dev/$device" "$system/dev/"
done
chroot "$system" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=dumb \
  bash -euo pipefail -c "cd /echotrain
$command"
