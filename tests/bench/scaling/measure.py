#!/usr/bin/env python3
"""The scaling model beside real ranks: 1 to 4 processes of this machine, each with its helper on a core of its own.

    measure.py ECHOTRAIN EXCHANGE_BENCH [--steps N] [--json FILE]

The model is given what one rank's step takes, and what `exchange_bench 2` measures of all-reduces between two ranks. From
these it has to tell the steps of 2, 3 and 4 ranks. A CPU device computes with the core that also exchanges: nothing overlaps.
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
WIDTHS = (128, 512, 1024, 2048)
RANKS = (1, 2, 3, 4)


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
        "train": {"steps": steps}, "parallel": {"bucket_mb": 4}}


def start(program, job, rank, size, folder):
    environment = dict(os.environ, ECHOTRAIN_RANK=str(rank), ECHOTRAIN_SIZE=str(size), LP_NUM_THREADS="1",
                       ECHOTRAIN_RENDEZVOUS=f"file:{folder / 'meet'}")
    cores = sorted(os.sched_getaffinity(0))
    return subprocess.Popen([program, "train", job, "--set", f"output.dir={folder / 'run'}", "--set", "output.checkpoint_every_epochs=0"],
                            env=environment, stdout=subprocess.DEVNULL,
                            preexec_fn=lambda: os.sched_setaffinity(0, {cores[rank % len(cores)]}))


def step_seconds(program, job, size):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "meet").mkdir()
        ranks = [start(program, job, rank, size, folder) for rank in range(size)]
        if any([rank.wait() for rank in ranks]):
            raise SystemExit(f"measure.py: a rank of {size} failed")
        rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    times = [row["seconds"] for row in rows if row["kind"] == "step"]
    taken = [after - before for before, after in zip(times[5:], times[6:])]
    return statistics.median(taken)


def exchange(program):
    """Latency and bytes a second of an all-reduce of two ranks: through its shortest and its longest times."""
    text = subprocess.run([program, "2"], check=True, capture_output=True, text=True).stdout
    rows = [(int(size), float(us) * 1e-6) for size, us in re.findall(r"^ *(\d+) +([\d.]+) us", text, re.M)]
    (_, short), (size, longest) = rows[0], rows[-1]
    return short / 2, size / (longest - short)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("echotrain")
    parser.add_argument("exchange_bench")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    latency, bandwidth = exchange(arguments.exchange_bench)
    machine = cost.Machine(flops=1e9, memory=1e12, host=bandwidth, network=1e18, latency=latency, overlaps=False)
    print(f"all-reduce of 2 ranks: {latency * 1e6:.0f} us a message, {bandwidth / 1e9:.2f} GB/s")
    found = {"latency": latency, "bandwidth": bandwidth, "steps": []}
    print("parameters  ranks  measured ms  model ms  off by")
    with tempfile.TemporaryDirectory() as name:
        images, job = pathlib.Path(name) / "images", pathlib.Path(name) / "job.json"
        write_images(images)
        for width in WIDTHS:
            job.write_text(json.dumps(job_of(images, width, arguments.steps)))
            for ranks in RANKS:
                measured = step_seconds(arguments.echotrain, job, ranks)
                if ranks == 1:
                    workload = mlp(width, measured, machine)
                model = cost.step(workload, BATCH * ranks, cost.Plan(cost.Mesh(ranks)), machine).seconds
                found["steps"].append({"parameters": workload.parameters, "ranks": ranks, "measured": measured, "model": model})
                print(f"{workload.parameters:10,}  {ranks:5}  {measured * 1e3:11.2f}  {model * 1e3:8.2f}  "
                      f"{100 * (model / measured - 1):+5.0f} %", flush=True)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
