#!/usr/bin/env bash
# Installs what tools/release.sh has made into a Debian with nothing installed, each package by itself, and uses it.
#
#   tests/release.sh PACKAGES DIRECTORY [RELEASE]
#
# PACKAGES is the folder with SHA256SUMS; DIRECTORY receives the system. RELEASE is a release of Debian other than the running one,
# such as bullseye, with an older C library; there, all but the Debian packages are tried. bullseye's lavapipe has Vulkan 1.0, so nothing
# trains there, and the command has to say why. As root, with debootstrap.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" != --inside ]; then
  [ $# = 2 ] || [ $# = 3 ] || { echo "usage: release.sh PACKAGES DIRECTORY [RELEASE]" >&2; exit 2; }
  (cd "$1" && sha256sum --quiet --check SHA256SUMS)
  unpacked=$2/unpacked
  rm -rf "$unpacked"
  mkdir -p "$2"
  for package in "$1"/*linux*.whl "$1"/*linux*.jar "$1"/*.nupkg "$1"/*.tar.zst "$1"/*.deb; do
    mkdir "$unpacked"
    case $package in
      *.deb) dpkg-deb -x "$package" "$unpacked" ;;
      *.tar.zst) tar --zstd -C "$unpacked" -xf "$package" ;;
      *) python3 -m zipfile -e "$package" "$unpacked" ;;
    esac
    case $package in *-dev_*) ;; *) bash tests/support/hardened.sh "$unpacked" ;; esac  # that one has no binary
    rm -rf "$unpacked"
  done
  exec bash tests/bare_debian.sh "$2" "bash tests/release.sh --inside ${3:-}" "$1" ${3:+"$3"}
fi
other_release=${2:-} processor=$(uname -m) page=/echotrain/docs/releases.md  # whose packages are those for x86-64
. tests/support/version.sh
. tests/support/blocks.sh

install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >/root/apt.log 2>&1 || { tail -n 20 /root/apt.log; exit 1; }; }
passed() { echo "release.sh: $1 passed ($(getconf GNU_LIBC_VERSION))"; }
demo() { # the folder of its report, command: both runs reach the target, and the one with the echo node does so sooner
  local report=$1/report.html began=$SECONDS speedup
  shift
  $trains || return 0
  "$@" >demo.log || { tail -n 5 demo.log; exit 1; }
  tail -n 6 demo.log
  speedup=$(sed -nE 's/^with echo .* ([0-9.]+) x .*/\1/p' demo.log)
  awk "BEGIN {exit !(${speedup:-0} > 1)}" || { echo "release.sh: echo did not win"; exit 1; }
  test -s "$report" || { echo "release.sh: the demo left no report"; exit 1; }
  echo "release.sh: the demo took $((SECONDS - began)) s"
}
sample() { # name of a C sample
  # shellcheck disable=SC2046  # several words
  cc -std=c99 -O2 "/echotrain/samples/c/$1.c" $(pkg-config --cflags --libs echotrain) -lm -o "$1"
  LD_LIBRARY_PATH=$(pkg-config --variable=libdir echotrain) "./$1" images
}
apt-get update -qq
cd /root

# The wheel needs pip, the Vulkan loader and a driver, and nothing else of the distribution.
install python3-pip python3-venv
python3 -m venv venv
venv/bin/pip install -q /folder/*_"$processor".whl
PYTHONPATH=/echotrain/tests/bindings venv/bin/python - <<'END'
import echotrain as et
from png import write_classes
write_classes("images", 64)
s = et.stages
pipeline = et.Pipeline([s.folder("images"), s.label(), s.decode(), s.echo(2), s.batch(32)])
assert sum(len(batch["label"]) for batch in pipeline) == 128
END
! venv/bin/echotrain demo wheel-demo >demo.log 2>&1 || { echo "release.sh: the demo ran without a driver"; exit 1; }
grep -q 'install libvulkan1 and a driver' demo.log || { cat demo.log; exit 1; }
install mesa-vulkan-drivers
trains=true
if ! venv/bin/echotrain devices >devices.log 2>&1; then
  grep -q 'has Vulkan 1.0, and EchoTrain needs 1.1 or later' devices.log || { cat devices.log; exit 1; }
  trains=false
fi
[ -n "$other_release" ] || $trains || { cat devices.log; exit 1; }
python3 -m venv reader
script=$(block $page "pip install echotrain-")
demo /folder/echotrain-demo bash -euc ". reader/bin/activate; cd /folder; $script"
passed "the wheel"

install zstd gcc libc6-dev pkg-config
tar --zstd -xf /folder/echotrain-*-linux-"$processor".tar.zst
mkdir elsewhere
mv echotrain-*/ elsewhere/
prefix=$(realpath elsewhere/echotrain-*/)
"$prefix/bin/echotrain" version
for licence in LICENSE linked/onetbb; do
  test -s "$prefix/share/doc/echotrain/$licence" || { echo "release.sh: the archive lacks $licence"; exit 1; }
done
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
sample feed
if $trains; then sample train; fi
unset PKG_CONFIG_PATH
if [ -z "$other_release" ]; then  # in the other, CMake may be too old
  install cmake make
  cmake -S /echotrain/tests/consumer -B consumer -DCMAKE_PREFIX_PATH="$prefix"
  cmake --build consumer
  consumer/train images
fi
passed "the archive, and C programs with it"

# Java, with the jars of all processors, and C#. Where nothing trains, they have to get as far as the device, which says why.
trains_in() { # language, command
  "${@:2}" >train.log 2>&1 || { ! $trains && grep -q 'has Vulkan 1.0, and EchoTrain needs 1.1 or later' train.log; } || { cat train.log; exit 1; }
  ! $trains || grep 'epoch 3: loss' train.log || { cat train.log; exit 1; }
  passed "$1"
}
install default-jdk-headless
jar=/folder/echotrain-$version
jars=$jar.jar:$jar-natives-linux-x86_64.jar:$jar-natives-linux-aarch64.jar
trains_in Java java -cp "$jars" /echotrain/samples/java/Train.java images
tar -C /folder --strip-components 1 -xf /folder/echotrain-*.tar.gz --wildcards '*/samples'
ln -s /root/images /folder/images
script=$(block $page "java -cp")
trains_in "Java, as the page says" bash -euc "cd /folder; $script"
trains_in "Java, with modules" java -p "$jars" --add-modules io.echotrain /echotrain/samples/java/Train.java images

install mono-mcs mono-runtime unzip
mkdir csharp
unzip -q /folder/EchoTrain.*.nupkg -d csharp
cp csharp/lib/netstandard2.0/EchoTrain.dll csharp/
mcs -nologo -target:library -out:csharp/System.Memory.dll /echotrain/tests/bindings/csharp/SystemMemory.cs  # which NuGet would fetch
mcs -nologo -r:csharp/EchoTrain.dll -out:csharp/Train.exe /echotrain/samples/csharp/Train.cs
trains_in 'C#' mono csharp/Train.exe images

[ -z "$other_release" ] || exit 0
sudo() { "$@"; }
echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/90yes
cd /folder
run_block $page "tar xf echotrain-"
[ "$(realpath "$(pkg-config --variable=prefix echotrain)")" = "$(realpath echotrain-*-linux-"$processor")" ] || { echo "release.sh: pkg-config does not find the archive"; exit 1; }
unset PKG_CONFIG_PATH CMAKE_PREFIX_PATH
cd /root
demo deb-demo echotrain demo deb-demo
sample train
passed "the Debian packages, and a C program with them"
