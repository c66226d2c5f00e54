#!/usr/bin/env python3
"""Kills training at random moments (SIGKILL), resumes it until it is complete, and compares it with a run that nobody killed.

    kills.py ECHOTRAIN PAINTER [--kills 2000] [--seed 1] [--case NAME]

After each kill, no more than the steps since the newest checkpoint is lost, and no checkpoint is damaged. The completed run has the
rows of the other one, each step once, and its weights and optimizer state to the bit. PAINTER draws the data (samples/draw.cpp). One
case reads it from a server on the loopback. Where echoing depends on time, the other run repeats the decisions of the killed one.
"""

import argparse
import copy
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "remote"))
from faulty_server import Server  # noqa: E402  (its folder is known only now)

STEPS, EVERY = 40, 6  # steps of a run, and between two checkpoints
MOST = 5  # kills of one run, which then gets to its end
DECISIONS, ON_DEMAND = "decisions.jsonl", "on demand"
TIMES = ("time", "seconds", "_per_s", "wait", "busy")  # what differs from run to run


def stages(shards, *after_decoding, echo=None, augment=True):
    """A pipeline that takes about half a second for 20 batches."""
    out = [{"stage": "webdataset", "pattern": shards}, {"stage": "label", "classes": 10},
           {"stage": "decode", "channels": "gray"}, *after_decoding]
    if echo:
        out.append({"stage": "echo", "buffer": 50, **echo})
    if augment:
        out.append({"stage": "random_crop", "pad": 2})
    return out + [{"stage": "shuffle", "buffer": 60}, {"stage": "batch", "size": 10}, {"stage": "delay", "milliseconds": 15},
                  {"stage": "normalize"}]


def cases(root, address):
    """By name: the stages, and the rest of the job that differs. `address` is that of a server with the shards."""
    shards = f"{root}/data-*.tar.zst"
    kept = {"stage": "cache", "directory": str(root / "kept")}
    shared = {"stage": "cache", "shared": str(root / "shared")}
    echo, device = {"factor": 2.5}, {"factor": 2, "device": True}
    demand = {"factor": 3, "mode": "on_demand", "log": str(root / DECISIONS)}
    out = {
        "plain": (stages(shards), {}),
        # Parts that are smaller than a shard, so that some are read ahead.
        "remote": (stages(f"{address}/data-{{000000..000003}}.tar.zst", echo=echo), {"pipeline": {"remote_part_bytes": 4096}}),
        "echo": (stages(shards, echo=echo), {}),
        "device echo": (stages(shards, echo=device), {}),
        "cache of the run": (stages(shards, kept, echo=echo), {}),
        "shared cache": (stages(shards, shared, echo=echo), {}),
        ON_DEMAND: (stages(shards, echo=demand), {}),
    }
    for name in ("adam", "adamw", "adagrad", "rmsprop", "lion", "lamb", "lars"):
        out[name] = (stages(shards, echo=echo), {"optimizer": {"optimizer": name}})
    return out


def job(out, parts):
    stages_of, more = parts
    return {"seed": 3,
            "model": {"layers": [{"layer": "conv2d", "filters": 4, "stride": 2}, {"layer": "batch_norm", "activation": "relu"},
                                 {"layer": "flatten"}, {"layer": "dropout", "rate": 0.1}, {"layer": "dense", "units": 10}]},
            "optimizer": {"optimizer": "sgd", "momentum": 0.9}, "schedule": {"learning_rate": 0.01},
            "train": {"steps": STEPS}, "output": {"dir": str(out), "checkpoint_every_steps": EVERY}, **more,
            "pipeline": {"stages": stages_of, **more.get("pipeline", {})}}


