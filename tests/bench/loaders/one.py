"""One run of one loader on one case: one.py LOADER ROOT SIZE tar|files KIND; prints its figures as JSON. See loaders.py."""

import importlib
import json
import os
import resource
import sys
import time

import work


def cpu_seconds():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) + workers()[0]


def peak_megabytes(pid):
    with open(f"/proc/{pid}/status") as file:  # ru_maxrss would be that of the process that started this one
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024


def workers():
    """CPU seconds and peak megabytes of children that have not ended, which getrusage leaves out."""
    seconds, megabytes = 0.0, 0.0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            if int(fields[1]) != os.getpid():
                continue
            seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            megabytes += peak_megabytes(pid)
        except (OSError, StopIteration):
            pass
    return seconds, megabytes


def main():
    name, case = sys.argv[1], work.Case(sys.argv[2], int(sys.argv[3]), sys.argv[4] == "tar", sys.argv[5])
    for module in work.LOADERS[name].modules:  # importing takes seconds, and is no property of the loader
        importlib.import_module(module)
    begin = time.perf_counter()
    epoch = work.LOADERS[name].make(case)
    batches = epoch()
    next(batches)
    first = time.perf_counter() - begin
    for _ in batches:
        pass
    begin, cpu = time.perf_counter(), cpu_seconds()
    images = work.BATCH * sum(1 for _ in epoch())
    seconds, cpu = time.perf_counter() - begin, cpu_seconds() - cpu
    peak = peak_megabytes("self") + workers()[1]
    print(json.dumps({"rate": images / seconds, "cpu_ms": 1000 * cpu / images, "first_ms": 1000 * first, "peak_mb": peak}))
    sys.stdout.flush()
    os._exit(0)  # some loaders take seconds to end


if __name__ == "__main__":
    main()
