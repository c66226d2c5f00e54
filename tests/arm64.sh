#!/usr/bin/env bash
# Cross-builds the library and the tests of its input side for Linux on arm64, and runs them in QEMU; then trains a small network
# there, on arm64's lavapipe.
#
#   tests/arm64.sh DIRECTORY               DIRECTORY/system: Debian's arm64 packages; build: EchoTrain; runs: what ran
#   tests/arm64.sh DIRECTORY PACKAGES      instead tries the packages for arm64 in the folder that tools/release.sh has made, with
#                                          Debian's Python, Java and Mono
#
# The packages come from the archive in apt's sources, for the running release, and are unpacked, not installed. Installing the
# compiler and QEMU needs root. Programs that a test starts run in QEMU only if the kernel knows arm64 programs (binfmt_misc), so tests
# with processes of their own are left out.
set -euo pipefail
. "$(dirname "$0")/support/apt.sh"
[ $# = 1 ] || [ $# = 2 ] || die "usage: arm64.sh DIRECTORY [PACKAGES]"
root=$(realpath "$(dirname "$0")/..")
release=
if [ $# = 2 ]; then
  release=$(realpath "$2")
  (cd "$release" && sha256sum --quiet --check SHA256SUMS)
fi
. "$root/tests/support/version.sh"
mkdir -p "$1"
directory=$(realpath "$1")
system=$directory/system work=$directory/work
tools=(qemu-user-static dpkg-dev)
if [ -n "$release" ]; then
  tools+=(default-jdk-headless mono-mcs zstd unzip)
else
  tools+=(g++-aarch64-linux-gnu cmake ninja-build pkg-config glslang-tools)
fi
require_packages "${tools[@]}"

# As apt would install them on an arm64 machine that has nothing yet.
packages=(libc6-dev libtbb-dev libcurl4-openssl-dev libzstd-dev libpng-dev zlib1g-dev libdeflate-dev libjpeg62-turbo-dev
          nlohmann-json3-dev glslang-dev glslang-tools libvulkan-dev spirv-headers libgloo-dev mesa-vulkan-drivers libgtest-dev
          python3-numpy default-jre-headless mono-runtime)
apt_options=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::status="$work/none")
if [ "$(cat "$system/done" 2>/dev/null)" != "${packages[*]}" ]; then
  mkdir -p "$work"
  : >"$work/none"
  archive_of_release
  private_sources deb <<<"$archive"
  private_apt install -y --no-install-recommends --download-only "${packages[@]}" >"$work/log" 2>&1 ||
    die "downloading arm64 packages failed, see $work/log"
  rm -rf "$system"
  mkdir -p "$system"/usr/{bin,lib,sbin}
  for folder in bin lib sbin; do ln -s "usr/$folder" "$system/$folder"; done
  for package in "$work"/cache/archives/*.deb; do dpkg-deb -x "$package" "$system"; done
  echo "${packages[*]}" >"$system/done"
fi

if command -v ccache >/dev/null; then . "$root/tests/support/ccache.sh"; fi
# Programs find their libraries below $system, and the driver there.
run() { qemu-aarch64-static -L "$system" "$@"; }
export VK_DRIVER_FILES=$system/usr/share/vulkan/icd.d/lvp_icd.aarch64.json
unset LD_LIBRARY_PATH
rm -rf "$directory/runs"
mkdir "$directory/runs"
cd "$directory/runs"
loss_falls() { # what, losses
  echo "arm64.sh: $1: losses" "${@:2}" >&2
  printf '%s\n' "${@:2}" | awk 'NR == 1 {first = $1} {last = $1} END {exit !(NR > 1 && last < 0.8 * first)}' || die "$1 does not learn on arm64"
}
try_packages() {
  local python library archive jars
  echo "arm64.sh: the wheel" >&2
  unzip -q "$release"/*_aarch64.whl -d wheel
  python=$(realpath "$system/usr/bin/python3")
  library=$system/usr/lib/aarch64-linux-gnu
  # NumPy's BLAS and LAPACK lie where only an installation links them from.
  PYTHONPATH=wheel:$system/usr/lib/python3/dist-packages:$root/tests/bindings PYTHONHOME=$system/usr \
    run -E LD_LIBRARY_PATH="$library/blas:$library/lapack" "$python" - >wheel.log <<'END'
import echotrain as et
from png import write_classes
write_classes("images", 192)
s = et.stages
pipeline = et.Pipeline([s.folder("images"), s.label(), s.decode(), s.echo(2), s.batch(32), s.normalize()], seed=1)
assert sum(len(batch["label"]) for batch in pipeline) == 384
trainer = et.Trainer(et.Model([et.layers.flatten(), et.layers.dense(10)]), et.optimizers.sgd(), learning_rate=0.01, seed=1)
print(*trainer.fit(pipeline, epochs=3).history["loss"])
END
  # shellcheck disable=SC2046  # several words
  loss_falls "the wheel" $(tail -n 1 wheel.log)

  echo "arm64.sh: the archive" >&2
  tar --zstd -xf "$release"/echotrain-*-linux-aarch64.tar.zst
  archive=$(realpath echotrain-*-linux-aarch64)
  run "$archive/bin/echotrain" pack images shards/train
  run "$archive/bin/echotrain" init shards job.json
  run "$archive/bin/echotrain" train job.json --set train.steps=4
  run "$archive/bin/echotrain" predict job.json images/1/1.png

  echo "arm64.sh: Java" >&2
  jars=$release/echotrain-$version.jar:$release/echotrain-$version-natives-linux-aarch64.jar
  javac -d java -cp "$jars" "$root/samples/java/Train.java"
  run "$system"/usr/lib/jvm/default-java/bin/java -Dechotrain.cache.dir=java-cache -cp "java:$jars" Train images | tee java.log
  # shellcheck disable=SC2046  # several words
  loss_falls Java $(sed -n 's/^epoch .: loss \([0-9.]*\),.*/\1/p' java.log)

  echo "arm64.sh: C#" >&2
  unzip -q "$release"/EchoTrain.*.nupkg -d csharp
  cp csharp/lib/netstandard2.0/EchoTrain.dll csharp/
  mcs -nologo -target:library -out:csharp/System.Memory.dll "$root/tests/bindings/csharp/SystemMemory.cs"  # which NuGet would fetch
  mcs -nologo -r:csharp/EchoTrain.dll -out:csharp/Train.exe "$root/samples/csharp/Train.cs"
  MONO_CFG_DIR=$system/etc run "$system/usr/bin/mono" csharp/Train.exe images | tee csharp.log
  # shellcheck disable=SC2046  # several words
  loss_falls 'C#' $(sed -n 's/^epoch .: loss \([0-9.]*\),.*/\1/p' csharp.log)
}
if [ -n "$release" ]; then
  try_packages
  echo "arm64.sh: all passed"
  exit 0
