"""A factorisation machine (Rendle 2010) on clicks, whose table of features does not fit the device.

    pip install . && python samples/python/factorization_machine.py     # from the repository, in a virtual environment

The clicks are made up here: each has a user, an item and a page, hashed into four million features, and comes from a machine
that the trained one is to find. The device may use a fifth of the memory that the table takes. With "sparse": true the table lies on
two parameter servers, and each step fetches the rows that its batch names. The result is judged by the area under the ROC curve,
beside that of the machine which made the clicks.
"""

import argparse
import json
import pathlib
import struct
import sys
import tempfile

import numpy as np

import echotrain as et

FEATURES, FACTORS = 4_000_000, 8
KINDS = {"user": 200, "item": 150, "page": 20}  # how many there are of each field
ENOUGH = {"samples": 40_000, "epochs": 5}  # to find the machine; with fewer the result is shown and not judged
LEAST_SAMPLES = 1_000  # for an area under the curve
TABLE_BYTES = FEATURES * (1 + FACTORS) * 4
LIMIT_BYTES = TABLE_BYTES // 5


def scores(rows):
    """The machine's, of rows [N, fields, 1 + FACTORS]: a weight each, and factors."""
    factors = rows[..., 1:]
    pairs = (factors.sum(1) ** 2 - (factors ** 2).sum(1)).sum(-1)
    return rows[..., 0].sum(1) + pairs


def make_clicks(rng, samples):
    """Ids i32 [N, 3], and labels f32 [N, 1], with the scores that they were drawn by."""
    ids = np.stack([rng.integers(0, FEATURES, n)[rng.integers(0, n, samples)] for n in KINDS.values()], 1)
    unique, places = np.unique(ids, return_inverse=True)
    truth = np.concatenate([rng.normal(0, 0.5, (len(unique), 1)), rng.normal(0, 0.6, (len(unique), FACTORS))], 1)
    score = scores(truth[places.reshape(ids.shape)])
    labels = rng.random(samples) < 1 / (1 + np.exp(-score))
    return ids.astype(np.int32), labels.astype(np.float32)[:, None], score


def area_under_curve(score, labels):
    """How often a click scores higher than what is none."""
    order = np.argsort(np.argsort(score)) + 1.0
    clicks = labels[:, 0] > 0.5
    n, m = clicks.sum(), (~clicks).sum()
    return (order[clicks].sum() - n * (n + 1) / 2) / (n * m)


def model(sparse):
    def reduce(name, source, keep=False):
        return {"layer": "reduce", "name": name, "input": [source], "function": "sum", "axes": [1], "keep_dims": keep}

    return {
        "inputs": ["ids"],
        "layers": [
            {"layer": "embedding", "name": "features", "entries": FEATURES, "width": 1 + FACTORS, "sparse": sparse},
            {"layer": "slice", "name": "weights", "input": ["features"], "length": 1},
            {"layer": "slice", "name": "factors", "input": ["features"], "begin": 1},
            reduce("sum", "factors"),
            {"layer": "multiply", "name": "square_of_sum", "input": ["sum", "sum"]},
            {"layer": "multiply", "name": "squares", "input": ["factors", "factors"]},
            reduce("sum_of_squares", "squares"),
            {"layer": "subtract", "name": "pairs", "input": ["square_of_sum", "sum_of_squares"]},
            reduce("pair", "pairs", keep=True),
            reduce("line", "weights"),
            {"layer": "add", "input": ["pair", "line"]},
            {"layer": "bias"}],
        "loss": {"loss": "binary_cross_entropy"}}


def job_of(folder, epochs, sparse):
    def stages(part):
        return [{"stage": "npy", "arrays": f"ids={folder}/{part}-ids.npy,label={folder}/{part}-label.npy"},
                {"stage": "batch", "size": 256, "drop_remainder": False}]

    job = {
        "seed": 1, "pipeline": {"stages": stages("train")}, "model": model(sparse), "optimizer": {"optimizer": "sgd"},
        "schedule": {"learning_rate": 0.3}, "train": {"epochs": epochs},
        "evaluation": {"pipeline": {"stages": stages("test")}},
        "output": {"dir": f"{folder}/{'rows' if sparse else 'whole'}", "tensorboard": False}}
    if sparse:
        job["parallel"] = {"algorithm": "downpour", "servers": 2, "consistency": "sequential", "rendezvous": f"file:{folder}/meet"}
    return job


def read_safetensors(path):
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    types = {"F32": np.float32, "I32": np.int32}
    return {name: np.frombuffer(data[8 + length:][slice(*of["data_offsets"])], types[of["dtype"]]).reshape(of["shape"])
            for name, of in json.loads(data[8:8 + length]).items() if name != "__metadata__"}


def train(job, folder):
    """Gives the folder of the last checkpoint. The servers could be on other machines, each with `echotrain parameter-server`,
    and there could be more workers."""
    with et.Server(et.Job(job), shard=0), et.Server(et.Job(job), shard=1), \
            et.Job(job).run(device=et.Runtime(memory_limit_bytes=LIMIT_BYTES)) as run:
        for event in run:
            if event.kind == "evaluation":
                print(f"step {event.step}: loss {event.eval_loss:.4f} on clicks that it has not seen")
    return max((folder / "rows/checkpoints").glob("step-*"))


def score_of_checkpoint(path, ids):
    """The checkpoint has the rows that were trained; all others are as they began, next to 0."""
    table = read_safetensors(path / "tables.safetensors")
    trained, values = table["features.weight.ids"], table["features.weight.values"]
    print(f"rows that were trained: {len(trained)} of {FEATURES}")
    places = np.searchsorted(trained, ids).clip(max=len(trained) - 1)
    return scores(np.where((trained[places] == ids)[..., None], values[places], 0))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, enough in ENOUGH.items():
        parser.add_argument(f"--{name}", type=int, default=enough, help=f"{enough} unless given; fewer do not find the machine")
    given = parser.parse_args()
    if given.samples < LEAST_SAMPLES or given.epochs < 1:
        parser.error(f"it takes at least {LEAST_SAMPLES} samples and 1 epoch")
    judged = all(getattr(given, name) >= enough for name, enough in ENOUGH.items())
    if not judged:
        print(f"fewer than {ENOUGH['samples']} samples or {ENOUGH['epochs']} epochs are too few to find the machine: "
              "the result will not be judged")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ids, labels, truth = make_clicks(np.random.default_rng(0), given.samples)
        tests = given.samples // 5
        for part, rows in {"test": slice(0, tests), "train": slice(tests, None)}.items():
            np.save(folder / f"{part}-ids.npy", ids[rows])
            np.save(folder / f"{part}-label.npy", labels[rows])
        print(f"the table takes {TABLE_BYTES / 1e6:.0f} MB, and the device gives {LIMIT_BYTES / 1e6:.0f} MB")
        try:
            with et.Job(job_of(folder, 1, sparse=False)).run(device=et.Runtime(memory_limit_bytes=LIMIT_BYTES)) as run:
                list(run)
            sys.exit("the whole table fits the device")
        except et.EchoTrainError as error:
            print(f"as a whole on the device: {error}")
        path = train(job_of(folder, given.epochs, sparse=True), folder)
        found = area_under_curve(score_of_checkpoint(path, ids[:tests]), labels[:tests])
        best = area_under_curve(truth[:tests], labels[:tests])
        print(f"area under the curve: {found:.3f}, and {best:.3f} by the machine that made the clicks")
        if judged and found < best - 0.05:
            sys.exit("the machine was not found")


if __name__ == "__main__":
    main()
