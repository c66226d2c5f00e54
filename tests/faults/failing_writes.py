#!/usr/bin/env python3
"""Lets one change of the disk fail in a training run, resumes it, and compares it with a run in which nothing failed.

    failing_writes.py ECHOTRAIN PAINTER LIBRARY [--runs 60] [--seed 1] [--case NAME] [--at CALL]

LIBRARY is preloaded (failing_disk.cpp). The disk is full from a certain call on, or one call gives an input or output error. The
run must end with an error that names a file, or with the right result; it must not end by a signal, or hang. Resumed, it has the
rows of the other run, each step once, and its weights and optimizer state to the bit. PAINTER draws the data (samples/draw.cpp).
"""

import argparse
import errno
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import kills

FOREVER = 1 << 40


class Fault:
    def __init__(self, at, error, count):
        self.at, self.error, self.count = at, error, count

    def environment(self, folder, library, report):
        return {**os.environ, "LD_PRELOAD": str(library), "FAILING_DISK_BELOW": os.path.realpath(folder), "FAILING_DISK_AT": str(self.at),
                "FAILING_DISK_ERRNO": str(self.error), "FAILING_DISK_FOR": str(self.count), "FAILING_DISK_REPORT": str(report)}

    def __str__(self):
        return f"call {self.at}{'' if self.count == 1 else ' and all later ones'}: {errno.errorcode[self.error]}"


def cases(root):
    """Runs that write metrics, events and checkpoints, and caches of samples."""
    shards, written = f"{root}/data-*.tar.zst", root / "written"
    return {
        "echo": (kills.stages(shards, echo={"factor": 2.5}), {}),
        "cache of the run": (kills.stages(shards, {"stage": "cache", "directory": str(written / "kept")}), {}),
        "shared cache": (kills.stages(shards, {"stage": "cache", "shared": str(written / "shared")}), {}),
    }


def faulty(run, fault, library, root):
    """Trains with a fault; returns the exit status, the output, the number of calls, and what failed."""
    report = root / "report"
    report.unlink(missing_ok=True)
    process = subprocess.run([run.program, "train", run.path, "--overwrite"], env=fault.environment(root / "written", library, report),
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert report.exists(), f"exit status {process.returncode}, and it did not get to its end: {process.stdout}"
    calls, failed = report.read_text().rstrip("\n").split(" ", 1)
    return process.returncode, process.stdout, int(calls), failed


def trial(run, reference, fault, library, root):
    shutil.rmtree(root / "written", ignore_errors=True)
    (root / "written").mkdir()
    status, output, _, failed = faulty(run, fault, library, root)
    if not failed:
        return "not met"
    assert status in (0, 1), f"exit status {status}: {output}"
    if status == 1:
        assert str(root / "written") in output, f"the error names no file: {output}"
        kills.finish(run, *(["--resume"] if run.newest() else ["--overwrite"]))
    kills.compare(run, reference)
    return "error" if status == 1 else "no error"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("painter")
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=60, help="in all; 0: every call, with every error")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", help="only the case of this name")
    parser.add_argument("--at", type=int, help="only this call")
    options = parser.parse_args()
    library = options.library.resolve(strict=True)
    root = pathlib.Path(os.path.realpath(tempfile.mkdtemp(prefix="echotrain-failing-writes-")))
    try:
        kills.write_data(options.program, options.painter, root)
        chosen = kills.chosen_of(cases(root), options.case)
        dice = random.Random(options.seed)
        for name, parts in chosen.items():
            (root / "written").mkdir(exist_ok=True)
            reference = kills.Run(options.program, root, "reference", parts)
            kills.finish(reference, "--overwrite")
            run = kills.Run(options.program, root, "run", parts, out=root / "written" / "run")
            status, output, calls, _ = faulty(run, Fault(0, 0, 0), library, root)
            assert status == 0 and calls > 50, f"{name}: exit status {status}, {calls} calls: {output}"
            faults = [Fault(at, error, count) for at in range(1, calls + 1)
                      for error, count in ((errno.ENOSPC, FOREVER), (errno.EIO, 1)) if options.at in (None, at)]
            if options.runs and len(faults) > options.runs // len(chosen):
                faults = sorted(dice.sample(faults, options.runs // len(chosen)), key=lambda fault: fault.at)
            ends = {"error": 0, "no error": 0, "not met": 0}
            for fault in faults:
                try:
                    ends[trial(run, reference, fault, library, root)] += 1
                except (AssertionError, subprocess.TimeoutExpired) as error:
                    sys.exit(f"failing_writes: {name}, {fault} (of {calls}): {(root / 'report').read_text().strip()}\n{error}")
            print(f"{name}: {calls} calls, {len(faults)} runs: " + ", ".join(f"{end}: {count}" for end, count in ends.items()), flush=True)
        print(f"passed, seed {options.seed}")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