fi

export ECHOTRAIN_SYSROOT=$system PKG_CONFIG_SYSROOT_DIR=$system
export PKG_CONFIG_LIBDIR=$system/usr/lib/aarch64-linux-gnu/pkgconfig:$system/usr/share/pkgconfig
cmake -S "$root" -B "$directory/build" -G Ninja --toolchain "$root/cmake/aarch64-linux-gnu.cmake" -DCMAKE_BUILD_TYPE=Release \
  -DECHOTRAIN_WERROR=ON -DECHOTRAIN_MPI=OFF -DECHOTRAIN_BENCH=OFF
cmake --build "$directory/build" --target host_tests codec_tests plot_tests echotrain_cli draw

# Left out: tests with processes of their own, and those of limits of a process, which QEMU does not keep.
without=SharedCacheTest.Processes*:SharedCacheTest.AFullDisk*:SharedCacheTest.AWriterThatIsKilled*:Budget.HoldsForTheProcessesMemory
without+=:Threads.ThatCannotBeStarted*
for room in core tensor checkpoint codec io pipeline sources stages echo explain plot; do
  echo "arm64.sh: tests of $room" >&2
  run "$directory/build/tests/${room}_tests" --gtest_brief=1 --gtest_filter="-$without"
done

# A network on images: packed, read, echoed, and trained on arm64's lavapipe. Its loss has to fall.
echotrain=$directory/build/tools/echotrain/echotrain
run "$directory/build/samples/draw" digits 400
run "$echotrain" devices
run "$echotrain" pack digits data/train
cat >job.json <<'JSON'
{"seed": 1,
 "pipeline": {"stages": [{"stage": "webdataset", "pattern": "data/train-*.tar.zst"}, {"stage": "label", "classes": 10},
                         {"stage": "decode"}, {"stage": "echo", "factor": 2}, {"stage": "batch", "size": 32}, {"stage": "normalize"}]},
 "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 32, "activation": "relu"}, {"layer": "dense", "units": 10}]},
 "optimizer": {"optimizer": "sgd", "momentum": 0.9}, "schedule": {"learning_rate": 0.02},
 "train": {"steps": 60}, "output": {"dir": "run"}}
JSON
run "$echotrain" train job.json
# shellcheck disable=SC2046  # several words
loss_falls "the command" $(sed -n 's/.*"kind":"step".*"loss":\([0-9.]*\).*/\1/p' run/metrics.jsonl)
echo "arm64.sh: all passed"
