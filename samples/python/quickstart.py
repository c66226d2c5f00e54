"""Trains a small CNN on a slow source, without and with an echo node, each from several seeds, and compares.

    pip install .                              # from the repository, in a virtual environment
    python samples/python/quickstart.py

Images of ten kinds of waves are drawn and packed; reading one is then made to take four times as long as
training on it, as a slow network would. When a run first reaches the target depends on luck: the table shows medians over the
seeds, and how far they lie apart. (samples/quickstart.sh does the same through the C API, with a report.)
"""

import argparse
import pathlib
import statistics
import tempfile
import time

import echotrain as et
from waves import CLASSES, draw

BATCH, UPSTREAM_FACTOR = 64, 4


def pipeline(shards, delay_ms=0.0, echo=1.0, training=True, seed=1):
    stages = [et.stages.webdataset(shards)]
    if training:
        stages += [et.stages.repeat(), et.stages.delay(delay_ms)]
    stages += [et.stages.label(classes=CLASSES), et.stages.decode()]
    if training:
        stages += [et.stages.echo(echo, buffer=1000 if echo > 1 else 1), et.stages.random_crop(pad=2)]
    stages += [et.stages.batch(BATCH, drop_remainder=training), et.stages.normalize(mean=[0.5], std=[0.25])]
    return et.Pipeline(stages, seed=seed, queue_items=64, prefetch=2)


def trainer(device, seed=7):
    layers = et.layers
    model = et.Model([
        layers.conv2d(16, kernel=5, stride=2, bias=False), layers.batch_norm(activation="relu"),
        layers.conv2d(32, bias=False), layers.batch_norm(activation="relu"), layers.max_pool(),
        layers.flatten(), layers.dense(CLASSES)])
    return et.Trainer(model, et.optimizers.sgd(momentum=0.9, nesterov=True), learning_rate=0.02, seed=seed,
                      device=device)


def run(name, train, test, device, target, seconds, seed):
    """Trains until the target accuracy or the time is reached; returns (time, fresh examples, accuracy)."""
    t = trainer(device, seed)
    fresh = steps = 0
    clock, last = 0.0, 0.0
    for batch in train:
        t.step(batch)
        list(t.results(wait=steps == 0))  # raises if a loss is not finite
        if steps == 0:  # the driver compiled the kernels: not training time
            last = time.perf_counter()
        now = time.perf_counter()
        clock, last = clock + now - last, now
        steps, fresh = steps + 1, fresh + batch.fresh
        if steps % 20 == 0 or clock > seconds:
            accuracy = t.evaluate(test)["accuracy"]
            last = time.perf_counter()
            if accuracy >= target or clock > seconds:
                print(f"  {name}: {clock:5.1f} s  step {steps:4}  fresh {fresh:6}  test {100 * accuracy:5.1f} %")
                return clock, fresh, accuracy
    raise AssertionError("an endless pipeline ended")


def print_table(runs, target):
    """`runs`: for each name what run() gave for each seed."""
    print(f"\n{'run':14} {'median time':>12} {'(range)':>16} {'fresh examples':>15} {'reached':>8}")
    for name, rows in runs.items():
        times, fresh = [row[0] for row in rows], [row[1] for row in rows]
        reached = sum(row[2] >= target for row in rows)
        print(f"{name:14} {statistics.median(times):10.1f} s {f'{min(times):.1f} to {max(times):.1f} s':>16} "
              f"{statistics.median(fresh):15.0f} {f'{reached} of {len(rows)}':>8}")
    plain, echoed = runs.values()
    gains = sorted(a[0] / b[0] for a, b in zip(plain, echoed))
    print(f"speed-up: {statistics.median(gains):.1f} (median of {len(gains)} seeds; {gains[0]:.1f} to {gains[-1]:.1f})")
    if any(row[2] < target for rows in runs.values() for row in rows):
        print(f"Not every run reached {100 * target:.0f} % in time: the times of those that did not are when they were ended.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="number or part of a name; default: the first")
    parser.add_argument("--seconds", type=float, default=20, help="limit of each run")
    parser.add_argument("--target", type=float, default=0.95, help="test accuracy to reach")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each kind")
    arguments = parser.parse_args()
    et.prefer_wide_cpu_vectors()
    print("device:", et.Runtime(arguments.device).device.name)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for part, count, seed in (("train", 6000, 1), ("test", 1000, 2)):
            draw(root / "png" / part, count, seed)
            et.pack_folder(root / "png" / part, root / part)
        train, test = str(root / "train-*.tar.zst"), pipeline(str(root / "test-*.tar.zst"), training=False)

        t = trainer(arguments.device)  # how long does a step take when nothing holds it back?
        steps = iter(pipeline(train))
        t.step(next(steps))
        list(t.results(wait=True))
        begin = time.perf_counter()
        for _ in range(20):
            t.step(next(steps))
        list(t.results(wait=True))
        step_ms = 1000 * (time.perf_counter() - begin) / 20
        delay = UPSTREAM_FACTOR * step_ms / BATCH
        print(f"a step takes {step_ms:.1f} ms; reading one example is made to take {delay:.2f} ms")

        runs = {"without echo": [], "with echo": []}
        for seed in range(1, arguments.seeds + 1):  # in turn: what slows the machine meanwhile slows both
            for name, echo in zip(runs, (1, UPSTREAM_FACTOR)):
                with pipeline(train, delay, echo, seed=seed) as source:
                    runs[name].append(run(f"{name}, seed {seed}", source, test, arguments.device, arguments.target,
                                          arguments.seconds, seed))
    print_table(runs, arguments.target)


if __name__ == "__main__":
    main()
