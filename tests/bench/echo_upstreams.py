#!/usr/bin/env python3
"""The echo node's modes at upstreams over a network that are steady, bursty, drifting, and faster than the training step.

    python3 tests/bench/echo_upstreams.py [--build build-test] [--profiles steady,bursty,drifting,ready] [--ways none,fixed,on_demand,auto]
                                          [--seeds 1,2,3] [--slower 7] [--cap 8] [--target 0.97] [--json FILE] [--record FILE]

samples/jobs/quickstart.json (a small CNN on drawn digits, 64 examples a step) reads its shards from a web server on this machine, through a
proxy that limits its rate (shaped_server.py). The training step is timed first, with data that lies ready; then the link is made to
deliver --slower times fewer examples than the device trains on. (Where the machine's other work changes meanwhile, another number of
times: 'given/fresh' shows what it came to.) Steady: at an even rate. Bursty: four times the rate for half a second, then
nothing for one and a half. Drifting: between a most and --swing times less, over 8 seconds; its slow stretches need more repeats than the
cap has, which what was saved up before and the credit behind the cap bridge, so on average the cap suffices. Ready: twice what the
device trains on, where nothing may change; those runs are as long as the others and their examples a second count.

Of each run, in turns over the seeds: the seconds to the target (evaluations apart), the share of the time in which the device had
nothing to do, over all and behind the first 3 seconds, the factor of `auto` over the second half of its decisions, and the processor time
that an example took with all that the process did, which tells a cost where the machine is too busy for rates to be compared. Other
work on the machine counts as the device's waiting where it keeps the host from feeding it: the line 'ready, none' shows how much.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import record
from shaped_server import Profile, ShapedProxy, WebServer

JOB = pathlib.Path(__file__).resolve().parents[2] / "samples/jobs/quickstart.json"
FIRST_SECONDS = 3
WAYS, PROFILES = ("none", "fixed", "on_demand", "auto"), ("steady", "bursty", "drifting", "ready")


class Run:
    """What metrics.jsonl says of a run."""

    def __init__(self, rows, target, decisions, cpu):
        steps = [row for row in rows if row["kind"] == "step"]
        tests = [row for row in rows if row["kind"] == "evaluation"]
        self.accuracy = tests[-1]["eval_accuracy"] if tests else 0
        self.to_target = next((row["seconds"] for row in tests if row["eval_accuracy"] >= target), None)
        self.seconds, self.steps = steps[-1]["seconds"], len(steps)
        self.rate = (steps[-1]["examples"] - steps[0]["examples"]) / (steps[-1]["seconds"] - steps[0]["seconds"])
        self.cpu_ms = 1e3 * cpu / steps[-1]["examples"]
        self.ratio = steps[-1]["examples"] / max(steps[-1]["fresh"], 1)
        self.waits = wait_share(steps, 0)
        self.waits_later = wait_share(steps, FIRST_SECONDS)
        factors = [row["factor"] for row in decisions if "factor" in row]
        self.factors = factors[len(factors) // 2:]

    def json(self):
        return {key: value for key, value in vars(self).items() if key != "factors"} | {
            "factor_least": min(self.factors, default=None), "factor_most": max(self.factors, default=None)}


def wait_share(steps, behind):
    later = [row for row in steps if row["seconds"] >= behind]
    if len(later) < 2:
        return None
    first, last = later[0], later[-1]
    return max(0, 1 - (last["busy_seconds"] - first["busy_seconds"]) / (last["seconds"] - first["seconds"]))


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        build = pathlib.Path(options.build)
        self.echotrain, draw = build / "tools/echotrain/echotrain", build / "samples/draw"
        for part, count, seed in (("train", options.samples, 1), ("test", 1000, 2)):
            png = self.folder / "png" / part
            subprocess.run([draw, png, str(count), str(seed)], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([self.echotrain, "pack", png, self.folder / part, "--per-shard", str(options.per_shard)],
                           check=True, stdout=subprocess.DEVNULL)
        self.shards = len(list(self.folder.glob("train-*.tar.zst")))
        self.sample_bytes = sum(file.stat().st_size for file in self.folder.glob("train-*.tar.zst")) / options.samples

    def run(self, source, way, seed, seconds, target):
        out, log = self.folder / "run", self.folder / "decisions.jsonl"
        log.unlink(missing_ok=True)
        pattern = f"{source}/train-{{000000..{self.shards - 1:06d}}}.tar.zst"
        echo = {"none": {"factor": 1, "buffer": 1}, "fixed": {"factor": self.options.slower}}.get(
            way, {"mode": way, "factor": self.options.cap, "log": str(log)})
        if "mode" in echo:
            echo.update(settings(self.options.echo))
        job = json.loads(JOB.read_text())
        for key in ("queue_items", "prefetch"):  # short queues are for the quickstart's delay
            del job["pipeline"][key]
        job["pipeline"].update(settings(self.options.set))
        stages = job["pipeline"]["stages"]
        stages[0]["pattern"] = pattern
        stages[5].update(echo)
        del stages[2]  # the delay that stands for a slow upstream
        job["output"]["tensorboard"] = False
        job["evaluation"]["target_accuracy"] = target
        job["evaluation"]["every_steps"] = 40 if target else 0
        job["train"] = {"seconds": seconds}
        path = self.folder / "job.json"
        path.write_text(json.dumps(job))
        words = ["--set", f"data={self.folder}", "--set", f"out={out}", "--set", f"seed={seed}"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([self.echotrain, "train", path, "--overwrite", *words], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{way}: echotrain train ended with {done.returncode}:\n{done.stderr[-2000:]}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        decisions = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return Run(rows, target or 2, decisions, cpu)

    def measured(self, server, profile, way, seed):
        """A run at a profile: to the target, or where the upstream is fast enough for some seconds."""
        target = 0 if profile.name == "ready" else self.options.target
        seconds = self.options.ready_seconds if profile.name == "ready" else self.options.seconds
        with ShapedProxy(server.port, profile) as proxy:
            return self.run(proxy.url, way, seed, seconds, target)


def settings(words):
    """Of KEY=JSON, ..."""
    return {key: json.loads(value) for key, value in (word.split("=", 1) for word in words)}


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def shown(value, form, factor=1):
    return "-" if value is None else format(value * factor, form)


def row_of(profile, way, runs, plain):
    """Cells of a table, and of the docs' line."""
    factors = [factor for run in runs for factor in run.factors]
    gain = None
    if profile == "ready":
        gain = median([run.rate / other.rate for run, other in zip(runs, plain)]) if plain else None
    elif plain and all(run.to_target for run in runs) and all(run.to_target for run in plain):
        gain = median([other.to_target / run.to_target for run, other in zip(runs, plain)])
    times = [run.to_target for run in runs]
    return [profile, way, shown(median(times) if all(times) else None, ".1f"),
            shown(gain, ".2f"), shown(median([run.waits for run in runs]), ".1f", 100),
            shown(median([run.waits_later for run in runs]), ".1f", 100),
            shown(median([run.ratio for run in runs]), ".2f"),
            f"{min(factors):.2f} to {max(factors):.2f}" if factors and way == "auto" else "-",
            shown(median([run.rate for run in runs]), ".0f"), shown(median([run.cpu_ms for run in runs]), ".2f")]


