#!/usr/bin/env python3
"""Every way of training on several ranks beside one device: an MLP, a ResNet-8 and a small Transformer, from the same weights on
the same samples.

    python3 tests/golden/ranks.py --program build-test/tools/echotrain/echotrain [--steps 100] [--model mlp ...] [--way data2 ...]

Ranks are processes of this machine that `echotrain launch` starts, and share the batch of the one device. Two figures tell how
far a run is from that of one device: losses, relative to the largest difference between two losses of the one run; and parameters
after the last step, relative to how far training has moved them, so that training that goes nowhere equals nothing. Both have to
be below --limit. Fails too where a run does not learn.
"""

import argparse
import functools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from ddp import distance, parameters

BATCH = 32

# The first layer and the last of a Transformer share a table, so no cut is between them; with a table each it is cut.
TIED, UNTIED = "transformer", "transformer_untied"

# name: (ranks, the section `parallel`, models that it is not for)
WAYS = {
    "data2": (2, {}, ()),
    "data4": (4, {}, ()),
    "zero1": (2, {"zero_stage": 1}, ()),
    "zero2": (4, {"zero_stage": 2}, ("resnet8",)),  # synchronised batch normalisation is not for it
    "pipeline2": (2, {"mesh": {"pipeline": 2}}, (TIED,)),
    "pipeline3": (3, {"mesh": {"pipeline": 3}, "schedule": "gpipe"}, (TIED,)),
    "tensor2": (2, {"mesh": {"tensor": 2}}, ("resnet8",)),  # convolutions are not split
    "data2_pipeline2": (4, {"mesh": {"data": 2, "pipeline": 2}}, ("resnet8", TIED)),
    "data2_tensor2": (4, {"mesh": {"data": 2, "tensor": 2}}, ("resnet8",)),
    "pipeline2_tensor2": (4, {"mesh": {"pipeline": 2, "tensor": 2}}, ("resnet8", TIED)),
    "data2_pipeline2_tensor2": (8, {"mesh": {"data": 2, "pipeline": 2, "tensor": 2}}, ("resnet8", TIED)),
}


def drawn(label, rng, pixels, contrast):
    """A bar whose place tells the class, in noise."""
    return bytes(rng.randrange(160) + (contrast if i * 10 // pixels == label else 0) for i in range(pixels))


def images(folder, contrast):
    rng = random.Random(1)
    path = folder / "images.bin"
    with open(path, "wb") as file:
        for number in range(640):
            label = rng.randrange(10)
            file.write(bytes([label]) + drawn(label, rng, 1024, contrast) * 3)
    return [{"stage": "cifar", "pattern": str(path)}, {"stage": "normalize", "mean": [0.4], "std": [0.25]}]


def text(folder):
    """Each symbol follows from the two before it, but for one in ten."""
    rng, symbols = random.Random(2), [0, 1]
    while len(symbols) < 60_000:
        symbols.append(rng.randrange(16) if rng.random() < 0.1 else (3 * symbols[-1] + symbols[-2]) % 16)
    path = folder / "text.txt"
    path.write_text("".join(chr(ord("a") + symbol) for symbol in symbols))
    return [{"stage": "text_windows", "pattern": str(path), "tokens": "characters", "length": 32}]


MODELS = {
    "mlp": (functools.partial(images, contrast=40), {"model": "mlp", "hidden": [128, 128]}, 0.001),
    "resnet8": (functools.partial(images, contrast=95), {"model": "cifar_resnet", "depth": 8}, 0.005),
    "transformer": (text, {"model": "transformer_decoder", "vocab_size": 16, "blocks": 2, "width": 64, "heads": 4, "dropout": 0}, 0.05),
}


MODELS[UNTIED] = (text, {**MODELS[TIED][1], "tie_embeddings": False}, 0.02)


def is_for(way, model):
    _, parallel, without = WAYS[way]
    return model not in without and (model != UNTIED or "pipeline" in parallel.get("mesh", {}))


class Runs:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)

    def job(self, model):
        data, network, rate = MODELS[model]
        batch = {"stage": "batch", "size": BATCH}
        return {"seed": 3, "pipeline": {"stages": [*data(self.folder), batch]},
                "model": network,
                "optimizer": {"optimizer": "sgd", "momentum": 0.9},
                "schedule": {"schedule": "constant", "learning_rate": rate}, "train": {"steps": self.options.steps},
                "output": {"tensorboard": False}}

    def run(self, job, ranks, name, steps=None):
        """The losses of all steps, and the parameters at the end."""
        path, out = self.folder / "job.json", self.folder / name
        job = {**job, "output": {**job["output"], "dir": str(out)}, "train": {"steps": steps or self.options.steps}}
        path.write_text(json.dumps(job))
        command = [self.options.program, "train", path] if ranks == 1 else [self.options.program, "launch", "-n", str(ranks), path]
        environment = dict(os.environ, LP_NUM_THREADS=str(max(len(os.sched_getaffinity(0)) // ranks, 1)))
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{name}: {done.stderr}")
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        newest = max((out / "checkpoints").glob("step-*"), key=lambda folder: int(folder.name[5:]))
        return [row["loss"] for row in rows if row["kind"] == "step"], parameters(newest / "weights.safetensors")

    def compare(self, model, ways):
        job = self.job(model)
        before = self.run(job, 1, f"{model}-first", steps=1)[1]
        losses, wanted = self.run(job, 1, f"{model}-one")
        moved, span = distance(wanted, before), max(losses) - min(losses)
        print(f"{model}: loss {losses[0]:.3f} to {losses[-1]:.3f} in {len(losses)} steps on one device", flush=True)
        ok = losses[-1] < 0.85 * losses[0]
        if not ok:
            print(f"{model}: WRONG: it does not learn")
        for way in ways:
            if not is_for(way, model):
                continue
            ok = self.compare_way(model, way, job, losses, wanted, moved, span) and ok
        return ok

    def compare_way(self, model, way, job, losses, wanted, moved, span):
        ranks, parallel, _ = WAYS[way]
        mesh = parallel.get("mesh", {})
        replicas = mesh.get("data", 1 if mesh else ranks)
        parallel = dict(parallel)
        if model == "resnet8":  # batch normalisation is of the whole batch on one device
            parallel.update({"micro_batches": 1} if "pipeline" in mesh else {"sync_batch_norm": True})
        stages = job["pipeline"]["stages"]
        shared = {**job, "parallel": parallel, "pipeline": {"stages": [*stages[:-1], {**stages[-1], "size": BATCH // replicas}]}}
        of_losses, of_parameters = self.run(shared, ranks, f"{model}-{way}")
        if len(of_losses) != len(losses):
            sys.exit(f"{model}, {way}: {len(of_losses)} losses, not {len(losses)}")
        apart = distance(of_parameters, wanted) / moved
        worst = max(abs(a - b) for a, b in zip(of_losses, losses)) / span
        good = apart < self.options.limit and worst < self.options.limit
        print(f"  {way:23} losses apart by {worst:.1e} at most, parameters by {apart:.1e}{'' if good else ': WRONG'}", flush=True)
        return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="echotrain")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--limit", type=float, default=2e-2)
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--way", nargs="+", choices=WAYS, default=list(WAYS))
    options = parser.parse_args()
    options.program = os.path.realpath(options.program)
    with tempfile.TemporaryDirectory() as folder:
        results = [Runs(options, folder).compare(model, options.way) for model in options.model]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
