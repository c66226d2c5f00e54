#!/usr/bin/env python3
"""Draws the curves of finished or running jobs from their metrics.jsonl.

    curves.py OUT.png RUN_DIR [RUN_DIR ...] [--accuracy]

Left the training loss, smoothed over fifty steps; right the loss of the evaluations, or their error with --accuracy.
Needs matplotlib.
"""

import argparse
import itertools
import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = ("#1f6f8b", "#d1495b", "#66a182", "#edae49")


def rows_of(folder, kind):
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == kind]


def smoothed(values, weight=0.98):
    """A running mean without the pull towards the start (Kingma and Ba 2015, section 3)."""
    out, mean = [], 0.0
    for n, value in enumerate(values, 1):
        mean = weight * mean + (1 - weight) * value
        out.append(mean / (1 - weight**n))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("run", nargs="+")
    parser.add_argument("--accuracy", action="store_true")
    arguments = parser.parse_args()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), constrained_layout=True)
    for folder, colour in zip(arguments.run, itertools.cycle(COLOURS)):
        name = pathlib.Path(folder).name
        steps = rows_of(folder, "step")
        left.plot([row["step"] for row in steps], smoothed([row["loss"] for row in steps]), color=colour, label=name)
        tests = rows_of(folder, "evaluation")
        values = [100 * (1 - row["eval_accuracy"]) if arguments.accuracy else row["eval_loss"] for row in tests]
        right.plot([row["step"] for row in tests], values, color=colour, marker="o", markersize=3, label=name)
        unit = " %" if arguments.accuracy else ""
        right.annotate(f"{values[-1]:.{1 if arguments.accuracy else 3}f}{unit}", (tests[-1]["step"], values[-1]),
                       textcoords="offset points", xytext=(0, -14), ha="right", color=colour)
    left.set(xlabel="step", ylabel="training loss", title="training")
    right.set(xlabel="step", ylabel="test error, %" if arguments.accuracy else "evaluation loss", title="evaluation")
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(y=0.15)
    if arguments.accuracy:
        right.set_ylim(bottom=0)
    if len(arguments.run) > 1:
        left.legend(frameon=False)
    figure.savefig(arguments.out, dpi=130)


if __name__ == "__main__":
    main()
