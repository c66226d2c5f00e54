"""Ranks of a small job, as processes that a test can hurt."""

import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import tempfile
import time

SAMPLES = 240


def write_data(folder):
    """240 images of 4 x 4 in the format of MNIST."""
    drawn = random.Random(1)
    labels = bytes(drawn.randrange(4) for _ in range(SAMPLES))
    pixels = bytes(min(255, drawn.randrange(100) + 150 * (place % 4 == label)) for label in labels for place in range(16))
    (folder / "images").write_bytes(struct.pack(">IIII", 0x803, SAMPLES, 4, 4) + pixels)
    (folder / "labels").write_bytes(struct.pack(">II", 0x801, SAMPLES) + labels)


def job(folder, out, *, epochs, milliseconds, timeout, every_steps=4, **parallel):
    stages = [{"stage": "idx", "images": str(folder / "images"), "labels": str(folder / "labels")},
              {"stage": "shuffle", "buffer": 16}]
    if milliseconds:
        stages.append({"stage": "delay", "milliseconds": milliseconds})
    stages += [{"stage": "batch", "size": 4}, {"stage": "normalize"}]
    return {"seed": 3, "pipeline": {"threads": 1, "stages": stages},
            "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 4}]},
            "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.05},
            "train": {"epochs": epochs},
            "output": {"dir": str(out), "tensorboard": False, "checkpoint_every_steps": every_steps},
            "parallel": {"timeout": timeout, **parallel}}


class Cluster:
    """Ranks of one job on this machine, which meet in a folder. `start` may be called again for one that joins."""

    def __init__(self, program, folder, name, the_job, size):
        self.program, self.size = program, size
        self.root = pathlib.Path(folder)
        self.out = pathlib.Path(the_job["output"]["dir"])
        self.store = self.root / f"{name}-store"
        self.temporary = self.root / f"{name}-tmp"
        self.temporary.mkdir()
        self.job = self.root / f"{name}.json"
        self.job.write_text(json.dumps(the_job))
        self.processes, self.errors = {}, {}

    def start(self, rank, *words, joins=False, prefix=()):
        key = rank if not joins else f"joined {len(self.processes)}"
        environment = dict(os.environ, ECHOTRAIN_RANK=str(rank), ECHOTRAIN_SIZE=str(self.size),
                           ECHOTRAIN_RENDEZVOUS=f"file:{self.store}", LP_NUM_THREADS="1",
                           TMPDIR=str(self.temporary))
        if joins:
            environment["ECHOTRAIN_JOIN"] = "1"
        self.errors[key] = self.root / f"{self.job.stem}-{key}.err"
        with open(self.errors[key], "w") as errors:
            self.processes[key] = subprocess.Popen([*prefix, self.program, "train", self.job, *words],
                                                   stdout=subprocess.DEVNULL, stderr=errors, env=environment,
                                                   start_new_session=True)
        return key

    def start_all(self, *words):
        for rank in range(self.size):
            self.start(rank, *words)
        return self

    def rows(self):
        try:
            lines = (self.out / "metrics.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        rows = []
        for line in lines:
            try:
                rows.append(json.loads(line))
            except ValueError:  # it is being written
                break
        return [row for row in rows if row["kind"] == "step"]

    def step(self):
        rows = self.rows()
        return rows[-1]["step"] if rows else 0

    def wait_for(self, condition, what, seconds=120):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} within {seconds} s; {self.report()}")
            time.sleep(0.01)

    def wait_for_step(self, step):
        self.wait_for(lambda: self.step() >= step or not self.running(), f"no step {step}")
        if self.step() < step:
            raise AssertionError(f"all ranks have ended before step {step}; {self.report()}")

    def has_checkpoint(self):
        return bool(list((self.out / "checkpoints").glob("step-*[0-9]/manifest.json")))

    def running(self):
        return [key for key, process in self.processes.items() if process.poll() is None]

    def said(self, key):
        return self.errors[key].read_text()

    def wait(self, key, seconds=120):
        try:
            return self.processes[key].wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"rank {key} has not ended within {seconds} s; {self.report()}") from None

    def report(self):
        return "; ".join(f"{key} (status {process.poll()}): {self.said(key)!r}"
                         for key, process in self.processes.items())

    def helpers_left(self):
        """Processes of the ranks."""
        return self.in_sessions({process.pid for process in self.processes.values()})

    def processes_of(self, key):
        return self.in_sessions({self.processes[key].pid})

    def signal(self, key, number):
        """To the rank and its helpers, some of which may have ended."""
        for pid in self.processes_of(key):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    @staticmethod
    def in_sessions(sessions):
        left = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) in sessions and fields[0] != "Z":
                left.append(int(entry.name))
        return left

    def close(self):
        for pid in self.helpers_left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.processes.values():
            process.wait()


def scratch():
    return tempfile.TemporaryDirectory(prefix="echotrain-faults-")
