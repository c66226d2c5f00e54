#!/usr/bin/env python3
"""The scaling model beside real ranks: 1 to 4 processes of this machine, each with its helper on a core of its own.

    measure.py ECHOTRAIN EXCHANGE_BENCH [--steps N] [--ranks 4] [--json FILE]

The model is given what `exchange_bench 2` measures of all-reduces between two ranks, of the size that a bucket has, and what a
step takes where as many processes compute side by side as there are ranks, and exchange nothing: cores of one machine share its
memory, which is not what the model is about. From these it has to tell the steps of 2, 3 and 4 ranks. A CPU device computes with
the core that also exchanges: nothing overlaps.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import struct
import subprocess
import tempfile

import cost
import workloads

BATCH = 64
BUCKET_MB = 4
WIDTHS = (128, 512, 1024, 2048)
WARM_UP = 10  # steps
REPEATS = 3  # of which the median counts


def mlp(width, seconds, machine):
    """The network as the model sees it, with work that takes the machine as long as a step of one rank took."""
    sizes = [(784, width), (width, width), (width, 10)]
    total = sum(a * b for a, b in sizes)
    flops = seconds * machine.flops / 3 / BATCH
    layers = tuple(workloads.Layer("dense", a * b + b, flops * a * b / total, b, b) for a, b in sizes)
    return workloads.Workload("MLP", "image", layers, splits=1)


def write_images(folder, count=4096):
    folder.mkdir()
    (folder / "images").write_bytes(struct.pack(">4i", 0x803, count, 28, 28) + os.urandom(count * 784))
    (folder / "labels").write_bytes(struct.pack(">2i", 0x801, count) + bytes(i % 10 for i in range(count)))


def job_of(folder, width, steps):
    dense = [{"layer": "dense", "units": width}, {"layer": "relu"}]
    return {
        "pipeline": {"threads": 1, "stages": [
            {"stage": "idx", "images": str(folder / "images"), "labels": str(folder / "labels")},
            {"stage": "repeat", "count": 0}, {"stage": "normalize"}, {"stage": "batch", "size": BATCH}]},
        "model": {"layers": [{"layer": "flatten"}, *dense, *dense, {"layer": "dense", "units": 10}],
                  "loss": {"loss": "softmax_cross_entropy"}},
        "optimizer": {"optimizer": "sgd"},
        "schedule": {"schedule": "constant", "learning_rate": 0.001},
        "train": {"steps": steps}, "parallel": {"bucket_mb": BUCKET_MB}}


def start(program, job, out, core, **environment):
    command = [program, "train", job, "--set", f"output.dir={out}", "--set", "output.checkpoint_every_epochs=0"]
    return subprocess.Popen(command, env=dict(os.environ, LP_NUM_THREADS="1", **environment), stdout=subprocess.DEVNULL,
                            preexec_fn=lambda: os.sched_setaffinity(0, {core}))


def step_seconds(program, job, size, together):
    """Of the first of `size` processes, each on a core: ranks of one run, or `together` in nothing but time."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < size:
        raise SystemExit(f"measure.py: {size} ranks need as many cores, and there are {len(cores)}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        processes = []
        for rank in range(size):
            run = folder / ("0" if together else str(rank))
            (run / "meet").mkdir(parents=True, exist_ok=True)
            processes.append(start(program, job, run / "out", cores[rank], ECHOTRAIN_RENDEZVOUS=f"file:{run / 'meet'}",
                                   ECHOTRAIN_RANK=str(rank if together else 0), ECHOTRAIN_SIZE=str(size if together else 1)))
        if any([process.wait() for process in processes]):
            raise SystemExit(f"measure.py: one of {size} processes failed")
        rows = [json.loads(line) for line in (folder / "0/out/metrics.jsonl").read_text().splitlines()]
    times = [row["seconds"] for row in rows if row["kind"] == "step"][WARM_UP:]
    return (times[-1] - times[0]) / (len(times) - 1)  # several steps may end in one row's time


def median_step(*arguments, **options):
    return statistics.median(step_seconds(*arguments, **options) for _ in range(REPEATS))


def exchange(program):
    """(bytes, seconds) of all-reduces of two ranks, in memory that the group has given."""
    text = subprocess.run([program, "2"], check=True, capture_output=True, text=True).stdout
    return [(int(size), float(us) * 1e-6) for size, us in re.findall(r"^ *(\d+) +[\d.]+ us +([\d.]+) us", text, re.M)]


def machine_for(exchanged, size):
    """One whose all-reduce of so many bytes takes two ranks what lies between what was measured."""
    latency = exchanged[0][1] / 2
    for (below, early), (above, late) in zip(exchanged, exchanged[1:]):
        if size <= above:
            break
    seconds = early + (late - early) * (size - below) / (above - below)
    return cost.Machine(flops=1e9, memory=1e12, host=size / max(seconds - 2 * latency, 1e-9), network=1e18, latency=latency, overlaps=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("echotrain")
    parser.add_argument("exchange_bench")
    parser.add_argument("--steps", type=int, default=60, help=f"more than {WARM_UP}, which are not timed")
    parser.add_argument("--ranks", type=int, default=4, help="the most; each needs a core")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if arguments.steps <= WARM_UP:
        parser.error(f"--steps {arguments.steps}: the first {WARM_UP} steps are not timed, so there have to be more")
    exchanged = exchange(arguments.exchange_bench)
    print("all-reduce of 2 ranks: " + ", ".join(f"{size:,} bytes {1e3 * seconds:.2f} ms" for size, seconds in exchanged))
    steps = []
    print("parameters  ranks  alone ms  measured ms  model ms  off by")
    with tempfile.TemporaryDirectory() as name:
        images, job = pathlib.Path(name) / "images", pathlib.Path(name) / "job.json"
        write_images(images)
        for width in WIDTHS:
            job.write_text(json.dumps(job_of(images, width, arguments.steps)))
            for ranks in range(1, arguments.ranks + 1):
                alone = median_step(arguments.echotrain, job, ranks, together=False)
                measured = median_step(arguments.echotrain, job, ranks, together=True)
                bytes_of_all = 4 * mlp(width, alone, cost.Machine(1, 1, 1, 1, 1)).parameters
                machine = machine_for(exchanged, min(bytes_of_all, BUCKET_MB * 1e6))
                workload = mlp(width, alone, machine)
                model = cost.step(workload, BATCH * ranks, cost.Plan(cost.Mesh(ranks)), machine).seconds
                steps.append({"parameters": workload.parameters, "ranks": ranks, "alone": alone, "measured": measured, "model": model})
                print(f"{workload.parameters:10,}  {ranks:5}  {alone * 1e3:8.2f}  {measured * 1e3:11.2f}  {model * 1e3:8.2f}  "
                      f"{100 * (model / measured - 1):+5.0f} %", flush=True)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"exchanged": exchanged, "steps": steps}, indent=1) + "\n")


if __name__ == "__main__":
    main()
