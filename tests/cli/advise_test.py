#!/usr/bin/env python3
"""echotrain advise on drawn digits: what it recommends, and that the changed job trains.

    advise_test.py ECHOTRAIN PAINTER TEXTS JOB

JOB is the quickstart's job, whose stage 'delay' makes reading slow.
"""

import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

from support import packed_digits, runner

PROGRAM, PAINTER, _, JOB = map(os.path.abspath, sys.argv[1:5])
run = runner(PROGRAM)


class Advise(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = packed_digits(run, PAINTER, 400, 50)
        cls.root = pathlib.Path(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def advise(self, *words, delay=0, status=0):
        result = run("advise", JOB, "--set", f"data={self.root}/data", "--set", "pipeline.stages.8.size=16",
                     "--set", f"pipeline.stages.2.milliseconds={delay}", "--seconds", 0.5, *words, cwd=self.root)
        self.assertEqual(result.returncode, status, result.stderr)
        return result

    def document(self, path):
        return json.loads("".join(line for line in path.read_text().splitlines(True) if not line.startswith("//")))

    def test_a_file_that_cannot_be_written_is_found_before_anything_is_measured(self):
        for path, expected in (("", "--apply is empty"), ("nowhere/changed.json", "make the folder"),
                               (self.root, "that is a folder")):
            result = self.advise("--apply", path, "--seconds", 1e6, status=1)
            self.assertIn(expected, result.stderr)
        self.assertFalse((self.root / "nowhere").exists())

    def test_a_file_that_exists_is_replaced_only_if_asked_to(self):
        mine = self.root / "mine.json"
        mine.write_text("{}")
        refused = self.advise("--apply", mine, "--seconds", 1e6, status=1)
        self.assertIn(f"'{mine}' exists; name another file, or replace it with --overwrite", refused.stderr)
        self.assertEqual(mine.read_text(), "{}")
        self.assertIn("give --apply FILE too", self.advise("--overwrite", status=2).stderr)

    def test_a_link_to_nothing_stays(self):
        link = self.root / "link.json"
        link.symlink_to(self.root / "target.json")
        refused = self.advise("--apply", link, "--seconds", 1e6, status=1)
        self.assertIn("is a link to a file that does not exist", refused.stderr)
        self.assertTrue(link.is_symlink())
        self.assertFalse((self.root / "target.json").exists())

    def test_an_echo_that_adapts_stays_in_a_healthy_job(self):
        changed = self.root / "kept.json"
        node = {"stage": "echo", "mode": "on_demand", "factor": 4, "buffer": 100}
        result = self.advise("--apply", changed, "--set", f"pipeline.stages.5={json.dumps(node)}")
        self.assertIn("Echo: no; upstream keeps up with the device.", result.stdout)
        self.assertIn("so it stays as it is", result.stdout)
        self.assertNotIn("for nothing", result.stdout)
        self.assertEqual(self.document(changed)["pipeline"]["stages"][5], node)

    def test_slow_reading_is_echoed_before_augmentation(self):
        changed = self.root / "changed.json"
        for _ in range(3):  # the machine may have stood still while it was measured
            advice = json.loads(self.advise("--json", "--apply", changed, "--overwrite", "--seconds", 2, delay=20).stdout)
            echo = advice["echo"]
            if abs(echo["r"] / advice["upstream_to_step_ratio"] - 1) < 0.3 and "for 400" in advice["other_advice"][0]["what"]:
                break
        self.assertTrue(advice["helps"], advice["why"])
        self.assertEqual((echo["stage"], echo["place"]), ("decode", "before augmentation"))
        self.assertEqual(echo["mode"], "on_demand")
        self.assertAlmostEqual(echo["factor"], min(16, math.ceil(2 * echo["r"])), delta=1e-6)
        self.assertAlmostEqual(echo["uses"], min(echo["factor"], echo["r"]), delta=1e-6)
        self.assertAlmostEqual(echo["r"] / advice["upstream_to_step_ratio"], 1, delta=0.3)
        self.assertGreater(echo["gain"], 1.05)
        self.assertEqual(advice["other_advice"][0]["change"], "cache")
        self.assertIn("for 400 samples", advice["other_advice"][0]["what"])
        self.assertTrue(changed.read_text().startswith("// Changed by"))
        written = self.document(changed)
        self.assertEqual(written["vars"]["data"], f"{self.root}/data")
        self.assertIn("${data}", json.dumps(written["pipeline"]))
        elsewhere = run("train", changed, "--set", "data=elsewhere", "--set", "train.steps=1", cwd=self.root)
        self.assertNotEqual(elsewhere.returncode, 0, elsewhere.stdout)
        self.assertIn("elsewhere", elsewhere.stderr)
        stages = [stage["stage"] for stage in advice["job"]["pipeline"]["stages"]]
        self.assertEqual(stages.count("echo"), 1)
        self.assertEqual(stages.index("echo"), stages.index("decode") + 1)
        trained = run("train", changed, "--set", "train.steps=6", "--set", "train.seconds=0", "--set",
                      "evaluation.every_steps=0", "--set", "pipeline.stages.5.buffer=16", cwd=self.root)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertGreater(int(re.search(r"(\d+) echoed", trained.stdout)[1]), 0, trained.stdout)

    def test_a_cap_is_not_taken_for_a_factor(self):
        node = {"stage": "echo", "mode": "on_demand", "factor": 12, "buffer": 100}
        advice = json.loads(self.advise("--json", "--set", f"pipeline.stages.5={json.dumps(node)}", delay=12).stdout)
        now, fixed = advice["baseline"], advice["without_echo"]
        self.assertLess(now["uses"], 12.001)
        self.assertAlmostEqual(now["uses"], min(12, advice["echo"]["r"]), delta=0.2 * now["uses"])
        self.assertGreater(now["examples_per_s"], fixed["examples_per_s"])
        if advice["keep_echo"]:
            self.assertFalse([change for change in advice["changes"] if "echo" in change], advice["changes"])

    def test_a_healthy_job_is_left_alone_and_checked(self):
        changed = self.root / "unchanged.json"
        changed.write_text('{"name": "older"}')
        result = self.advise("--apply", changed, "--overwrite", "--check")
        self.assertIn("Echo: no", result.stdout)
        self.assertRegex(result.stdout, r"as it is +\d+ +\d+ .*prediction / outcome")
        self.assertIn("nothing to change", result.stderr)
        self.assertIn("has changed nothing", changed.read_text())
        self.assertNotIn("older", changed.read_text())
        self.assertIn("${data}", json.dumps(self.document(changed)["pipeline"]))

    def test_both_jobs_run_in_turns(self):
        advice = json.loads(self.advise("--json", "--check", delay=12).stdout)
        checked = advice["checked"]
        self.assertEqual(checked["as_it_is"], checked["baseline"])
        for key, former in {"upstream_to_step_ratio": "r", "keep_echo": "keeps", "baseline": "as_it_is", "candidates": "edges",
                            "other_advice": "others"}.items():
            self.assertEqual(advice[key], advice[former])  # until 0.2
        for job in ("baseline", "changed"):
            for key in ("examples_per_s", "steps_per_s", "fresh_per_s", "device_wait_share"):
                self.assertGreaterEqual(checked[job][key], 0)
        self.assertAlmostEqual(checked["baseline"]["examples_per_s"], checked["baseline"]["fresh_per_s"], places=3)
        self.assertLess(checked["changed"]["fresh_per_s"], checked["changed"]["examples_per_s"])

    def test_a_slow_source_shows_what_has_come_and_can_be_stopped(self):
        with subprocess.Popen([PROGRAM, "advise", JOB, "--set", f"data={self.root}/data", "--set",
                               "pipeline.stages.2.milliseconds=5000", "--seconds", "0.1"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.root) as slow:
            self.addCleanup(slow.kill)
            shown = ""
            while "examples for a first batch of" not in shown:
                part = slow.stdout.read(1)
                self.assertTrue(part, shown)
                shown += part
            slow.send_signal(signal.SIGINT)
            self.assertIn("interrupted", shown + slow.stdout.read())

    def test_what_it_cannot_measure_is_named(self):
        for words, expected in ((["--set", "parallel.size=2"], "'parallel'"),
                                (["--set", 'pipeline.stages=[{"stage": "idx", "images": "nowhere"}]'], "'batch'"),
                                (["--set", "pipeline.stages.5.faktor=2"], "did you mean 'factor'"),
                                (["--seconds", "-1"], "seconds"),
                                (["--device", "no such device"], "no such device")):
            self.assertIn(expected, self.advise(*words, status=1 if "--seconds" not in words else 2).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
