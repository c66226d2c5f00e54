#!/usr/bin/env python3
"""Packs what a bare machine with a GPU needs into one archive: programs, the libraries they need, the benchmarks in Python.

    python3 tests/gpu_day/pack.py BUILD_FOLDER KIT.tar.xz

Fails above 64 MiB, and where a library is missing. The C library stays that of the machine; everything that bare machines may
lack besides (the C++ library, the Vulkan loader, what NVIDIA's driver wants of X and GLVND) is packed as a spare, which is used
where the machine has none of its own.
"""

import hashlib
import json
import lzma
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
MOST_BYTES = 64 << 20
# The programs hold the same shaders, so that the dictionary must reach from one to the next.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 64 << 20}]
BENCHMARKS = ("arrays.py", "sides.py", "torch_side.py", "torch_models.py", "kernel_bench.py", "kernel_choices.py", "gpu_train_bench.py",
              "device_echo.py", "record.py")
RUNNER = ("run.py", "slices.py", "parts.py", "jobs.py", "machine.py", "process.py")
# Of the machine itself.
GLIBC = re.compile(r"(linux-vdso|ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|mvec))\.so")
CXX = ("libstdc++.so.6", "libgcc_s.so.1")
SPARES = {"libvulkan.so.1": "libvulkan1", "libEGL.so.1": "libegl1", "libGLdispatch.so.0": "libglvnd0", "libGL.so.1": "libgl1",
          "libGLX.so.0": "libglx0", "libX11.so.6": "libx11-6", "libXext.so.6": "libxext6"}
START = """#!/bin/sh
# Starts the program with the kit's libraries, and nothing else with them.
kit=$(cd "$(dirname "$0")/.." && pwd)
LD_LIBRARY_PATH="$kit/lib${GPU_DAY_LIBRARIES:+:$GPU_DAY_LIBRARIES}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH
exec "$kit/programs/%s" "$@"
"""


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def libraries_of(path):
    """Name -> file of all that the program or library needs, with what that needs."""
    found = {}
    for line in output("ldd", str(path)).splitlines():
        name, _, rest = line.strip().partition(" => ")
        if rest.startswith("not found"):
            sys.exit(f"{path.name} needs {name}, which this machine has not got")
        if rest:
            found[name] = pathlib.Path(rest.split(" (")[0])
    return found


def installed_libraries():
    rows = re.findall(r"^\s*(\S+) \(libc6,x86-64\S*\) => (\S+)$", output("/sbin/ldconfig", "-p"), re.MULTILINE)
    return {name: pathlib.Path(path) for name, path in reversed(rows)}


def copy_libraries(kit):
    needed = {}
    for path in [*(kit / "programs").iterdir(), *(kit / "lib").iterdir()]:
        needed.update(libraries_of(path))
    for name, path in needed.items():
        if not GLIBC.match(name) and name not in CXX and not name.startswith("libechotrain"):
            shutil.copy(path, kit / "lib" / name)
    installed = installed_libraries()
    lacking = [package for name, package in SPARES.items() if name not in installed]
    if lacking:
        sys.exit("the spare libraries need packages that are not installed: apt-get install " + " ".join(lacking))
    spares = {name: path for name, path in needed.items() if name in CXX}
    for name in SPARES:
        spares[name] = installed[name]
        spares.update(libraries_of(installed[name]))
    (kit / "spare").mkdir()
    for name, path in spares.items():
        if not GLIBC.match(name):
            shutil.copy(path, kit / "spare" / name)


def check_complete(kit):
    """Every library that anything in the kit names is in it, or the C library's: the rehearsal's machine has more."""
    there = {path.name for folder in ("lib", "spare") for path in (kit / folder).iterdir()}
    for folder in ("programs", "lib", "spare"):
        for path in (kit / folder).iterdir():
            for name in re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", str(path))):
                if name not in there and not GLIBC.match(name):
                    sys.exit(f"{folder}/{path.name} needs {name}, which is not in the kit")
            if re.search(r"\((RPATH|RUNPATH)\).*\[/", output("readelf", "-d", str(path))):
                sys.exit(f"{folder}/{path.name} looks for libraries in folders of the build")


def check_size(archive, most=MOST_BYTES):
    size = archive.stat().st_size
    if size > most:
        archive.unlink()
        sys.exit(f"the kit has {size / 2**20:.1f} MiB, above the {most / 2**20:.0f} MiB that it may have")
    return size


def glibc_of(kit):
    """The oldest C library that has all symbols which the kit asks for."""
    versions = set()
    for folder in ("programs", "lib", "spare"):
        for path in (kit / folder).iterdir():
            versions.update(re.findall(r"GLIBC_(\d+)\.(\d+)", output("objdump", "-T", str(path))))
    return ".".join(max(versions, key=lambda version: tuple(map(int, version))))


def commit():
    try:
        return output("git", "-C", str(HERE), "describe", "--always", "--dirty").strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def fill(build, kit):
    subprocess.run(["cmake", "--install", str(build), "--prefix", str(kit), "--component", "gpu_day", "--strip"], check=True,
                   stdout=subprocess.DEVNULL)
    copy_libraries(kit)
    check_complete(kit)
    (kit / "bin").mkdir()
    for program in (kit / "programs").iterdir():
        start = kit / "bin" / program.name
        start.write_text(START % program.name)
        start.chmod(0o755)
    for folder, names, source in (("bench", BENCHMARKS, HERE.parent / "bench"), ("gpu_day", RUNNER, HERE)):
        (kit / folder).mkdir()
        for name in names:
            shutil.copy(source / name, kit / folder / name)
    for name in ("run.sh", "README.md"):
        shutil.copy(HERE / name, kit / name)
    (kit / "glibc").write_text(glibc_of(kit) + "\n")
    digest = hashlib.sha256()
    for path in sorted(kit.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(kit)).encode() + path.read_bytes())
    manifest = {"id": digest.hexdigest()[:16], "commit": commit(), "packed": time.strftime("%Y-%m-%d")}
    (kit / "manifest.json").write_text(json.dumps(manifest) + "\n")
    return manifest


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, archive = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        kit = pathlib.Path(folder) / "gpu_day_kit"
        kit.mkdir()
        manifest = fill(build, kit)
        glibc = (kit / "glibc").read_text().strip()
        with lzma.open(archive, "wb", filters=FILTERS) as file, tarfile.open(fileobj=file, mode="w") as tar:
            tar.add(kit, kit.name)
    size = check_size(archive)
    print(f"{archive}: {size / 2**20:.1f} MiB, commit {manifest['commit']}, for glibc {glibc} and later\n"
          f"on the machine: python3 -m tarfile -e {archive.name} . && bash gpu_day_kit/run.sh next RESULTS_DIR")


if __name__ == "__main__":
    main()
