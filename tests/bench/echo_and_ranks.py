#!/usr/bin/env python3
"""Echo beside data parallelism at the same hardware: what brings a job that waits for its data to its target sooner?

    python3 tests/bench/echo_and_ranks.py [--build build-test] [--cores 0,1] [--seeds 3] [--slower 4] [--target 0.95]
                                          [--json FILE] [--plot FILE] [--record FILE]

samples/jobs/quickstart.json (a small CNN on drawn digits, 64 examples a step) trains on two cores: by one rank with two threads, or by two
ranks with a thread and half of the examples each. Reading an example is made to take so long that it takes --slower times as long to read
a step's examples as one rank takes to train on them. The store is either one for each rank, as disks of their own are: two ranks
read twice as much; or one that they share, as a network or a bucket with a limit is: each gets half. Each with an echo node of
the factor --slower, and without. Prints the time to the target accuracy, evaluations apart: medians over the seeds, in turns.
--plot needs Matplotlib.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import record

JOB = pathlib.Path(__file__).resolve().parents[2] / "samples/jobs/quickstart.json"
BATCH = 64
WAYS = [(ranks, store, echo) for store in ("own", "shared") for ranks in (1, 2) for echo in (False, True)
        if not (ranks == 1 and store == "shared")]  # one rank has the store to itself


def name(way):
    ranks, store, echo = way
    who = "one rank" if ranks == 1 else f"two ranks, {'a store each' if store == 'own' else 'one store'}"
    return f"{who}, {'echoing' if echo else 'no echoing'}"


class Study:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        build = pathlib.Path(options.build)
        self.echotrain, draw = build / "tools/echotrain/echotrain", build / "samples/draw"
        for part, count, seed in (("train", 6000, 1), ("test", 1000, 2)):
            png = self.folder / "png" / part
            subprocess.run([draw, png, str(count), str(seed)], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([self.echotrain, "pack", png, self.folder / part], check=True, stdout=subprocess.DEVNULL)

    def rows(self, ranks, sets):
        """The rows of metrics.jsonl that a run leaves."""
        out = self.folder / "run"
        settings = {"data": self.folder, "out": out, "output.tensorboard": "false", **sets}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        command = ["train"] if ranks == 1 else ["launch", "-n", str(ranks)]
        environment = dict(os.environ, LP_NUM_THREADS=str(2 // ranks))
        subprocess.run(["taskset", "-c", self.options.cores, self.echotrain, *command, JOB, "--overwrite", *words],
                       check=True, env=environment, stdout=subprocess.DEVNULL)
        return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]

    def step_ms(self):
        """Of one rank, with data at hand."""
        steps = [row for row in self.rows(1, {"train.steps": 60, "evaluation.every_steps": 0}) if row["kind"] == "step"]
        return 1e3 * (steps[-1]["seconds"] - steps[19]["seconds"]) / (steps[-1]["step"] - steps[19]["step"])

    def time_to_target(self, way, delay_ms, seed):
        ranks, store, echo = way
        rows = self.rows(ranks, {
            "seed": seed, "train.seconds": self.options.seconds, "evaluation.target_accuracy": self.options.target,
            "pipeline.stages.2.milliseconds": delay_ms * (ranks if store == "shared" else 1),
            "pipeline.stages.5.factor": self.options.slower if echo else 1,
            "pipeline.stages.8.size": BATCH // ranks})
        last = [row for row in rows if row["kind"] == "evaluation"][-1]
        if last["eval_accuracy"] < self.options.target:
            sys.exit(f"{name(way)}, seed {seed}: {last['eval_accuracy']:.3f} after {last['seconds']:.0f} s; give it more --seconds")
        return last["seconds"]


HEADS = ["way", "seconds to the target", "speed-up over one rank without echoing"]


def table(times):
    plain = times[name(WAYS[0])]
    spread = lambda values: f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
    return [[way, spread(of_way), spread([a / b for a, b in zip(plain, of_way)])] for way, of_way in times.items()]


def plot(times, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    groups = {"one rank": WAYS[:2], "two ranks,\na store each": WAYS[2:4], "two ranks,\none store": WAYS[4:]}
    figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
    for offset, label, colour in ((-0.19, "no echoing", "#9aa5b1"), (0.19, "echoing", "#1f6fb2")):
        of_label = [times[name(ways[label == "echoing"])] for ways in groups.values()]
        heights = [statistics.median(t) for t in of_label]
        spread = [[h - min(t) for h, t in zip(heights, of_label)], [max(t) - h for h, t in zip(heights, of_label)]]
        bars = axes.bar([i + offset for i in range(3)], heights, 0.36, label=label, color=colour, yerr=spread, ecolor="#444444", capsize=3)
        axes.bar_label(bars, [f"{h:.1f}" for h in heights], label_type="center", color="white" if label == "echoing" else "black")
    axes.set_xticks(range(3), groups)
    axes.set_ylabel("seconds to the target accuracy")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=160)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build-test")
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--slower", type=int, default=4)
    parser.add_argument("--target", type=float, default=0.95)
    parser.add_argument("--seconds", type=float, default=120, help="limit of each run")
    parser.add_argument("--json")
    parser.add_argument("--plot")
    record.add_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        study = Study(options, folder)
        step_ms = study.step_ms()
        delay_ms = options.slower * step_ms / BATCH
        print(f"a step of one rank takes {step_ms:.1f} ms; reading an example is made to take {delay_ms:.2f} ms")
        times = {name(way): [] for way in WAYS}
        for seed in range(1, options.seeds + 1):
            for way in WAYS:
                times[name(way)].append(study.time_to_target(way, delay_ms, seed))
                print(f"  seed {seed}, {name(way)}: {times[name(way)][-1]:.1f} s", flush=True)
    rows = table(times)
    print(record.markdown(HEADS, rows), end="")
    record.write(options.record, HEADS, rows, f"Medians of {options.seeds} seeds in turns, least and greatest in brackets.",
                 echotrain=study.echotrain)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"step_ms": step_ms, "delay_ms": delay_ms, "seconds": times}, indent=1) + "\n")
    if options.plot:
        plot(times, options.plot)


if __name__ == "__main__":
    main()
