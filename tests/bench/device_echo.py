#!/usr/bin/env python3
"""Device echo beside the host's echo node and no echoing, with upstream eight times too slow, in turns in one run.

    python3 tests/bench/device_echo.py [--echotrain build/tools/echotrain/echotrain] [--seconds S] [--size PIXELS] [--scaled]
                                       [--resnet DEPTH] [--batch N] [--samples N] [--json FILE] [--record FILE]

A CNN trains on random images with crops, flips and changes of brightness (--scaled: parts of any size and shape,
flips and changes of all colours, as for ImageNet); a delay makes reading a sample take eight times as long as
training on it. Prints for each way the examples a second, the share of the time in which the device had nothing to
do, and what the host spent. Needs the command line tool. --resnet trains a residual network instead, for devices to which the
CNN is nothing.
"""

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

import record
from arrays import random_images, random_labels

SLOWER = 8
WAYS = {"no echoing": None, "host echo": {"device": False}, "device echo": {"device": True}}


def augmentation(size, scaled):
    if not scaled:
        return [{"stage": "random_crop", "pad": size // 8}, {"stage": "flip"}, {"stage": "brightness_contrast"}]
    return [{"stage": "random_resized_crop", "height": size, "width": size}, {"stage": "flip"},
            {"stage": "color_jitter", "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}]


def model(depth):
    if depth:
        return {"model": "resnet", "depth": depth, "classes": 10}
    conv = lambda filters: [{"layer": "conv2d", "filters": filters, "activation": "relu"}, {"layer": "max_pool"}]
    return {"layers": [*conv(16), *conv(32), *conv(64), {"layer": "global_avg_pool"}, {"layer": "dense", "units": 10}]}


def job(folder, way, delay_ms, seconds, arguments):
    echo = [] if WAYS[way] is None else [
        {"stage": "echo", "factor": 2 * SLOWER, "mode": "on_demand", "buffer": 2000, **WAYS[way]}]
    return {
        "pipeline": {"queue_items": 64, "prefetch": 2, "stages": [
            {"stage": "npy", "arrays": f"image={folder}/image.npy,label={folder}/label.npy"},
            {"stage": "repeat"}, {"stage": "delay", "milliseconds": delay_ms}, *echo,
            *augmentation(arguments.size, arguments.scaled), {"stage": "batch", "size": arguments.batch}, {"stage": "normalize"}]},
        "model": model(arguments.resnet),
        "optimizer": {"optimizer": "sgd"}, "schedule": {"schedule": "constant", "learning_rate": 0.01},
        "train": {"seconds": seconds},
        "output": {"dir": f"{folder}/out", "tensorboard": False, "checkpoint_every_epochs": 0}}


def train(folder, way, delay_ms, seconds, arguments):
    """The rows of a run's steps, and what the host spent."""
    path = pathlib.Path(folder, "job.json")
    path.write_text(json.dumps(job(folder, way, delay_ms, seconds, arguments)))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([arguments.echotrain, "train", str(path), "--overwrite"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    rows = [json.loads(line) for line in pathlib.Path(folder, "out", "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["kind"] == "step"]
    # Rows are written when their steps are found done, some at once: those that others were not written with stand for the time.
    rows = [row for before, row in zip(rows, rows[1:-4])
            if row["seconds"] - before["seconds"] > (row["busy_seconds"] - before["busy_seconds"]) / 2]
    return rows, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(folder, way, delay_ms, arguments):
    """Of the second half of a run, by which buffers and queues are full: examples/s, waiting share, host seconds. A run of
    too few steps is made again, for twice as long."""
    for seconds in (arguments.seconds, 2 * arguments.seconds, 4 * arguments.seconds):
        rows, cpu = train(folder, way, delay_ms, seconds, arguments)
        if len(rows) >= 4:
            break
    else:
        sys.exit(f"{way}: {len(rows)} steps in {seconds} s are too few to measure by; --seconds asks for longer runs")
    first, last = rows[len(rows) // 2], rows[-1]
    time = last["seconds"] - first["seconds"]
    busy = (last["busy_seconds"] - first["busy_seconds"]) / time
    return (last["examples"] - first["examples"]) / time, 1 - busy, cpu / last["examples"] * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--echotrain", default="build/tools/echotrain/echotrain")
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--scaled", action="store_true")
    parser.add_argument("--resnet", type=int, default=0, metavar="DEPTH")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--samples", type=int, default=8000)
    parser.add_argument("--json", metavar="FILE")
    record.add_option(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        random_images(f"{folder}/image.npy", arguments.samples, arguments.size)
        random_labels(f"{folder}/label.npy", arguments.samples)
        full, idle, _ = run(folder, "no echoing", 0, arguments)
        delay_ms = SLOWER / full * 1e3
        print(f"upstream ready: {full:.0f} examples/s; now {delay_ms:.2f} ms a sample, {SLOWER} times too slow")
        print("                examples/s  of ready  device waits  ms of CPU/example")
        measured = {way: [] for way in WAYS}
        for _ in range(arguments.rounds):
            for way in WAYS:
                measured[way].append(run(folder, way, delay_ms, arguments))
        rows = []
        for way, runs in measured.items():
            speed, waits, cpu = (statistics.median(column) for column in zip(*runs))
            print(f"{way:14}  {speed:10.0f}  {100 * speed / full:6.0f} %  {100 * waits:10.1f} %  {cpu:17.3f}", flush=True)
            rows.append([way, f"{speed:,.0f}", f"{100 * speed / full:.0f} %", f"{100 * waits:.1f} %", f"{cpu:.2f} ms"])
        if arguments.json:
            keys = ("examples_per_second", "waits", "cpu_ms_per_example")
            pathlib.Path(arguments.json).write_text(json.dumps({
                "benchmark": "device_echo", "slower": SLOWER, "ready": {"examples_per_second": full, "waits": idle},
                "arguments": {key: value for key, value in vars(arguments).items() if key not in ("echotrain", "json", "record")},
                "ways": {way: [dict(zip(keys, one)) for one in runs] for way, runs in measured.items()}}, indent=1))
        record.write(arguments.record, ["", "examples/s", "of a ready upstream", "device waits", "processor time per example"], rows,
                     f"Medians of {arguments.rounds} runs in turns.", echotrain=arguments.echotrain)


if __name__ == "__main__":
    main()
