"""Downpour SGD on CIFAR-10 with several numbers of workers: accuracy against time and against updates, the rate tuned for each delay.

    python3 tests/bench/downpour_study.py build/tools/echotrain/echotrain DATA OUT [--seconds 600] [--workers 1 2 4]
            [--delays 0 4 eventual] [--rates 0.02 0.05 0.1] [--job samples/jobs/cifar10_cnn.json] [--set KEY=VALUE ...]

DATA is the folder with CIFAR-10's shards. Every run has the same time, in which each worker takes as many steps as it can; workers on one
machine share its cores. Each delay and number of workers is run with all rates, and the best one by its accuracy at the end is
reported. Writes OUT/study.json with all curves, and OUT/study.md with a table.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def settings(options, out, rate, delay, meeting, workers):
    consistency = {"consistency": "eventual"} if delay == "eventual" else {"consistency": "bounded", "delay": int(delay)}
    parallel = {"algorithm": "downpour", "servers": 1, "size": workers, "server_optimizer": "sgd", "server_weight_decay": 0.0005,
                "rendezvous": f"file:{meeting}", **consistency}
    pairs = {"data": options.data, "out": out, "train.steps": 0, "train.seconds": options.seconds,
             "optimizer": json.dumps({"optimizer": "sgd"}), "parallel": json.dumps(parallel),
             "schedule": json.dumps({"learning_rate": rate}), "output.tensorboard": "false"}
    words = [f"{key}={value}" for key, value in pairs.items()] + options.set
    return [word for text in words for word in ("--set", text)]


def train(options, workers, delay, rate):
    """The curve of the first worker's evaluations, and the updates of all workers."""
    name = options.out / f"workers{workers}-delay{delay}-rate{rate}"
    shutil.rmtree(name, ignore_errors=True)
    with tempfile.TemporaryDirectory() as meeting:
        def begin(command, out, *more):
            words = [options.program, command, options.job, *settings(options, out, rate, delay, meeting, workers), *more]
            return subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

        server = begin("serve", "")
        # The first to come has the number 0: it evaluates.
        processes = [begin("train", name if i == 0 else "", "--set", f"parallel.rank={i}") for i in range(workers)]
        for process in processes:
            process.communicate()
        said, _ = server.communicate()
    if server.returncode or any(process.returncode for process in processes):
        raise SystemExit(f"{name}: a process failed; run its command by hand to see why: {said}")
    rows = [json.loads(line) for line in (name / "metrics.jsonl").read_text().splitlines()]
    curve = [{"seconds": row["seconds"], "steps": row["step"], "accuracy": row["eval_accuracy"]}
             for row in rows if row["kind"] == "evaluation"]
    return {"workers": workers, "delay": delay, "rate": rate, "updates": int(re.search("([0-9]+) updates?", said).group(1)),
            "curve": curve}


def table(runs):
    lines = ["| workers | delay | best rate | updates | test accuracy |", "|---|---|---|---|---|"]
    for key in dict.fromkeys((run["workers"], run["delay"]) for run in runs):
        best = max((run for run in runs if (run["workers"], run["delay"]) == key), key=lambda run: run["curve"][-1]["accuracy"])
        lines.append(f"| {key[0]} | {key[1]} | {best['rate']} | {best['updates']} | {100 * best['curve'][-1]['accuracy']:.1f} % |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--delays", nargs="+", default=["0", "4", "eventual"])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.02, 0.05, 0.1])
    parser.add_argument("--job", type=pathlib.Path, default=HERE.parents[1] / "samples/jobs/cifar10_cnn.json")
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    runs = []
    for workers in options.workers:
        for delay in options.delays:
            for rate in options.rates:
                runs.append(train(options, workers, delay, rate))
                (options.out / "study.json").write_text(json.dumps(runs, indent=1))
                (options.out / "study.md").write_text(table(runs))
    print(table(runs), end="")


if __name__ == "__main__":
    main()
