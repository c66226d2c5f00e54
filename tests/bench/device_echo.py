#!/usr/bin/env python3
"""Device echo beside the host's echo node and no echo, with upstream eight times too slow, in turns in one run.

    python3 tests/bench/device_echo.py [--echotrain build/tools/echotrain/echotrain] [--seconds S] [--size PIXELS] [--scaled]

A CNN trains on random images with crops, flips and changes of brightness (--scaled: parts of any size and shape,
flips and changes of all colours, as for ImageNet); a delay makes reading a sample take eight times as long as
training on it. Prints for each way the examples a second, the share of the time in which the device had nothing to
do, and what the host spent. Needs NumPy and the command line tool.
"""

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import tempfile

import numpy as np

SLOWER = 8
BATCH = 64
WAYS = {"no echo": None, "host echo": {"device": False}, "device echo": {"device": True}}


def augmentation(size, scaled):
    if not scaled:
        return [{"stage": "random_crop", "pad": size // 8}, {"stage": "flip"}, {"stage": "brightness_contrast"}]
    return [{"stage": "random_resized_crop", "height": size, "width": size}, {"stage": "flip"},
            {"stage": "color_jitter", "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}]


def job(folder, way, delay_ms, seconds, size, scaled):
    echo = [] if WAYS[way] is None else [
        {"stage": "echo", "factor": 2 * SLOWER, "mode": "on_demand", "buffer": 2000, **WAYS[way]}]
    conv = lambda filters: [{"layer": "conv2d", "filters": filters, "activation": "relu"}, {"layer": "max_pool"}]
    return {
        "pipeline": {"queue_items": 64, "prefetch": 2, "stages": [
            {"stage": "npy", "arrays": f"image={folder}/image.npy,label={folder}/label.npy"},
            {"stage": "repeat"}, {"stage": "delay", "milliseconds": delay_ms}, *echo,
            *augmentation(size, scaled), {"stage": "batch", "size": BATCH}, {"stage": "normalize"}]},
        "model": {"layers": [*conv(16), *conv(32), *conv(64), {"layer": "global_avg_pool"}, {"layer": "dense", "units": 10}]},
        "optimizer": {"optimizer": "sgd"}, "schedule": {"schedule": "constant", "learning_rate": 0.01},
        "train": {"seconds": seconds},
        "output": {"dir": f"{folder}/out", "tensorboard": False, "checkpoint_every_epochs": 0}}


def run(tool, folder, way, delay_ms, seconds, size, scaled):
    """Of the second half of a run, by which buffers and queues are full: examples/s, waiting share, host seconds."""
    path = pathlib.Path(folder, "job.json")
    path.write_text(json.dumps(job(folder, way, delay_ms, seconds, size, scaled)))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([tool, "train", str(path), "--overwrite"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    rows = [json.loads(line) for line in pathlib.Path(folder, "out", "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["kind"] == "step"]
    # Rows are written when their steps are found done, some at once: those that others were not written with stand for the time.
    rows = [row for before, row in zip(rows, rows[1:-4])
            if row["seconds"] - before["seconds"] > (row["busy_seconds"] - before["busy_seconds"]) / 2]
    first, last = rows[len(rows) // 2], rows[-1]
    time = last["seconds"] - first["seconds"]
    busy = (last["busy_seconds"] - first["busy_seconds"]) / time
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (last["examples"] - first["examples"]) / time, 1 - busy, cpu / last["examples"] * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--echotrain", default="build/tools/echotrain/echotrain")
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--scaled", action="store_true")
    arguments = parser.parse_args()
    of_all = (arguments.seconds, arguments.size, arguments.scaled)
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(1)
        shape = (8000, arguments.size, arguments.size, 3)
        np.save(f"{folder}/image.npy", rng.integers(0, 256, shape, np.uint8))
        np.save(f"{folder}/label.npy", rng.integers(0, 10, shape[0]).astype(np.int32))
        full, _, _ = run(arguments.echotrain, folder, "no echo", 0, *of_all)
        delay_ms = SLOWER / full * 1e3
        print(f"upstream ready: {full:.0f} examples/s; now {delay_ms:.2f} ms a sample, {SLOWER} times too slow")
        print("                examples/s  of ready  device waits  ms of CPU/example")
        measured = {way: [] for way in WAYS}
        for _ in range(arguments.rounds):
            for way in WAYS:
                measured[way].append(run(arguments.echotrain, folder, way, delay_ms, *of_all))
        for way, runs in measured.items():
            speed, waits, cpu = (statistics.median(column) for column in zip(*runs))
            print(f"{way:14}  {speed:10.0f}  {100 * speed / full:6.0f} %  {100 * waits:10.1f} %  {cpu:17.3f}", flush=True)


if __name__ == "__main__":
    main()
