#!/usr/bin/env python3
"""Parameter servers and their workers as processes: `echotrain launch --servers`, `echotrain parameter-server`, and what kills them.

    servers_test.py ECHOTRAIN PAINTER JOB

ECHOTRAIN is the program, PAINTER the quickstart's painter of digits, JOB the quickstart's job.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

from support import packed_digits, runner

PROGRAM, PAINTER, JOB = map(os.path.abspath, sys.argv[1:4])
run = runner(PROGRAM)
FOR_EVER = 10**9


class Servers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = packed_digits(run, PAINTER, 200, 50)
        cls.root = pathlib.Path(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            process.kill()
            process.communicate()

    def words(self, name, steps, **keys):
        settings = {"data": self.root / "data", "out": self.root / name if name else "", "train.seconds": 0,
                    "train.steps": steps, "evaluation.every_steps": 0, "pipeline.stages.2.milliseconds": 0,
                    "optimizer": json.dumps({"optimizer": "sgd"}), "schedule.learning_rate": 0.01,
                    "output.checkpoint_every_steps": 5,
                    "model": json.dumps({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 10}]})}
        settings.update({key.replace("__", "."): value for key, value in keys.items()})
        out = [JOB]
        for key, value in settings.items():
            out += ["--set", f"{key}={value}"]
        return out

    def parallel(self, meeting, **more):
        return json.dumps({"algorithm": "downpour", "servers": 2, "rendezvous": f"file:{self.root / meeting}",
                           "timeout": 30, **more})

    def begin(self, *words):
        process = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def begin_servers(self, meeting, **more):
        words = self.words("", 1, parallel=self.parallel(meeting, **more))
        return [self.begin("parameter-server", *words, "--shard", shard) for shard in range(2)]

    def begin_worker(self, meeting, name, steps, **more):
        return self.begin("train", *self.words(name, steps, parallel=self.parallel(meeting, **more)))

    def wait_for(self, what, *processes):
        deadline = time.monotonic() + 200
        while not what():
            for process in processes:
                self.assertIsNone(process.poll(), process.poll() is not None and process.communicate())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def steps(self, name):
        path = self.root / name / "metrics.jsonl"
        rows = path.read_text().split("\n")[:-1] if path.exists() else []
        return sum('"kind":"step"' in row for row in rows)

    def finish(self, process, status=0):
        out, errors = process.communicate(timeout=200)
        self.assertEqual(process.returncode, status, out + errors)
        return out, errors

    def test_launched_together(self):
        result = run("launch", "-n", 2, "--servers", 2, *self.words("launched", 15))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.steps("launched"), 15)
        self.assertTrue(list((self.root / "launched/checkpoints").glob("step-*15/servers.safetensors")))
        resumed = run("launch", "-n", 2, "--servers", 1, *self.words("launched", 18), "--resume")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual(self.steps("launched"), 18)
        result = run("launch", "-n", 2, "--servers", 1, *self.words("x", 15, parallel='{"algorithm": "diloco"}'))
        self.assertEqual(result.returncode, 2)
        self.assertIn("diloco", result.stderr)

    # Among more workers, the first one has another part of the data, of which it has read nothing.
    def test_another_number_of_workers_resumes_within_an_epoch(self):
        words = self.words("fewer", 7)
        result = run("launch", "-n", 2, "--servers", 1, *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        result = run("launch", "-n", 3, "--servers", 1, *self.words("fewer", 12), "--resume")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("whose data 2 workers shared, and now there are 3", result.stderr)
        self.assertEqual(self.steps("fewer"), 12)
        again = run("launch", "-n", 3, "--servers", 1, *self.words("fewer", 14), "--resume")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertNotIn("begins its part", again.stderr)

    # Nobody has anything to begin with: the other worker must not wait for it.
    def test_a_complete_run_is_resumed(self):
        words = self.words("complete", 5)
        result = run("launch", "-n", 2, "--servers", 2, *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("lost", result.stderr)
        result = run("launch", "-n", 2, "--servers", 2, *words, "--resume")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("lost", result.stderr)
        self.assertEqual(self.steps("complete"), 5)

    def test_a_shard_is_served_once_and_settings_agree(self):
        servers = self.begin_servers("meet0", consistency="sequential")
        first = self.begin_worker("meet0", "agreed", FOR_EVER, consistency="sequential")
        self.wait_for(lambda: self.steps("agreed") > 0, first, *servers)
        again = self.begin_servers("meet0", consistency="sequential")
        for shard, server in enumerate(again):
            _, errors = self.finish(server, 1)
            self.assertRegex(errors, f"shard {shard} at .* is served by process {servers[shard].pid} on ")
        for settings in ({}, {"algorithm": "easgd", "consistency": "sequential"}):
            _, errors = self.finish(self.begin_worker("meet0", "", 3, **settings), 1)
            name = "algorithm" if settings else "consistency"
            self.assertRegex(errors, f'this worker has parallel.{name} "[a-z]+", and shard 0 "[a-z]+"')
        first.send_signal(signal.SIGTERM)
        self.finish(first, 128 + signal.SIGTERM)
        for server in servers:
            self.finish(server)

    # However few steps it makes, the servers have what it has learnt.
    def test_elastic_averaging_exchanges_at_the_end(self):
        parallel = json.dumps({"algorithm": "easgd", "n_push": 1000, "elastic_rate": 1})
        result = run("launch", "-n", 1, "--servers", 2, *self.words("elastic", 5, parallel=parallel))
        self.assertEqual(result.returncode, 0, result.stderr)
        untrained = run("launch", "-n", 1, "--servers", 2, *self.words("still", 5, parallel=parallel, schedule__learning_rate=1e-9))
        self.assertEqual(untrained.returncode, 0, untrained.stderr)
        weights = [next((self.root / name / "checkpoints").glob("step-*5/weights.safetensors")).read_bytes()
                   for name in ("elastic", "still")]
        self.assertNotEqual(weights[0], weights[1])

    def test_what_does_not_fit_servers_is_told_once(self):
        words = self.words("", 1)
        for option in ("elastic", "sync_batch_norm"):
            result = run("launch", "-n", 2, "--servers", 2, *words, "--set", f"parallel.{option}=true")
            self.assertNotEqual(result.returncode, 0)
            self.assertRegex(result.stderr, rf"\A.*'downpour' does not support .*{option}.*\n\Z")
        decays = self.words("", 1, optimizer='{"optimizer": "adamw"}')  # by its default
        result = run("launch", "-n", 2, "--servers", 2, *decays)
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stderr, r"\A.*which is 0.01 here: set optimizer.weight_decay=0, and .*server_weight_decay.*\n\Z")
        result = run("launch", "-n", 2, "--servers", 2, "--restarts", 1, *words)
        self.assertEqual(result.returncode, 2)
        self.assertIn("--restarts is for elastic runs", result.stderr)

    def test_workers_are_killed_and_join_late(self):
        servers = self.begin_servers("meet1")
        first = self.begin_worker("meet1", "first", 10**9)
        self.wait_for(lambda: self.steps("first") > 3, first, *servers)
        victims = [self.begin_worker("meet1", "", FOR_EVER) for _ in range(2)]
        for victim in victims:
            self.wait_for(lambda: "step" in victim.stdout.readline(), first, *servers)
            victim.send_signal(signal.SIGKILL)
        late = self.begin_worker("meet1", "", 5)  # has the number of one of the dead
        out, _ = self.finish(late)
        self.assertIn("5 steps", out)
        before = self.steps("first")
        self.wait_for(lambda: self.steps("first") > before + 3, first, *servers)
        first.send_signal(signal.SIGTERM)
        self.finish(first, 128 + signal.SIGTERM)
        counts = set()
        for shard, server in enumerate(servers):
            out, errors = self.finish(server)
            self.assertEqual(len(re.findall("worker [1-9], whose [0-9]+ updates were applied", errors)), 2, errors)
            counts.add(re.search(f"shard {shard}: 4 workers, ([0-9]+) updates", out).group(1))
        # Both shards have applied the same updates, but for those that a victim was about to push.
        self.assertLessEqual(max(map(int, counts)) - min(map(int, counts)), 2)
        self.assertGreater(min(map(int, counts)), before)

    def test_a_killed_server_is_named(self):
        servers = self.begin_servers("meet2", consistency="sequential")
        first = self.begin_worker("meet2", "named", FOR_EVER, consistency="sequential")
        self.wait_for(lambda: self.steps("named") > 0, first, *servers)  # it is the first one now
        second = self.begin_worker("meet2", "", FOR_EVER, consistency="sequential")
        self.wait_for(lambda: "step" in second.stdout.readline(), first, second, *servers)
        servers[1].kill()
        for worker in (first, second):
            _, errors = self.finish(worker, 1)
            self.assertIn("shard 1 of 2 is lost", errors)

    def test_a_stopped_worker_holds_the_others_back_until_it_is_given_up(self):
        more = {"consistency": "bounded", "delay": 2, "timeout": 30}
        servers = self.begin_servers("meet3", **more)
        first = self.begin_worker("meet3", "held", FOR_EVER, **more)
        self.wait_for(lambda: self.steps("held") > 2, first, *servers)
        second = self.begin_worker("meet3", "", FOR_EVER, **more)
        self.wait_for(lambda: "step" in second.stdout.readline(), first, second, *servers)
        second.send_signal(signal.SIGSTOP)
        before = self.steps("held")
        # The servers give it up, and the first goes on: far beyond the delay.
        self.wait_for(lambda: self.steps("held") > before + 40, first, *servers)
        second.send_signal(signal.SIGKILL)
        first.send_signal(signal.SIGTERM)
        self.finish(first, 128 + signal.SIGTERM)
        for server in servers:
            self.finish(server)

    def test_a_server_that_is_not_there_is_named(self):
        worker = self.begin_worker("nowhere", "", 3, timeout=1)
        _, errors = self.finish(worker, 1)
        self.assertIn("shard 0 did not answer", errors)
        server = self.begin_servers("nobody", timeout=1)[0]
        _, errors = self.finish(server, 1)
        self.assertIn("no worker came", errors)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
