#!/usr/bin/env python3
"""What data parallelism costs, beside PyTorch's DistributedDataParallel on Gloo: processes that are pinned to a core each.

    python3 tests/bench/parallel_bench.py --program build-test/tests/bench/side_bench [--cores 2,3] [--rounds 15] [--record FILE] [CASE ...]

Each side trains the same model on the same batches, from the same weights: alone on one core; as one rank of one (what the
machinery costs); two alone, a core each (what this machine's cores cost each other); two ranks, a core each, with gradients as they
are and in 16 bits. All sides stay ready and run in turns. Printed are medians over rounds, and the middle half of them:

    overhead      one rank / alone - 1
    exposed       two ranks - two alone: the communication that the backward pass does not hide, per step
    scaling       alone / two ranks; 100 % is twice the examples per second with two cores

PyTorch runs under the Python that --peer names (Debian: `apt install python3-torch`, then /usr/bin/python3; or `python3 -m venv V &&
V/bin/pip install torch --index-url https://download.pytorch.org/whl/cpu`, then V/bin/python). Without it this program says so and
measures EchoTrain alone. Needs a CPU Vulkan device, and Linux (taskset).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import record
from arrays import write_safetensors
from parallel_cases import CASES, RATE, SGD

HERE = pathlib.Path(__file__).parent


class Process:
    """A side's process on one core, asked and answering a line of JSON."""

    def __init__(self, command, core):
        environment = dict(os.environ, LP_NUM_THREADS="1", OMP_NUM_THREADS="1")
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(["taskset", "-c", str(core), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, env=environment, cwd=HERE)

    def send(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def receive(self):
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {}
        if not line or "error" in answer:
            self.errors.seek(0)
            sys.exit(f"{self.process.args} failed: {answer.get('error', '')} {self.errors.read().decode()[-2000:]}")
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Side:
    """Processes that run at the same time."""

    def __init__(self, command, cores, requests):
        self.processes = [Process(command, core) for core in cores]
        self.ask(requests)

    def ask(self, requests):
        for process, request in zip(self.processes, requests):
            process.send(request)
        return [process.receive() for process in self.processes]

    def run(self, count):
        return self.ask([{"run": count}] * len(self.processes))

    def seconds(self, count):
        return max(answer["seconds"] for answer in self.run(count)) / count

    def close(self):
        for process in self.processes:
            process.close()


class Bench:
    rate = RATE

    def __init__(self, arguments, folder):
        self.arguments, self.folder, self.made = arguments, folder, 0
        self.rows = {}  # what was measured -> of each case
        self.cores = [int(core) for core in arguments.cores.split(",")]
        self.peer = self._find_peer()

    def _find_peer(self):
        probe = subprocess.run([self.arguments.peer, "-c", "import torch; torch.distributed.ProcessGroupGloo; print(torch.__version__)"],
                               capture_output=True, text=True)
        if probe.returncode == 0:
            print(f"PyTorch {probe.stdout.strip()}")
            return [self.arguments.peer, str(HERE / "ddp_side.py")]
        print(f"PyTorch is SKIPPED: {self.arguments.peer} has none with Gloo. Install it with `apt install python3-torch`, or name another "
              "Python with --peer (see --help).")
        return None

    def _requests(self, case, ranks, together, **extra):
        self.made += 1
        requests = []
        for rank in range(ranks):
            request = {"case": case, "batch_of": rank, "rate": self.rate}
            if together:
                request["parallel"] = {"rank": rank, "size": ranks, "rendezvous": f"file:{self.folder}/meet{self.made}", **extra}
            requests.append(request)
        return requests

    def _theirs(self, case, ranks, together):
        return Side(self.peer, self.cores[:ranks], self._requests(case, ranks, together))

    def _ours(self, case, ranks, together, **extra):
        requests = self._requests(case, ranks, together, **extra)
        for request in requests:
            batch = f"{self.folder}/{case}.{request['batch_of']}"
            write_safetensors(batch, CASES[case][2](request["batch_of"]))
            request.update(case="training", model=CASES[case][0], optimizer=SGD,
                           schedule={"schedule": "constant", "learning_rate": self.rate}, batch=batch)
            if self.peer:
                request["weights"] = f"{self.folder}/{case}.weights"
        return Side([self.arguments.program], self.cores[:ranks], requests)

    def sides(self, case):
        out = {}
        if self.peer:
            first = self._requests(case, 1, False)
            first[0]["weights"] = f"{self.folder}/{case}.weights"
            out["PyTorch"] = {"alone": Side(self.peer, self.cores[:1], first), "one rank": self._theirs(case, 1, True),
                              "two alone": self._theirs(case, 2, False), "two ranks": self._theirs(case, 2, True)}
        ours = {"alone": self._ours(case, 1, False), "one rank": self._ours(case, 1, True),
                "two alone": self._ours(case, 2, False), "two ranks": self._ours(case, 2, True)}
        for format in ("fp16", "bf16"):
            ours[f"two ranks, {format}"] = self._ours(case, 2, True, compression=format)
        return {"EchoTrain": ours, **out}

    def check(self, case, sides):
        """Both do the same work: the losses of the first steps agree."""
        first = {who: of["two ranks"].run(5) for who, of in sides.items()}
        if len(first) < 2:
            return
        ours = first["EchoTrain"][0]["losses"]
        theirs = [statistics.fmean(step) for step in zip(*(answer["losses"] for answer in first["PyTorch"]))]
        worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
        if worst > 1e-3:
            sys.exit(f"{case}: EchoTrain and PyTorch do not train the same: losses {ours} and {theirs}")

    def run(self, case):
        sides = self.sides(case)
        self.check(case, sides)
        flat = {(who, name): side for who, of in sides.items() for name, side in of.items()}
        counts = {}
        for key, side in flat.items():
            side.seconds(2)
            counts[key] = max(1, int(self.arguments.seconds / side.seconds(2)))
        times = {key: [] for key in flat}
        for _ in range(self.arguments.rounds):
            for key, side in flat.items():
                times[key].append(side.seconds(counts[key]))
        for side in flat.values():
            side.close()
        for who, of in sides.items():
            for what, value in report(case, who, {name: times[who, name] for name in of}):
                self.rows.setdefault(f"{who}: {what}", {})[case] = value


def middle(values, form):
    low, _, high = statistics.quantiles(values, n=4)
    return f"{form(statistics.median(values))} ({form(low)} to {form(high)})"


def report(case, who, times):
    """Prints a case, and gives what was measured for a record."""
    percent, milliseconds = lambda share: f"{100 * share:.1f}%", lambda seconds: f"{1e3 * seconds:.1f}"
    each = lambda combine, a, b: [combine(x, y) for x, y in zip(times[a], times[b])]
    rows = [("alone, ms a step", middle(times["alone"], milliseconds)),
            ("overhead of one rank", middle(each(lambda a, b: a / b - 1, "one rank", "alone"), percent)),
            ("two alone, scaling", middle(each(lambda a, b: a / b, "alone", "two alone"), percent))]
    print(f"{case}, {who}: alone {rows[0][1]} ms a step\n  overhead of one rank   {rows[1][1]}\n  two alone, scaling     {rows[2][1]}")
    for name in times:
        if name.startswith("two ranks"):
            exposed = each(lambda a, b: a - b, name, "two alone")
            scaling = each(lambda a, b: a / b, "alone", name)
            of_two = each(lambda a, b: a / b, "two alone", name)
            of_name = middle(scaling, percent), middle(of_two, percent), middle(exposed, milliseconds)
            print(f"  {name + ', scaling':22} {of_name[0]}; of two alone {of_name[1]}; exposed {of_name[2]} ms")
            rows += zip((f"{name}, scaling", f"{name} beside two alone", f"{name}, exposed communication, ms a step"), of_name)
    sys.stdout.flush()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="side_bench")
    parser.add_argument("--peer", default="/usr/bin/python3", help="a Python that has PyTorch")
    parser.add_argument("--cores", default=",".join(map(str, sorted(os.sched_getaffinity(0))[-2:])), help="two cores")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each side in a round")
    record.add_option(parser)
    parser.add_argument("cases", nargs="*", default=[], help=", ".join(CASES))
    arguments = parser.parse_args()
    arguments.program = os.path.realpath(arguments.program)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, folder)
        print(f"cores {bench.cores}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors at the start")
        cases = arguments.cases or list(CASES)
        for case in cases:
            bench.run(case)
        if arguments.record:
            ours = Process([arguments.program], bench.cores[0])
            ours.send({"case": "devices"})
            rows = [[what, *(of.get(case, "") for case in cases)] for what, of in bench.rows.items()]
            record.write(arguments.record, ["", *cases], rows, f"Medians of {arguments.rounds} rounds in turns, the middle half in brackets.",
                         ours.receive()["chosen"]["driver"])
            ours.close()


if __name__ == "__main__":
    main()
