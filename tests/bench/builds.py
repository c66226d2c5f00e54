#!/usr/bin/env python3
"""Training steps of two builds of EchoTrain, in turns in one run: does a change make them faster?

    python3 tests/bench/builds.py BUILD_BEFORE BUILD_AFTER [--rounds N] [NAME ...]

The networks of train_bench.py. Each build runs in a process of its own; a round takes a few steps of one and then of the other,
so that what else the machine does meets both; which comes first alternates. Prints the medians and the median of the rounds'
ratios, with its quartiles. Needs PyTorch, as train_bench.py does.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def serve(name):
    """Takes as many steps as each line of the input says, and prints the seconds per step. Without a name, prints all names."""
    import echotrain as et
    import train_bench

    if not name:
        print("\n".join(train_bench.CASES))
        return
    et.prefer_wide_cpu_vectors()
    spec, _, fields = train_bench.CASES[name]
    _, steps = train_bench.our_side(spec, fields)
    steps(2)  # compiles
    print("ready", flush=True)
    for line in sys.stdin:
        print(train_bench.timed(steps, int(line)), flush=True)


class Build:
    def __init__(self, folder, name):
        paths = [os.path.join(folder, "bindings/python"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=environment)
        if not name:
            self.names = self.process.communicate()[0].splitlines()
            return
        if self.process.stdout.readline().strip() != "ready":
            raise SystemExit(f"builds.py: {folder} cannot train '{name}'")

    def steps(self, count):
        print(count, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", help="a build folder")
    parser.add_argument("after", help="another one")
    parser.add_argument("--rounds", type=int, default=15, choices=range(2, 1000), metavar="N", help="at least 2 (default: 15)")
    parser.add_argument("names", nargs="*", help="networks, by a part of their names")
    arguments = parser.parse_args()
    for name in Build(arguments.after, "").names:
        if arguments.names and not any(part in name for part in arguments.names):
            continue
        builds = [Build(arguments.before, name), Build(arguments.after, name)]
        count = max(1, int(0.5 / max(build.steps(1) for build in builds)))
        rounds = []
        for order in itertools.islice(itertools.cycle((1, -1)), arguments.rounds):
            rounds.append([build.steps(count) for build in builds[::order]][::order])
        for build in builds:
            build.close()
        medians = [1e3 * statistics.median(side) for side in zip(*rounds)]
        low, middle, high = statistics.quantiles([before / after for before, after in rounds], n=4)
        print(f"{name}: {medians[0]:.1f} ms before, {medians[1]:.1f} ms after; {middle:.3f} times as fast ({low:.3f} to {high:.3f})",
              flush=True)


if __name__ == "__main__":
    serve(sys.argv[2]) if sys.argv[1:2] == ["--serve"] else main()
