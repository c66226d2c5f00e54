"""Two or more sides of a comparison, measured in turns, and results that are written as they come."""

import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time


class Failed(Exception):
    pass


class Ours:
    """EchoTrain's side: the program side_bench, which is started again after a crash."""

    def __init__(self, program, *arguments):
        self.command = [str(program), *arguments]
        self.process = None

    def _start(self):
        self.stderr = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.stderr,
                                        text=True)

    def ask(self, request):
        if self.process is None:
            self._start()
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Failed(self._end())
        answer = json.loads(line)
        if "error" in answer and len(answer) == 1:
            raise Failed(answer["error"])
        return answer

    def _end(self):
        code, self.process = self.process.wait(), None
        self.stderr.seek(0)
        said = self.stderr.read().decode(errors="replace")[-1500:]
        return f"side_bench ended with {code}: {said}".strip()

    def run(self, count):
        return self.ask({"run": count})

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


class Theirs:
    """A function of PyTorch's, called `count` times; `synchronize` waits for the device."""

    def __init__(self, body, synchronize):
        self.body, self.synchronize = body, synchronize

    def run(self, count):
        begin = time.perf_counter()
        for _ in range(count):
            self.body()
        self.synchronize()
        return {"seconds": time.perf_counter() - begin}


def in_turn(sides, rounds=5, seconds=0.2, most=4000):
    """Runs each side for about `seconds` in every round, one after the other; gives seconds for one run: the median, the
    least and the largest of the rounds. What comes before is warm-up: one run, then one to estimate by."""
    counts, times = {}, {name: [] for name in sides}
    for name, side in sides.items():
        side.run(1)
        counts[name] = max(1, min(most, int(seconds / max(side.run(1)["seconds"], 1e-9))))
        if counts[name] > 10:  # one run was mostly its start
            counts[name] = max(1, min(most, int(seconds * 10 / max(side.run(10)["seconds"], 1e-9))))
        side.run(counts[name])
    for _ in range(rounds):
        for name, side in sides.items():
            times[name].append(side.run(counts[name])["seconds"] / counts[name])
    return {name: {"seconds": statistics.median(of), "least": min(of), "most": max(of), "runs": counts[name], "rounds": rounds}
            for name, of in times.items()}


class Results:
    """Rows of one benchmark in a JSON file that is whole at any time; rows that are in it already are not measured again."""

    def __init__(self, path, head):
        self.path = pathlib.Path(path)
        self.data = {**head, "rows": []}
        if self.path.exists():
            self.data["rows"] = [row for row in json.loads(self.path.read_text()).get("rows", [])
                                 if "error" not in row and row.get("complete", True)]

    def has(self, name):
        return any(row["name"] == name for row in self.data["rows"])

    def put(self, row):
        """Adds a row, or replaces that of the same name."""
        self.data["rows"] = [old for old in self.data["rows"] if old["name"] != row["name"]] + [row]
        self.save()

    def save(self):
        write_json(self.path, self.data)


def write_json(path, data):
    path = pathlib.Path(path)
    beside = path.with_name(path.name + ".part")
    beside.write_text(json.dumps(data, indent=1) + "\n")
    os.replace(beside, path)
