#!/usr/bin/env python3
"""Downpour SGD on CIFAR-10 with several numbers of workers: accuracy against time and against updates, the rate tuned for each delay.

    python3 tests/bench/downpour_study.py DATA OUT [--build build-test] [--cores 0,1] [--seconds 120] [--workers 1 2 4]
            [--delays 0 4 eventual] [--rates 0.05 0.1 0.2] [--plot FILE] [--record FILE]

DATA is a folder with CIFAR-10's shards. The network is that of samples/jobs/cifar10_cnn.json, its optimizer plain SGD on one
shard, with weight decay. Every run has the same time, in which each worker takes as many steps of 32 images as it can; all
workers share the cores, so they show what a delay costs, and not what more machines would gain. A delay of 0 lets no worker push
twice before all others have pushed. One worker waits for nobody, so it runs with the last delay alone. Of each delay and number
of workers the rate with the best accuracy at the end is reported. Accuracy is that of the first 2,000 test images, on the
servers' weights; updates are those of all workers, which between evaluations are taken to be in proportion to the first worker's
steps.

Writes OUT/study.json with all curves, OUT/study.md with a table, and the plot, which needs Matplotlib: points are evaluations,
lines means of three. Runs that OUT/study.json has already are not made again.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import record

JOB = pathlib.Path(__file__).resolve().parents[2] / "samples/jobs/cifar10_cnn.json"
COLOURS = {"0": "#1f6fb2", "4": "#d9822b", "eventual": "#4a9c5d"}


def job_of(options, workers, delay, rate, meeting):
    job = json.loads(JOB.read_text())
    consistency = {"consistency": "eventual"} if delay == "eventual" else {"consistency": "bounded", "delay": int(delay)}
    job["vars"] = {"data": str(options.data), "out": ""}
    job["optimizer"] = {"optimizer": "sgd"}
    job["schedule"] = {"schedule": "constant", "learning_rate": rate}
    job["train"] = {"seconds": options.seconds}
    job["parallel"] = {"algorithm": "downpour", "size": workers, "server_optimizer": "sgd", "server_weight_decay": 0.0005,
                       "rendezvous": f"file:{meeting}", **consistency}
    next(stage for stage in job["pipeline"]["stages"] if stage["stage"] == "batch")["size"] = 32
    stages = job["evaluation"]["pipeline"]["stages"]
    stages.insert(1, {"stage": "take", "count": 2000})
    job["evaluation"].update(every_epochs=0, every_steps=100 // workers)
    return job


def train(options, workers, delay, rate):
    """The curve of the first worker's evaluations, and the updates of all workers."""
    environment = dict(os.environ, LP_NUM_THREADS=str(max(len(options.cores.split(",")) // workers, 1)))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "meet").mkdir()
        (folder / "job.json").write_text(json.dumps(job_of(options, workers, delay, rate, folder / "meet")))

        def begin(command, *words):
            command = ["taskset", "-c", options.cores, options.build / "tools/echotrain/echotrain", command, folder / "job.json", *words]
            return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

        processes = [begin("parameter-server")]
        for rank in range(workers):
            processes.append(begin("train", "--set", f"parallel.rank={rank}", "--set", f"out={folder / str(rank)}"))
        said = [process.communicate() for process in processes]
        if any(process.returncode for process in processes):
            sys.exit(f"workers {workers}, delay {delay}, rate {rate}: a process failed:\n" + "\n".join(errors for _, errors in said))
        rows = [json.loads(line) for line in (folder / "0/metrics.jsonl").read_text().splitlines()]
    updates = int(re.search("([0-9]+) updates?", " ".join(said[0])).group(1))
    last_step = max(row["step"] for row in rows if row["kind"] == "step")
    curve = [{"seconds": row["seconds"], "updates": round(updates * row["step"] / last_step), "accuracy": row["eval_accuracy"]}
             for row in rows if row["kind"] == "evaluation"]
    return {"workers": workers, "delay": delay, "rate": rate, "seconds": options.seconds, "updates": updates, "curve": curve}


def accuracy(run):
    """At the end: the mean of the last three evaluations, of which a single one is luck."""
    last = [point["accuracy"] for point in run["curve"][-3:]]
    return sum(last) / len(last)


def best_runs(runs):
    keys = dict.fromkeys((run["workers"], run["delay"]) for run in runs)
    return [max((run for run in runs if (run["workers"], run["delay"]) == key), key=accuracy) for key in keys]


def table(runs):
    rates = sorted({run["rate"] for run in runs})
    rows = [["workers", "delay", "updates", *(f"accuracy at {rate:g}" for rate in rates)]]
    for best in best_runs(runs):
        of_rate = {run["rate"]: run for run in runs if (run["workers"], run["delay"]) == (best["workers"], best["delay"])}
        cells = [f"{100 * accuracy(of_rate[rate]):.1f} %" if rate in of_rate else "" for rate in rates]
        cells[rates.index(best["rate"])] = f"**{cells[rates.index(best['rate'])]}**"
        rows.append([str(best["workers"]), best["delay"], f"{best['updates']:,}", *cells])
    return rows


def smoothed(curve):
    """In percent, each the mean of itself and its neighbours."""
    values = [100 * point["accuracy"] for point in curve]
    return [sum(near) / len(near) for near in (values[max(i - 1, 0):i + 2] for i in range(len(values)))]


def plot(runs, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#e5e7eb"})
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
    widths = {count: 1 + 0.7 * i for i, count in enumerate(sorted({run["workers"] for run in runs}))}
    for run in best_runs(runs):
        several = run["workers"] > 1
        label = f"{run['workers']} workers, delay {run['delay']}" if several else "1 worker"
        colour = COLOURS.get(run["delay"], "#6b7280") if several else "#111827"
        for axes, along in zip(panels, ("seconds", "updates")):
            places = [point[along] for point in run["curve"]]
            axes.plot(places, [100 * point["accuracy"] for point in run["curve"]], ".", markersize=3, alpha=0.3, color=colour)
            axes.plot(places, smoothed(run["curve"]), color=colour, linewidth=widths[run["workers"]],
                      linestyle="-" if run["workers"] != 2 else (0, (4, 1.5)), label=f"{label} (rate {run['rate']:g})")
    panels[0].set(xlabel="seconds of training", ylabel="test accuracy, %")
    panels[1].set(xlabel="updates of the servers' weights")
    panels[1].legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=160)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build-test"))
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--delays", nargs="+", default=["0", "4", "eventual"])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.05, 0.1, 0.2])
    parser.add_argument("--plot")
    record.add_option(parser)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "study.json"
    runs = json.loads(kept.read_text()) if kept.exists() else []
    if options.record and runs:
        parser.error(f"--record is for what one session measured, and {kept} has runs already: name another OUT")
    made = {(run["workers"], run["delay"], run["rate"], run["seconds"]) for run in runs}
    wanted = [(workers, delay, rate) for workers in options.workers for delay in options.delays for rate in options.rates
              if workers > 1 or delay == options.delays[-1]]
    for number, key in enumerate(wanted, 1):
        if (*key, options.seconds) in made:
            continue
        runs.append(train(options, *key))
        print(f"{number} of {len(wanted)}: workers {key[0]}, delay {key[1]}, rate {key[2]:g}: {runs[-1]['updates']} updates, "
              f"{100 * accuracy(runs[-1]):.1f} %", flush=True)
        kept.write_text(json.dumps(runs, indent=1))
    heads, *rows = table(runs)
    (options.out / "study.md").write_text(record.markdown(heads, rows))
    print(record.markdown(heads, rows), end="")
    record.write(options.record, heads, rows, "One seed.", echotrain=options.build / "tools/echotrain/echotrain")
    if options.plot:
        plot(runs, options.plot)


if __name__ == "__main__":
    main()
