#!/usr/bin/env python3
"""Measures what a fresh example costs under an echo node beside the model max(t_up, e * t_down).

    echo_model.py [--plot FILE.png] [--seconds S]

Upstream and training are delays of known length, so that the model alone is tested: the figures do not depend
on the machine's speed as long as it is not overloaded. Needs the Python package, and matplotlib for --plot.
"""

import argparse
import time

import numpy as np

import echotrain as et

# (t_up, t_down) in milliseconds: upstream is the slow side up to e = 4; downstream always is.
CASES = ((6.0, 1.5), (1.5, 6.0))
FACTORS = range(1, 9)


def cost_of_fresh(t_up, t_down, factor, seconds):
    """Milliseconds for each fresh example, with a consumer that takes t_down for each one it gets."""
    samples = et.source([{"x": np.zeros(4, np.float32)}] * 100000)
    stages = [samples, et.stages.delay(t_up), et.stages.echo(factor, buffer=8), et.stages.batch(1)]
    with et.Pipeline(stages, queue_items=4, prefetch=2) as pipeline:
        fresh, begin, due = 0, None, time.perf_counter()
        for batch in pipeline:
            now = time.perf_counter()
            if begin is None and fresh >= 16:  # past the filling of buffers and queues
                begin, counted = now, fresh
            fresh += batch.fresh
            if begin is not None and now - begin >= seconds:
                return (now - begin) / (fresh - counted) * 1e3
            due = max(due, now - 2e-3) + t_down * 1e-3
            time.sleep(max(0, due - time.perf_counter()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot")
    parser.add_argument("--seconds", type=float, default=3)
    arguments = parser.parse_args()
    measured = {}
    print(" t_up  t_down  e  model ms  measured ms  off by")
    worst = 0
    for t_up, t_down in CASES:
        for factor in FACTORS:
            model = max(t_up, factor * t_down)
            cost = cost_of_fresh(t_up, t_down, factor, max(arguments.seconds, 60 * model * 1e-3))
            measured[t_up, t_down, factor] = cost
            worst = max(worst, abs(cost / model - 1))
            print(f"{t_up:5.1f}  {t_down:6.1f}  {factor}  {model:8.2f}  {cost:11.2f}  {100 * (cost / model - 1):+5.1f} %",
                  flush=True)
    print(f"worst: {100 * worst:.1f} % off the model")
    if arguments.plot:
        plot(measured, arguments.plot)


def plot(measured, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharex=True)
    for axis, (t_up, t_down) in zip(axes, CASES):
        fine = np.linspace(1, 8, 200)
        axis.axhline(t_up, color="#999999", linewidth=1, linestyle=":")
        axis.text(1.4, t_up, "t_up", color="#777777", va="top" if t_up > t_down else "bottom")
        axis.plot(fine, np.maximum(t_up, fine * t_down), color="#2a6fbb", linewidth=2,
                  label="model: max(t_up, e × t_down)")
        axis.plot(FACTORS, [measured[t_up, t_down, e] for e in FACTORS], "o", color="#d1495b", label="measured")
        axis.set_title(f"t_up = {t_up:g} ms, t_down = {t_down:g} ms")
        axis.set_xlabel("echo factor e")
        axis.set_ylim(0)
        if t_up > t_down:
            axis.annotate(f"e = t_up / t_down = {t_up / t_down:g}:\nechoes up to here are free", (t_up / t_down, t_up),
                          xytext=(1.2, t_up * 1.45), arrowprops={"arrowstyle": "->", "color": "#555555"}, color="#333333")
        axis.legend(frameon=False, loc="lower right")
    axes[0].set_ylabel("ms for a fresh example")
    figure.tight_layout()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