HEADS = ["upstream", "mode", "s to target", "over none", "waits %", f"behind {FIRST_SECONDS} s %", "given/fresh", "factor", "examples/s", "CPU ms/example"]


def profiles_of(options, rate):
    """By name; `rate` of the link in bytes a second when it is --slower times too slow."""
    latency = options.latency_ms / 1e3
    return {"steady": Profile.steady(rate, latency=latency), "bursty": Profile.bursty(rate, latency=latency),
            "drifting": Profile.drifting(rate, options.swing, latency=latency),
            "ready": Profile("ready", 2 * options.slower * rate, burst_bytes=1 << 20)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build-test")
    parser.add_argument("--profiles", default=",".join(PROFILES))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--slower", type=float, default=7)
    parser.add_argument("--cap", type=float, default=8, help="'factor' of on_demand and auto")
    parser.add_argument("--swing", type=float, default=3, help="of the drifting upstream: its most over its least")
    parser.add_argument("--latency-ms", type=float, default=5)
    parser.add_argument("--target", type=float, default=0.97)
    parser.add_argument("--seconds", type=float, default=100, help="limit of each run")
    parser.add_argument("--ready-seconds", type=float, default=8)
    parser.add_argument("--calibration-seconds", type=float, default=5)
    parser.add_argument("--samples", type=int, default=8000)
    parser.add_argument("--per-shard", type=int, default=200, help="samples in a shard; one is fetched as a whole")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="of the pipeline")
    parser.add_argument("--echo", action="append", default=[], metavar="KEY=JSON", help="of the echo stage, on_demand and auto")
    parser.add_argument("--json", metavar="FILE")
    record.add_option(parser)
    return parser.parse_args()


def calibrated(bench):
    """The training step with data at hand: the rate of a link that delivers --slower times fewer examples, in bytes a second."""
    full = bench.run(bench.folder, "none", 1, bench.options.calibration_seconds, 0)
    rate = full.rate / bench.options.slower * bench.sample_bytes
    print(f"data at hand: {full.rate:.0f} examples/s, the device waits {100 * full.waits:.1f} %; the link {rate / 1e3:.1f} kB/s; "
          f"load {os.getloadavg()[0]:.1f}", flush=True)
    return rate


def measured_profile(bench, server, name):
    """Runs by way, the seeds in turns. The step is timed anew before each turn: other work on the machine comes and goes."""
    options = bench.options
    runs = {way: [] for way in options.ways.split(",")}
    for seed in map(int, options.seeds.split(",")):
        profile = profiles_of(options, calibrated(bench))[name]
        for way in runs:
            runs[way].append(bench.measured(server, profile, way, seed))
            cells = row_of(name, way, runs[way][-1:], runs.get("none", [])[-1:])
            print("  " + ", ".join(f"{head} {cell}" for head, cell in zip(HEADS, cells)) + f" (seed {seed})", flush=True)
    return runs


def print_table(rows):
    print("\n" + record.markdown(HEADS, rows))
    print(f"load {os.getloadavg()[0]:.1f} at the end, {time.strftime('%Y-%m-%d %H:%M')}")


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        with WebServer(folder) as server:
            print(f"{server.kind}; {bench.sample_bytes:.0f} bytes a sample, {options.per_shard} samples a shard", flush=True)
            table = {name: measured_profile(bench, server, name) for name in options.profiles.split(",")}
        rows = [row_of(profile, way, of_way, runs.get("none")) for profile, runs in table.items() for way, of_way in runs.items()]
        print_table(rows)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps({
                "benchmark": "echo_upstreams", "arguments": {key: value for key, value in vars(options).items() if key not in ("json", "record")},
                "runs": {profile: {way: [run.json() for run in of_way] for way, of_way in runs.items()}
                         for profile, runs in table.items()}}, indent=1) + "\n")
        record.write(options.record, HEADS, rows, f"Medians of the seeds {options.seeds}, in turns.", echotrain=bench.echotrain)


if __name__ == "__main__":
    main()
