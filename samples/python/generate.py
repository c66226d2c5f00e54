"""Writes text with a character Transformer that `echotrain train samples/jobs/shakespeare.json` has trained.

    python samples/python/generate.py runs/shakespeare --text /path/to/input.txt --start "ROMEO:" --length 500
"""

import argparse
import json
import pathlib
import sys

import echotrain as et
import numpy as np


def load(run):
    """The trained model of a job's run, and how many positions it reads."""
    checkpoints = [path.parent for path in pathlib.Path(run).glob("**/step-*/manifest.json")]
    if not checkpoints:
        raise SystemExit(f"there is no checkpoint below '{run}'; train first")
    newest = max(checkpoints, key=lambda c: json.loads((c / "manifest.json").read_text()).get("generation", 0))
    job = json.loads((newest / "job.json").read_text())
    optimizer = dict(job["optimizer"])
    make = getattr(et.optimizers, optimizer.pop("optimizer"))
    trainer = et.Trainer(et.Model.from_json(job["model"]), make(**optimizer), 0.0)
    trainer.load(newest.parent)
    windows = next(stage for stage in job["pipeline"]["stages"] if stage["stage"] == "text_windows")
    return trainer, windows["length"]


def generate(trainer, positions, alphabet, symbols, length, temperature, rng):
    """Draws one symbol after the other; each is drawn from what the model makes of the last `positions`."""
    for _ in range(length):
        window = symbols[-positions:]
        padded = np.zeros((1, positions), np.int32)  # a position sees nothing of what follows it
        padded[0, :len(window)] = window
        logits = trainer.predict(et.Batch({"input": padded}))[0, len(window) - 1, :len(alphabet)].astype(np.float64)  # the model's may be larger
        if temperature == 0:
            symbols.append(int(logits.argmax()))
        else:
            p = np.exp((logits - logits.max()) / temperature)
            symbols.append(int(rng.choice(len(p), p=p / p.sum())))
        yield symbols[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="folder of the run, the job's output.dir")
    parser.add_argument("--text", required=True, help="the text it was trained on, for its alphabet")
    parser.add_argument("--start", default="\n")
    parser.add_argument("--length", type=int, default=500)
    parser.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest symbol")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    et.prefer_wide_cpu_vectors()
    alphabet = sorted(set(pathlib.Path(arguments.text).read_text(encoding="utf-8")))
    unknown = sorted(set(arguments.start) - set(alphabet))
    if unknown:
        raise SystemExit(f"--start has characters that the text has not: {unknown}")
    trainer, positions = load(arguments.run)
    symbols = [alphabet.index(c) for c in arguments.start]
    sys.stdout.write(arguments.start)
    for symbol in generate(trainer, positions, alphabet, symbols, arguments.length, arguments.temperature,
                           np.random.default_rng(arguments.seed)):
        sys.stdout.write(alphabet[symbol])
        sys.stdout.flush()
    print()


if __name__ == "__main__":
    main()
