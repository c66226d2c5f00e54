#!/usr/bin/env python3
"""Studies on the command line: what `echotrain study` prints and keeps, and what interrupts and kills it.

    study_test.py ECHOTRAIN PAINTER STUDY

ECHOTRAIN is the program, PAINTER the quickstart's painter of digits, STUDY the sample study of drawn digits.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from support import packed_digits, runner

PROGRAM, PAINTER, STUDY = map(os.path.abspath, sys.argv[1:4])
run = runner(PROGRAM)


class Studies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = packed_digits(run, PAINTER, 400, 100)
        cls.root = pathlib.Path(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def study(self, name, **changes):
        """A small study beside the data: the sample with `changes`."""
        study = json.loads(pathlib.Path(STUDY).read_text())
        study["job"] = str(pathlib.Path(STUDY).parent / study["job"])
        study["search"].update(trials=2, searches=1)
        study.update({"budget": {"fresh": 1280}, "evaluate": {"every_fresh": 320}, "stop_early": "none",
                      "goal": {"metric": "accuracy", "target": 0.1}})
        study.update(changes)
        path = self.root / f"{name}.json"
        path.write_text(json.dumps(study))
        return path

    def words(self, path, *more):
        return ["study", path, "--set", f"data={self.root / 'data'}", "--out", self.root / path.stem, *more]

    def run_study(self, path, *more):
        result = run(*self.words(path, *more), cwd=self.root)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def records(self, path):
        lines = (self.root / path.stem / "trials.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def write_records(self, path, records):
        (self.root / path.stem / "trials.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))

    def begin(self, path, *more):
        return subprocess.Popen([PROGRAM, *map(str, self.words(path, *more))], cwd=self.root, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait_for_records(self, path, count):
        file = self.root / path.stem / "trials.jsonl"
        until = time.monotonic() + 120
        while not file.exists() or file.read_bytes().count(b"\n") < count:
            self.assertLess(time.monotonic(), until, "no records come")
            time.sleep(0.01)

    def test_prints_a_line_and_a_row_for_each_condition(self):
        path = self.study("plain")
        out = self.run_study(path)
        self.assertIn(f"output: {self.root / 'plain'}", out)
        self.assertRegex(out, r"quickstart: variant=none, factor=1: .*best accuracy 0\.\d+")
        table = out[out.index("\ncondition "):]
        self.assertIn("fresh examples to accuracy 0.1", table)
        self.assertEqual(len(table[:table.index("wrote ")].strip().splitlines()), 4)
        self.assertIn(f"wrote {self.root / 'plain' / 'report.html'}", table)
        for name in ("report.html", "results.json", "conditions.csv", "trials.csv"):
            self.assertGreater((self.root / "plain" / name).stat().st_size, 100)
        records = self.records(path)
        self.assertEqual(len(records), 6)
        self.assertEqual({record["v"] for record in records}, {1})
        self.assertEqual(len({record["seed"] for record in records}), 6)
        self.assertEqual(records[0]["condition"], {"variant": "none", "factor": 1})
        shown = self.run_study(path, "--report")
        self.assertEqual(shown.strip(), table.strip())
        resolved = json.loads((self.root / "plain" / "study.json").read_text())
        self.assertEqual(resolved["workloads"][0]["name"], "quickstart")

    def test_a_plan_says_what_would_run_and_runs_nothing(self):
        path = self.study("plan", **{"for": {"factor": [2, 4.0]}, "set": ["optimizer.momentum=0.5", "pipeline.stages.5.factor=${factor}"],
                                     "conditions": [{"labels": {"echo": "none"}}, {"labels": {"echo": "twice"}, "trials": 3}]})
        study = json.loads(path.read_text())
        del study["search"]["space"]["optimizer.momentum"]
        path.write_text(json.dumps(study))
        out = self.run_study(path, "--plan")
        self.assertIn("Echoing drawn digits: 10 trials", out)
        self.assertIn("each trial: until a validation accuracy above 0.1, at most 1,280 fresh examples", out)
        self.assertIn("all trials: at most 12,800 fresh examples", out)
        self.assertRegex(out, r"echo=none, factor=2 +1 +2\n")
        self.assertRegex(out, r"echo=twice, factor=4 +1 +3\n")
        self.assertIn("echo=twice, factor=4\n    pipeline.stages.5.factor=4\n", out)
        self.assertIn("set:        optimizer.momentum=0.5", out)
        self.assertFalse((self.root / "plan").exists())

    def test_goes_on_with_what_was_added(self):
        path = self.study("longer", conditions=[{"labels": {"factor": 1}}])
        self.run_study(path)
        first = self.records(path)
        study = json.loads(path.read_text())
        study["search"].update(trials=3, searches=2)
        path.write_text(json.dumps(study))
        self.run_study(path)
        self.assertEqual(self.records(path)[:2], first)
        self.assertEqual(len(self.records(path)), 6)
        study["budget"]["fresh"] = 640
        path.write_text(json.dumps(study))
        refused = run(*self.words(path), cwd=self.root)
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stderr, r"train\.fresh' was 1280 and is 640.*--overwrite")
        self.run_study(path, "--overwrite")
        self.assertTrue(all(record["spent"]["fresh"] <= 704 for record in self.records(path)))

    def test_a_killed_study_goes_on_without_a_finished_trial(self):
        path = self.study("killed", goal={"metric": "loss"})
        process = self.begin(path)
        self.wait_for_records(path, 2)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        before = (self.root / "killed" / "trials.jsonl").read_bytes()
        whole = before[:before.rindex(b"\n") + 1]
        self.run_study(path)
        after = (self.root / "killed" / "trials.jsonl").read_bytes()
        self.assertTrue(after.startswith(whole))
        places = [(json.dumps(r["condition"]), r["search"], r["trial"]) for r in self.records(path)]
        self.assertEqual(len(places), 6)
        self.assertEqual(len(set(places)), 6)

    def test_ctrl_c_ends_it_and_says_how_to_go_on(self):
        path = self.study("interrupted", goal={"metric": "loss"}, budget={"fresh": 10**9},
                          evaluate={"every_fresh": 10**9})
        process = self.begin(path)
        until = time.monotonic() + 120
        while not (self.root / "interrupted" / "trials.jsonl").exists():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        time.sleep(0.5)  # in the midst of a trial, or before it
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertRegex(told, r"0 of 6 trials are done and saved in '.*interrupted'; continue with the same command")

    def test_one_process_has_the_folder(self):
        path = self.study("claimed", goal={"metric": "loss"}, budget={"fresh": 10**9},
                          evaluate={"every_fresh": 10**9})
        process = self.begin(path)
        try:
            until = time.monotonic() + 120
            while not (self.root / "claimed" / "trials.jsonl").exists():
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            refused = run(*self.words(path), cwd=self.root)
            self.assertEqual(refused.returncode, 1)
            self.assertRegex(refused.stderr, r"another study writes into .*--out FOLDER")
        finally:
            process.kill()
            process.communicate()

    def test_folders_of_others_are_left_alone(self):
        path = self.study("mine", conditions=[{"labels": {"factor": 1}}])
        self.run_study(path)
        before = (self.root / "mine" / "results.json").read_bytes()
        other = self.study("other", conditions=[{"labels": {"kind": "x"}}])
        for more in ([], ["--report"]):
            words = [*self.words(other, *more)]
            words[words.index("--out") + 1] = self.root / "mine"
            refused = run(*words, cwd=self.root)
            self.assertEqual(refused.returncode, 1)
            self.assertRegex(refused.stderr, "mine' holds another study, .*--out FOLDER")
        self.assertEqual((self.root / "mine" / "results.json").read_bytes(), before)

    def test_warns_of_seconds_of_several_devices(self):
        path = self.study("devices", conditions=[{"labels": {"factor": 1}}], budget={"seconds": 0.2},
                          evaluate={"every_steps": 5})
        self.assertNotIn("devices, which", self.run_study(path))
        records = self.records(path)
        records[0]["device"] = "another device"
        self.write_records(path, records)
        said = self.run_study(path, "--report")
        self.assertRegex(said, r"warning: quickstart: scores are in seconds, .* 2 devices")
        self.assertNotIn("hosts", said)
        records[1]["host"] = ""  # of a version that did not record it
        self.write_records(path, records)
        self.assertNotIn("hosts", self.run_study(path, "--report"))
        records[1]["host"] = "a faster processor, 64 threads"
        self.write_records(path, records)
        self.assertRegex(self.run_study(path, "--report"), r"warning: quickstart: scores are in seconds, .* 2 hosts")

    def test_failures_are_told(self):
        path = self.study("failing")
        result = run("study", path, "--set", "data=/nowhere", "--out", self.root / "failing", cwd=self.root)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr.count("\n"), 2, result.stderr)
        self.assertRegex(result.stderr, r"the first 3 trials have all failed with one error: .*/nowhere")

    def test_a_study_without_a_trial_that_trained_has_failed(self):
        pattern = f"pipeline.stages.0.pattern=/nowhere${{number}}"
        path = self.study("allfailed", conditions=[{"for": {"number": [1, 2]}, "set": [pattern]}])
        result = run(*self.words(path), cwd=self.root)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"trial 0 of search 0 of quickstart \(number=1\) has failed: .*nowhere1")
        self.assertRegex(result.stderr, r"all 4 trials of the study have failed; '.*allfailed/trials.jsonl' has the errors")
        self.assertTrue((self.root / "allfailed" / "report.html").exists())
        path = self.study("onefailed", conditions=[{"labels": {"number": 0}},
                                                   {"labels": {"number": 1}, "set": [pattern]}])
        self.run_study(path)

    def test_reports_of_no_study_are_refused(self):
        path = self.study("typo")
        result = run(*self.words(path, "--report"), cwd=self.root)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"there is no study in '.*typo'")
        self.assertEqual(result.stdout, "")
        self.assertFalse((self.root / "typo").exists())

    def test_a_long_label_ends_a_report_all_the_same(self):
        path = self.study("long", conditions=[{"labels": {"a": "x" * 30000, "b": "word " * 6000}}])
        out = self.run_study(path)
        self.assertIn("report.html", out)
        for figure in (self.root / "long" / "figures").glob("*.svg"):
            self.assertNotIn("x" * 1000, figure.read_text())

    def test_mistakes_are_named(self):
        for words, problem in (
                (["study", self.study("a", serch=1)], "did you mean 'search'"),
                (["study", self.study("b"), "--set", "optimizer.momentum=0.5"], "which the search draws"),
                (["study", self.study("c"), "--parallel", "-1"], "--parallel is a number from 0"),
                (["study", self.study("e", baseline={"varient": "none"}), "--set", "data=x"], "did you mean 'variant'"),
                (["study", self.study("f"), "--set", "data=x", "--set", "seed=2"], "which the study sets in each"),
                (["study", self.study("d", figures=[{"kind": "to_targte"}]), "--set", "data=x"], "did you mean 'to_target'"),
                (["study", self.root / "nowhere.json"], "nowhere.json")):
            result = run(*words, cwd=self.root)
            self.assertIn(result.returncode, (1, 2))
            self.assertIn(problem, result.stderr)


if __name__ == "__main__":
    os.environ.pop("ECHOTRAIN_TEST_COMPARE", None)
    unittest.main(argv=sys.argv[:1])
