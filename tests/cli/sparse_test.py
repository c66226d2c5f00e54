#!/usr/bin/env python3
"""Sparse embeddings on parameter servers as processes: a worker that is killed, and a run that goes on with other servers.

    sparse_test.py ECHOTRAIN
"""

import array
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from support import runner

PROGRAM = os.path.abspath(sys.argv[1])
run = runner(PROGRAM)
ENTRIES = 10**9


def write_npy(path, kind, columns, values):
    """`values` as rows of int32 ("i") or float32 ("f")."""
    header = f"{{'descr': '<{kind}4', 'fortran_order': False, 'shape': ({len(values) // columns}, {columns}), }}"
    header = header.ljust((len(header) + 74) // 64 * 64 - 11) + "\n"
    path.write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode() +
                     array.array(kind, values).tobytes())


class Sparse(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        rng = random.Random(1)
        known = [rng.randrange(ENTRIES) for _ in range(50)]
        ids = [rng.choice(known) for _ in range(3 * 400)]
        write_npy(cls.root / "ids.npy", "i", 3, ids)
        write_npy(cls.root / "label.npy", "f", 1, [float(sum(ids[3 * i:3 * i + 3]) % 2) for i in range(400)])

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            process.kill()
            process.communicate()

    def words(self, name, steps, seed=0, **parallel):
        job = {"seed": seed,
               "pipeline": {"seed": 0, "stages": [{"stage": "npy", "arrays": f"ids={self.root}/ids.npy,label={self.root}/label.npy"},
                                       {"stage": "batch", "size": 20}]},
               "model": {"inputs": ["ids"], "loss": {"loss": "binary_cross_entropy"},
                         "layers": [{"layer": "embedding", "name": "table", "entries": ENTRIES, "width": 1, "sparse": True},
                                    {"layer": "reduce", "axes": [1], "function": "sum"}, {"layer": "bias"}]},
               "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.1}, "train": {"steps": steps},
               "output": {"dir": str(self.root / name) if name else "", "tensorboard": False, "checkpoint_every_steps": 10},
               "parallel": {"algorithm": "downpour", "timeout": 30, **parallel}}
        path = self.root / f"job{len(list(self.root.glob('job*')))}.json"
        path.write_text(json.dumps(job))
        return [path]

    def begin(self, *words):
        process = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def rows(self, name):
        path = self.root / name / "metrics.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [row for row in map(json.loads, lines) if row["kind"] == "step"]

    def wait_for(self, what, *processes):
        deadline = time.monotonic() + 200
        while not what():
            for process in processes:
                self.assertIsNone(process.poll(), process.poll() is not None and process.communicate())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def finish(self, process, status=0):
        out, errors = process.communicate(timeout=200)
        self.assertEqual(process.returncode, status, out + errors)
        return out, errors

    def test_a_worker_is_killed(self):
        more = {"servers": 2, "rendezvous": f"file:{self.root / 'meet'}"}
        servers = [self.begin("parameter-server", *self.words("", 1, **more), "--shard", shard) for shard in range(2)]
        first = self.begin("train", *self.words("first", 10**9, **more))
        self.wait_for(lambda: len(self.rows("first")) > 3, first, *servers)
        victim = self.begin("train", *self.words("", 10**9, **more))
        self.wait_for(lambda: "step" in victim.stdout.readline(), first, *servers)
        victim.send_signal(signal.SIGKILL)
        before = len(self.rows("first"))
        self.wait_for(lambda: len(self.rows("first")) > before + 3, first, *servers)
        for server in servers:  # which may notice late; a run whose last worker is lost fails
            self.wait_for(lambda: "lost" in server.stdout.readline(), first, server)
        first.send_signal(signal.SIGTERM)
        self.finish(first, 128 + signal.SIGTERM)
        counts = []
        for shard, server in enumerate(servers):
            out, errors = self.finish(server)
            self.assertRegex(errors, "worker 1, whose [0-9]+ updates were applied")
            counts.append(int(re.search(f"shard {shard}: 2 workers, ([0-9]+) updates", out).group(1)))
        self.assertLessEqual(abs(counts[0] - counts[1]), 1)  # of the push that it was killed in

    # The first worker has the checkpoint, and the other one, which may come first, waits for it.
    def test_a_run_goes_on_with_other_servers(self):
        result = run("launch", "-n", 2, "--servers", 2, *self.words("launched", 200))
        self.assertEqual(result.returncode, 0, result.stderr)
        checkpoint = max((self.root / "launched/checkpoints").glob("step-*"))
        self.assertEqual(json.loads((checkpoint / "tables.json").read_text()),
                         {"table.weight": {"entries": ENTRIES, "width": 1, "seed": 0}})
        self.assertLess((checkpoint / "tables.safetensors").stat().st_size, 4096)  # 50 rows
        losses = [row["loss"] for row in self.rows("launched")]
        learnt, new = sum(losses[-20:]) / 20, sum(losses[:5]) / 5
        for servers, seed in ((3, 0), (1, 7)):  # the tables keep the seed of the checkpoint
            steps = len(self.rows("launched")) + 5
            result = run("launch", "-n", 2, "--servers", servers, *self.words("launched", steps, seed), "--resume")
            self.assertEqual(result.returncode, 0, result.stderr)
            losses = [row["loss"] for row in self.rows("launched")]
            self.assertEqual(len(losses), steps)
            self.assertLess(sum(losses[-5:]) / 5, (learnt + new) / 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:])
