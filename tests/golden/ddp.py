#!/usr/bin/env python3
"""Data-parallel training beside PyTorch's DistributedDataParallel on Gloo, from the same weights.

    python3 tests/golden/ddp.py --program build-test/tests/bench/side_bench [--steps 100] [--ranks 2] [--peer PYTHON] [CASE ...]

Ranks are processes of this machine, a batch each, the same on both sides; SGD with Nesterov's momentum. The losses of all steps, as means
over the ranks, and the parameters after the last are compared. How far the parameters are apart is told relative to how far training
has moved them, so that training that goes nowhere equals nothing. PyTorch: see
parallel_bench.py; without it the exit status is 77.
"""

import argparse
import array
import json
import math
import os
import pathlib
import statistics
import struct
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "bench"))
from parallel_bench import Bench, Side  # noqa: E402
from parallel_cases import CASES  # noqa: E402

RATE = 0.002
LOSS_LIMIT, MOVE_LIMIT = 1e-3, 2e-2  # relative; see main()


def parameters(path):
    """Trained parameters by name, of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, of in json.loads(data[8:8 + size]).items():
        if name != "__metadata__" and ".running_" not in name:
            begin, end = of["data_offsets"]
            out[name] = array.array("f", data[8 + size + begin:8 + size + end])
    return out


def distance(a, b):
    return math.sqrt(sum((x - y) ** 2 for name in a for x, y in zip(a[name], b[name])))


class Golden(Bench):
    rate = RATE

    def losses(self, side, steps):
        """Means over the ranks."""
        runs = [answer["losses"] for answer in side.run(steps)]
        return [statistics.fmean(step) for step in zip(*runs)]

    def saved(self, side, name):
        path = f"{self.folder}/{name}"
        side.ask([{"save": path}] + [{"save": path + ".other"}] * (len(side.processes) - 1))
        return path

    def ours_of(self, case, weights):
        """PyTorch's weights, laid out as ours."""
        os.replace(weights, f"{self.folder}/{case}.weights")
        side = self._ours(case, 1, False)
        path = self.saved(side, "converted")
        side.close()
        return parameters(path)

    def compare(self, case, ranks, steps):
        first = self._requests(case, 1, False)
        first[0]["weights"] = f"{self.folder}/{case}.weights"
        Side(self.peer, self.cores[:1], first).close()
        theirs, ours = self._theirs(case, ranks, True), self._ours(case, ranks, True)
        before = parameters(self.saved(self._ours(case, 1, False), "before"))
        their_losses, our_losses = self.losses(theirs, steps), self.losses(ours, steps)
        after = parameters(self.saved(ours, "ours"))
        wanted = self.ours_of(case, self.saved(theirs, "theirs"))
        for side in (theirs, ours):
            side.close()
        worst = max(abs(a - b) / abs(b) for a, b in zip(our_losses, their_losses))
        moved = distance(wanted, before)
        apart = distance(after, wanted) / moved
        fell = their_losses[0] - their_losses[-1]
        ok = worst < LOSS_LIMIT and apart < MOVE_LIMIT and fell > 0.02
        print(f"{case}, {ranks} ranks, {steps} steps: loss {their_losses[0]:.4f} to {their_losses[-1]:.4f}, apart by {worst:.1e} at most; "
              f"parameters moved by {moved:.3f}, apart by {apart:.1e} of it{'' if ok else ': WRONG'}", flush=True)
        return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="side_bench")
    parser.add_argument("--peer", default="/usr/bin/python3", help="a Python that has PyTorch")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("cases", nargs="*", default=[], help=", ".join(CASES))
    arguments = parser.parse_args()
    arguments.program = os.path.realpath(arguments.program)
    usable = sorted(os.sched_getaffinity(0))
    arguments.cores = ",".join(str(usable[rank % len(usable)]) for rank in range(arguments.ranks))
    with tempfile.TemporaryDirectory() as folder:
        golden = Golden(arguments, folder)
        if not golden.peer:
            sys.exit(77)
        results = [golden.compare(case, arguments.ranks, arguments.steps) for case in arguments.cases or CASES]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
