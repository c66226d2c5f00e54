#!/usr/bin/env python3
"""Compiles every kernel with the compiler of AMD's GPUs, none of which has to be there, and says what each takes.

    python3 tests/compilers/compile_kernels.py build-test/tests/compile_kernels [--table]

Mesa's RADV compiles for a GPU that RADV_FORCE_FAMILY names. A kernel that does not compile, or whose registers spill into
memory, is an error: on a CPU device neither would show. --table prints registers, shared memory, waves that a SIMD unit
holds, and instructions of each kernel. RADV is taken from the folder of VK_DRIVER_FILES (tests/drivers.sh mesa) or from the package
mesa-vulkan-drivers; Mesa 22 does not know the newest GPUs, which are left out there, and Mesa above 25 cannot do this without
more and is skipped (exit code 77).
"""

import argparse
import glob
import os
import re
import subprocess
import sys

# Generations of GPUs, and the families of kernels that they run. Older releases of Mesa do not know the newest, or not its
# matrix units.
TARGETS = [("vega10", "tiled"), ("navi21", "tiled"), ("navi31", "tiled"), ("navi31", "matrix")]
NEWEST = "navi31"
WANTED = {"VGPRs": "registers", "LDS size": "shared bytes", "Subgroups per SIMD": "waves", "Instructions": "instructions",
          "Spilled VGPRs": "spilled", "Scratch size": "scratch"}


def compile_for(program, target, family, driver):
    environment = dict(os.environ, RADV_FORCE_FAMILY=target, RADV_DEBUG="shaderstats,nocache", VK_DRIVER_FILES=driver,
                       VK_ICD_FILENAMES=driver)
    done = subprocess.run([program, family], env=environment, capture_output=True, text=True, errors="replace")
    kernels, name = {}, None
    for line in done.stderr.splitlines():
        if line.startswith("=== "):
            name = line[4:]
            kernels[name] = {}
        found = re.match(r"([A-Za-z ]+): (\d+)$", line)
        if name and found and found[1] in WANTED:
            kernels[name][WANTED[found[1]]] = int(found[2])
    return done, kernels


def find_driver():
    beside = os.path.dirname(os.environ.get("VK_DRIVER_FILES", "").split(":")[0])
    found = (sorted(glob.glob(glob.escape(beside) + "/radeon_icd*.json")) if beside else []) + \
        sorted(glob.glob("/usr/share/vulkan/icd.d/radeon_icd*.json"))
    if not found:
        sys.exit("RADV is missing: install the package mesa-vulkan-drivers")
    return found[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    driver = find_driver()
    failed = 0
    for target, family in TARGETS:
        done, kernels = compile_for(arguments.program, target, family, driver)
        if target == NEWEST and f"Unknown family: {target}" in done.stdout + done.stderr:
            print(f"{target}: this Mesa does not know it: NOT CHECKED")
            continue
        if family == "matrix" and "no matrix units" in done.stdout:
            print(f"{target}: this Mesa knows no matrix units: NOT CHECKED")
            continue
        if not kernels and ("vkEnumeratePhysicalDevices" in done.stdout or "no Vulkan" in done.stdout):
            print(f"this RADV compiles for no {target} that is not there (Mesa up to 25 does): NOT CHECKED")
            sys.exit(77)
        if done.returncode != 0 or not kernels:
            print(f"{target}, {family}: {done.stdout}{done.stderr[-2000:]}")
            failed += 1
            continue
        without = [name for name, stats in kernels.items() if "registers" not in stats]
        spilled = [name for name, stats in kernels.items() if stats.get("spilled") or stats.get("scratch")]
        print(f"{target}: {len(kernels)} {family} kernels compiled, {len(spilled)} spill registers {' '.join(spilled)}")
        if without:
            print(f"{target}: the driver says nothing of {' '.join(without)}")
        failed += len(spilled) + len(without)
        if arguments.table:
            for name, stats in kernels.items():
                print(f"  {name:40}" + "".join(f" {key} {value}" for key, value in stats.items() if value))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
