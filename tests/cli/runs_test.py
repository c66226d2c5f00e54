#!/usr/bin/env python3
"""Run folders as processes see them: two runs at once, kills, failed starts.

    runs_test.py ECHOTRAIN PAINTER

ECHOTRAIN is the program, PAINTER the quickstart's painter of digits.
"""

import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from support import runner

PROGRAM, PAINTER = sys.argv[1:3]
run = runner(PROGRAM)


class Runs(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        subprocess.run([PAINTER, self.root / "png" / "train", "200", "1"], check=True)
        self.assertEqual(run("pack", self.root / "png" / "train", self.root / "data").returncode, 0)
        self.out = self.root / "run"
        self.job = self.root / "job.json"
        self.job.write_text(json.dumps({
            "seed": 3,
            "pipeline": {"stages": [{"stage": "webdataset", "pattern": f"{self.root}/data-*.tar.zst"},
                                    {"stage": "label", "classes": 10},
                                    {"stage": "decode", "channels": "gray"},
                                    {"stage": "batch", "size": 20},
                                    {"stage": "normalize"}]},
            "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 10}]},
            "optimizer": {"optimizer": "sgd"},
            "schedule": {"learning_rate": 0.01},
            "train": {"steps": 40},
            "output": {"dir": str(self.out), "checkpoint_every_steps": 7}}))

    def rows(self):
        """The steps that metrics.jsonl has, whole lines only."""
        path = self.out / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        rows = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
        return [row["step"] for row in rows if row["kind"] == "step"]

    def training(self, *words):
        """A run without an end, which is on its way."""
        process = subprocess.Popen([PROGRAM, "train", self.job, "--set", "train.steps=1000000000", *words],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = len(self.rows())
        while len(self.rows()) < before + 10 or not list(self.out.glob("checkpoints/step-*[0-9]")):
            self.assertIsNone(process.poll(), "it has ended")
            time.sleep(0.01)
        return process

    def kill(self, process):
        process.send_signal(signal.SIGKILL)
        process.wait()

    def test_the_second_of_two_runs_is_refused(self):
        first = self.training()
        try:
            for words in [], ["--resume"], ["--overwrite"]:
                second = run("train", self.job, *words)
                self.assertNotEqual(second.returncode, 0)
                for part in f"another run writes into '{self.out}' (process {first.pid} on ", "--set output.dir=":
                    self.assertIn(part, second.stdout + second.stderr)
            self.assertEqual(run("export", self.job, self.root / "model.onnx").returncode, 0, "readers are let in")
            self.assertEqual(run("train", self.job, "--set", f"output.dir={self.root}/other").returncode, 0)
        finally:
            self.kill(first)
        steps = self.rows()
        self.assertEqual(steps, list(range(1, len(steps) + 1)))

    def test_killed_runs_go_on_and_count_every_step_once(self):
        self.kill(self.training())
        self.kill(self.training("--resume"))
        killed = self.rows()
        self.assertEqual(killed, list(range(1, len(killed) + 1)))
        last = run("train", self.job, "--resume", "--set", f"train.steps={len(killed) + 20}")
        self.assertEqual(last.returncode, 0, last.stderr)
        self.assertEqual(self.rows(), list(range(1, len(killed) + 21)))
        self.assertEqual(sorted(path.name for path in self.out.glob(".*")), [], "the lock's file is gone")

    def test_a_failed_start_leaves_no_folder(self):
        shutil.rmtree(self.root / "png")
        for path in self.root.glob("data-*"):
            path.unlink()
        for words in [], ["--overwrite"], ["--resume"]:
            failed = run("train", self.job, *words, "--set", f"output.dir={self.root}/runs/a/b")
            self.assertNotEqual(failed.returncode, 0)
            self.assertFalse((self.root / "runs").exists(), words)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
