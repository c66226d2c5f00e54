"""Jobs of the day, and the data they train on, which is drawn here."""

import array
import json
import pathlib
import random
import sys


def arrays():
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
    import arrays as module
    return module


def image_job(folder, model, size, batch, samples, classes=10):
    """Writes random images and a job that trains on them; gives its path."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays().random_images(folder / "image.npy", samples, size)
    arrays().random_labels(folder / "label.npy", samples, classes)
    return _write(folder, {
        "pipeline": {"stages": [{"stage": "npy", "arrays": f"image={folder}/image.npy,label={folder}/label.npy"},
                                {"stage": "repeat"}, {"stage": "batch", "size": batch}, {"stage": "normalize"}]},
        "model": model, "optimizer": {"optimizer": "sgd", "momentum": 0.9, "nesterov": True},
        "schedule": {"schedule": "constant", "learning_rate": 0.001}})


def decoder_job(folder, model, symbols, positions, batch, samples):
    """The same with random symbols, of which each has another to follow."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    for name in ("input", "target"):
        _write_ids(folder / f"{name}.npy", [[rng.randrange(symbols) for _ in range(positions)] for _ in range(samples)])
    return _write(folder, {
        "pipeline": {"stages": [{"stage": "npy", "arrays": f"input={folder}/input.npy,target={folder}/target.npy"},
                                {"stage": "repeat"}, {"stage": "batch", "size": batch}]},
        "model": model, "optimizer": {"optimizer": "adamw"}, "schedule": {"schedule": "constant", "learning_rate": 0.0003}})


def translation_job(folder, symbols, positions, batch, samples, seconds, **model):
    """A made-up language: a sentence is translated by reversing it and replacing each word by another. Nothing but attention to
    the right place and a dictionary can do it, so that the loss of sentences that were not trained on says whether both were
    learnt; a model that knows nothing of the source has a loss of log(symbols)."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    dictionary = list(range(1, symbols))
    rng.shuffle(dictionary)
    for part, count in (("train", samples), ("test", max(batch, samples // 32))):
        rows = {name: [] for name in ("source", "source_length", "input", "target")}
        for _ in range(count):
            sentence = [rng.randrange(1, symbols) for _ in range(positions)]
            translated = [dictionary[word - 1] for word in reversed(sentence)]
            rows["source"].append(sentence)
            rows["source_length"].append(positions)
            rows["input"].append([0] + translated[:-1])
            rows["target"].append(translated)
        for name, values in rows.items():
            _write_ids(folder / f"{part}-{name}.npy", values)
    read = lambda part: {"stage": "npy", "arrays": ",".join(f"{name}={folder}/{part}-{name}.npy" for name in
                                                            ("source", "source_length", "input", "target"))}
    return _write(folder, {
        "pipeline": {"stages": [read("train"), {"stage": "shuffle", "buffer": samples}, {"stage": "batch", "size": batch}]},
        "model": {"model": "transformer", "vocab_size": symbols, "dropout": 0, **model},
        "optimizer": {"optimizer": "adamw", "beta2": 0.98, "clip_norm": 1},
        "schedule": {"schedule": "inverse_sqrt", "learning_rate": 0.0005, "warmup_steps": 400},
        "train": {"seconds": seconds},
        "evaluation": {"every_epochs": 1, "pipeline": {"stages": [read("test"), {"stage": "batch", "size": batch}]}},
        "output": {"dir": f"{folder}/out", "tensorboard": False, "checkpoint_every_epochs": 0}})


def _write_ids(path, rows):
    shape = (len(rows), len(rows[0])) if isinstance(rows[0], list) else (len(rows),)
    flat = array.array("i", (word for row in rows for word in row) if len(shape) == 2 else rows)
    arrays().write_npy(path, shape, "<i4", flat.tobytes())


def _write(folder, job):
    path = folder / "job.json"
    path.write_text(json.dumps({"name": folder.name, "seed": 1, "train": {"steps": 1000}, **job}, indent=1))
    return path
