# Builds the libraries that EchoTrain needs, with another compiler, from the source packages of the installed Debian release. Sourced,
# after apt.sh, by a script that sets root, directory (whose path has no spaces; it receives the logs, NAME.done with the version of each
# library, NAME.older with the update that it lacks, NAME.copyright, and licences/NAME), prefix (which receives the libraries), toolchain (CMake's
# description of the compiler), and the arrays compiler (variables for make: CC, AR), jpeg_options and tbb_options, and then calls
# build_dependencies. use_zig sets toolchain and compiler.

# SWIG, Python's build tools and Zig, in the versions of tools/portable_requirements.txt, in a virtual environment: the first in PATH.
use_packaging_tools() { # folder
  [ -x "$1/bin/python" ] || python3 -m venv "$1"
  "$1/bin/pip" install -q --disable-pip-version-check --require-hashes -r "$root/tools/portable_requirements.txt"
  export PATH="$1/bin:$PATH"
}

# Makes Zig's compilers, of those tools, programs in $directory/bin, and describes them to CMake and make; sets zig, toolchain, compiler.
use_zig() { # folder of the tools, the compilers' options in front of those of a call, and those behind them
  local name
  use_packaging_tools "$1"
  zig=$(python -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / "zig")')
  mkdir -p "$directory/bin"
  for name in cc c++; do printf '#!/bin/sh\nexec %s "$@" %s\n' "$zig $name $2" "${3:-}" >"$directory/bin/$name"; done
  for name in ar ranlib objcopy; do printf '#!/bin/sh\nexec %s "$@"\n' "$zig $name" >"$directory/bin/$name"; done
  chmod +x "$directory"/bin/*
  toolchain=$directory/toolchain.cmake
  cat >"$toolchain" <<END
set(CMAKE_C_COMPILER $directory/bin/cc)
set(CMAKE_CXX_COMPILER $directory/bin/c++)
set(CMAKE_AR $directory/bin/ar)
set(CMAKE_RANLIB $directory/bin/ranlib)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_FIND_ROOT_PATH $prefix)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
END
  compiler=("CC=$directory/bin/cc" "AR=$directory/bin/ar")
}

configure() { # source build option...
  cmake -S "$1" -B "$2" -G Ninja --toolchain "$toolchain" -DCMAKE_BUILD_TYPE=Release -DCMAKE_FIND_ROOT_PATH="$prefix" \
    -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib "${@:3}"
}

# How each is built; chains, because what stands before || does not end at errors.
build_with_cmake() { # source, build folder, options
  configure "$@" && cmake --build "$2" && cmake --install "$2"
}

build_zlib() { # Debian's source lacks a file of its CMake project
  mkdir -p "$prefix"/{include,lib/pkgconfig} && make -C "$1" -f Makefile.in "${compiler[@]}" \
    CFLAGS="-O3 -fPIC -DHAVE_UNISTD_H=1 -DHAVE_STDARG_H=1 -DNO_VIZ" ARFLAGS=rcs libz.a &&
    cp "$1/zlib.h" "$1/zconf.h" "$prefix/include/" && cp "$1/libz.a" "$prefix/lib/"
}

build_libdeflate() { # has no CMakeLists.txt
  local version=${description#*_} library=libdeflate.a
  version=${version%%-*}
  case ${compiler[0]} in *mingw*) library=libdeflatestatic.lib ;; esac
  make -C "$1" "${compiler[@]}" CFLAGS="-O2 -fPIC" $library && cp "$1/libdeflate.h" "$prefix/include/" &&
    cp "$1/$library" "$prefix/lib/libdeflate.a" &&
    sed "s|@PREFIX@|$prefix|; s|@INCDIR@|$prefix/include|; s|@LIBDIR@|$prefix/lib|; s|@VERSION@|$version|" \
      "$1/libdeflate.pc.in" >"$prefix/lib/pkgconfig/libdeflate.pc"
}

# The file name of a source package's description, which has its version; with /RELEASE behind the name, of the release as it was published
# or last renewed, without security updates.
description_of() { private_apt source --print-uris "$1" 2>/dev/null | awk '$2 ~ /[.]dsc$/ {print $2}'; }

fetch() { # source package; sets description
  local log=$directory/$1.log
  description=$(description_of "$1") || true
  [ -n "$description" ] || die "apt's sources have no source package $1"
  [ ! -e "$work/$1/$description" ] || return 0
  rm -rf "$work/$1"{,.part} "$directory/$1.older"
  mkdir "$work/$1.part"
  if ! (cd "$work/$1.part" && private_apt source --download-only "$1") >"$log" 2>&1; then
    rm -f "$work/$1.part"/*
    [ -n "${ECHOTRAIN_OLDER_LIBRARIES:-}" ] ||
      die "the mirror in apt's sources lists $description, but does not have it (see $log). Take another mirror, or try again later. With" \
        "ECHOTRAIN_OLDER_LIBRARIES=1 in the environment, the version without that security update is built; do not publish that"
    echo "$(basename "$0"): instead of $description, which cannot be fetched, the version before that security update" >&2
    echo "$description" >"$directory/$1.older"
    description=$(description_of "$1/$codename")
    (cd "$work/$1.part" && private_apt source --download-only "$1/$codename") >>"$log" 2>&1 || die "apt-get source $1 failed, see $log"
  fi
  mv "$work/$1.part" "$work/$1"
}

# What has been built stays, unless there is a newer version of it, or it is built otherwise.
build() { # source package, folder of its CMakeLists.txt, options
  local name=$1 log=$directory/$1.log how=build_with_cmake description recipe
  fetch "$name"
  if declare -F "build_${name%%[0-9]*}" >/dev/null; then how=build_${name%%[0-9]*}; fi
  recipe="$description $({ printf '%s\n' "$@" "${compiler[@]}"; "${compiler[0]#CC=}" --version; declare -f configure "$how"; cat "$toolchain"; } | sha256sum)"
  if [ ! -e "$directory/$name.done" ] || [ ! -e "$directory/$name.copyright" ] || [ "$(cat "$directory/$name.recipe" 2>/dev/null)" != "$recipe" ]; then
    echo "$(basename "$0"): building $name" >&2
    rm -rf "$directory/$name".{done,recipe} "$work/$name"/{source,build}
    (cd "$work/$name" && dpkg-source -x "$description" source) >>"$log" 2>&1 || die "unpacking $description failed, see $log"
    "$how" "$work/$name/source/$2" "$work/$name/build" "${@:3}" >>"$log" 2>&1 || die "building $name failed, see $log"
    cp "$work/$name/source/debian/copyright" "$directory/$name.copyright"
    sed -n 's/^Version: //p' "$work/$name/$description" | head -n 1 >"$directory/$name.done"
    echo "$recipe" >"$directory/$name.recipe"
  fi
  cp "$directory/$name.copyright" "$directory/licences/$name"
}

headers() { # those without code: as Debian's packages have them
  mkdir -p "$prefix"/{include,share/cmake}
  # With their dates, by which the build knows that they have not changed.
  cp -rp /usr/include/{nlohmann,vulkan,vk_video,spirv} "$prefix/include/"
  cp -rp "/usr/include/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/curl" "$prefix/include/"
  cp -rp /usr/share/cmake/{nlohmann_json,SPIRV-Headers} "$prefix/share/cmake/"
  local package
  for package in nlohmann-json3-dev libvulkan-dev spirv-headers; do
    cp "/usr/share/doc/$package/copyright" "$directory/licences/$package"
  done
}

build_dependencies() { # further source packages
  # Each with the folder of its CMakeLists.txt, and what its build is told.
  local package packages=("$@"
    "zlib ."
    "libzstd build/cmake -DZSTD_BUILD_PROGRAMS=OFF -DZSTD_BUILD_SHARED=OFF"
    "libpng1.6 . -DPNG_SHARED=OFF -DPNG_TESTS=OFF -DPNG_EXECUTABLES=OFF"
    "libdeflate ."
    "libjpeg-turbo . -DCMAKE_INSTALL_LIBDIR=$prefix/lib -DENABLE_SHARED=OFF -DWITH_TURBOJPEG=OFF ${jpeg_options[*]}"
    "onetbb . -DTBB_TEST=OFF -DTBB_STRICT=OFF -DTBB_DISABLE_HWLOC_AUTOMATIC_SEARCH=ON ${tbb_options[*]}"
    "glslang . -DENABLE_OPT=OFF -DENABLE_CTEST=OFF"
  )
  work=$directory/work
  mkdir -p "$work" "$directory/licences"
  archive_of_release
  private_sources deb-src <<<"$archive"
  for package in "${packages[@]}"; do
    # shellcheck disable=SC2086  # several words
    build $package
  done
  headers
  # libcurl is opened at run time; CMake asks for a file.
  library_options=(-DECHOTRAIN_TESTS=OFF -DECHOTRAIN_BENCH=OFF -DECHOTRAIN_MPI=OFF -DECHOTRAIN_HARDEN=ON -DCURL_INCLUDE_DIR="$prefix/include"
                   -DCURL_LIBRARY=opened-at-run-time -DECHOTRAIN_LINKED_LICENCES="$directory/licences")
  export PKG_CONFIG_LIBDIR=$prefix/lib/pkgconfig
}