class Run:
    """One run's folder and its job."""

    def __init__(self, program, root, name, parts, out=None):
        self.program, self.out = program, out or root / name
        self.path = root / f"{name}.json"
        self.path.write_text(json.dumps(job(self.out, parts)))

    def begin(self, *words):
        return subprocess.Popen([self.program, "train", self.path, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def rows(self):
        """The rows of steps that are complete, without what depends on time."""
        path = self.out / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        rows = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
        return [{key: value for key, value in row.items() if not any(part in key for part in TIMES)}
                for row in rows if row["kind"] == "step"]

    def newest(self):
        """The step of the newest checkpoint; 0: there is none."""
        manifests = [json.loads(path.read_text()) for path in self.out.glob("checkpoints/step-*[0-9]/manifest.json")]
        return max((manifest["step"] for manifest in manifests), default=0)

    def files(self):
        """The contents of the newest checkpoint's tensors."""
        folder = max(self.out.glob("checkpoints/step-*[0-9]"))
        return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def finish(run, *words):
    process = run.begin(*words)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, f"exit status {process.returncode}: {output}"
    return output


def check_output(output):
    assert "passed over" not in output, f"a checkpoint was damaged: {output}"


def kill_and_resume(run, dice, length, most):
    """Kills a run, resumes it and so on, until it gets to its end; returns the number of kills."""
    kills, newest = 0, 0
    while True:
        process = run.begin("--resume" if newest else "--overwrite")
        try:
            output, _ = process.communicate(timeout=dice.uniform(0.1, 0.9) * length if kills < most else 300)
            assert process.returncode == 0, f"exit status {process.returncode}: {output}"
            check_output(output)
            return kills
        except subprocess.TimeoutExpired:
            process.kill()
            check_output(process.communicate()[0])
        kills += 1
        was, newest = newest, run.newest()
        assert newest >= was, f"the checkpoint of step {was} is lost; the newest is of step {newest}"
        steps = [row["step"] for row in run.rows()]
        assert steps == list(range(1, len(steps) + 1)), f"rows are lost: {steps}"
        assert len(steps) <= newest + EVERY, f"{len(steps)} steps, and the newest checkpoint is of step {newest}"


def repeated(program, root, parts):
    """A run that repeats the decisions of the one on demand."""
    stages = copy.deepcopy(parts[0])
    for stage in stages:
        if stage.pop("log", None):
            stage["replay"] = str(root / DECISIONS)
    run = Run(program, root, "repeated", (stages, parts[1]))
    finish(run, "--overwrite")
    return run


def compare(run, reference):
    rows, expected = run.rows(), reference.rows()
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1)), [row["step"] for row in rows]
    for row, other in zip(rows, expected):
        assert row == other, f"{row}\n{other}"
    files, others = run.files(), reference.files()
    assert files.keys() == others.keys() and len(files) >= 2, (files.keys(), others.keys())
    for name in files:
        assert files[name] == others[name], f"'{name}' differs"


def write_data(program, painter, root):
    """Writes the shards of which `stages` reads."""
    subprocess.run([painter, root / "png", "200", "1"], check=True)
    subprocess.run([program, "pack", root / "png", root / "data", "--per-shard", "50"], check=True, stdout=subprocess.DEVNULL)


def chosen_of(known, name):
    """The case of this name, or all."""
    if name not in (None, *known):
        sys.exit(f"there is no case '{name}'; there are: {', '.join(known)}")
    return known if name is None else {name: known[name]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("painter")
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", help="only the case of this name")
    options = parser.parse_args()
    root = pathlib.Path(tempfile.mkdtemp(prefix="echotrain-kills-"))
    try:
        write_data(options.program, options.painter, root)
        server = Server({path.name: path.read_bytes() for path in root.glob("data-*.tar.zst")})
        all_cases = chosen_of(cases(root, f"http://127.0.0.1:{server.port}"), options.case)
        dice = random.Random(options.seed)
        references, lengths, counts = {}, {}, dict.fromkeys(all_cases, 0)
        most = max(1, min(MOST, options.kills // len(all_cases)))
        while sum(counts.values()) < options.kills:
            for name in dice.sample(list(all_cases), len(all_cases)):
                parts = all_cases[name]
                if sum(counts.values()) >= options.kills:
                    break
                if name not in references:
                    references[name] = Run(options.program, root, f"{name}-reference", parts)
                    began = time.time()
                    finish(references[name])
                    lengths[name] = time.time() - began
                run = Run(options.program, root, f"{name}-killed", parts)
                shutil.rmtree(run.out, ignore_errors=True)
                shutil.rmtree(root / "shared", ignore_errors=True)
                (root / DECISIONS).unlink(missing_ok=True)
                try:
                    counts[name] += kill_and_resume(run, dice, lengths[name], most)
                    compare(run, repeated(options.program, root, parts) if name == ON_DEMAND else references[name])
                except AssertionError as error:
                    sys.exit(f"kills: {name}, after {sum(counts.values())} kills, seed {options.seed}: {error}")
                print(f"{sum(counts.values())} of {options.kills} kills", end="\r" if sys.stdout.isatty() else "\n", flush=True)
        for name, count in counts.items():
            print(f"{name}: {count} kills")
        print(f"passed: {sum(counts.values())} kills, seed {options.seed}")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
