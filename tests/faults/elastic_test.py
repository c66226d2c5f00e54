#!/usr/bin/env python3
"""Elastic runs: ranks that are lost, that join, and that think each other lost.

    elastic_test.py ECHOTRAIN
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from networks import Network, what_is_missing
from ranks import SAMPLES, Cluster, job, scratch, write_data

PROGRAM = os.path.abspath(sys.argv[1])


class Elastic(unittest.TestCase):
    def setUp(self):
        folder = scratch()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        write_data(self.root)

    def cluster(self, name, size, **options):
        options = {"epochs": 3, "milliseconds": 12, "timeout": 30, "elastic": True, **options}
        cluster = Cluster(PROGRAM, self.root, name, job(self.root, self.root / name, **options), size)
        self.addCleanup(cluster.close)
        return cluster

    def expect_end(self, cluster, key):
        self.assertEqual(cluster.wait(key), 0, cluster.report())

    # Until it and another rank have told so.
    def wait_for_newcomer(self, cluster, rank, joined):
        def joins():
            return "3 ranks go on from step" in cluster.said(rank) and "this is rank 2" in cluster.said(joined)

        cluster.wait_for(lambda: joins() or not cluster.running(), "nobody joined")
        self.assertTrue(joins(), cluster.report())

    # Steps are told once each, and every sample of every epoch is.
    def expect_whole(self, cluster, epochs):
        rows = cluster.rows()
        self.assertEqual([row["step"] for row in rows], list(range(1, len(rows) + 1)))
        self.assertEqual(rows[-1]["examples"], epochs * SAMPLES)

    def test_survivors_go_on_from_the_newest_checkpoint(self):
        for victim in (0, 2):  # the one that writes, and one that does not
            cluster = self.cluster(f"killed{victim}", 3, epochs=6).start_all()
            cluster.wait_for_step(6)
            cluster.processes[victim].kill()
            survivors = {0, 1, 2} - {victim}
            for rank in survivors:
                self.expect_end(cluster, rank)
                self.assertIn("2 ranks go on from step", cluster.said(rank))
            # To the other one, the one that knew first may be the one that has left.
            self.assertTrue(any(f"rank {victim} is lost" in cluster.said(rank) for rank in survivors), cluster.report())
            self.expect_whole(cluster, 6)
            self.assertEqual(cluster.helpers_left(), [])

    def test_without_a_checkpoint_the_run_begins_anew(self):
        cluster = self.cluster("anew", 2, epochs=6, every_steps=1000)
        cluster.start_all("--set", "output.checkpoint_every_epochs=0")
        cluster.wait_for_step(3)
        cluster.processes[1].kill()
        self.expect_end(cluster, 0)
        self.assertIn("1 rank goes on from step 0", cluster.said(0))
        self.expect_whole(cluster, 6)

    def test_too_few_ranks_end_with_an_error(self):
        cluster = self.cluster("few", 3, epochs=500, min_ranks=3).start_all()
        cluster.wait_for_step(4)
        cluster.processes[1].kill()
        for rank in (0, 2):
            self.assertEqual(cluster.wait(rank), 1)
            self.assertIn("rank 1 of 3 is lost: 2 ranks would go on, and min_ranks is 3",
                          cluster.said(rank))

    def test_a_new_rank_joins_at_the_end_of_an_epoch(self):
        cluster = self.cluster("grown", 2, epochs=500).start_all()
        cluster.wait_for_step(2)
        joined = cluster.start(0, joins=True)
        self.wait_for_newcomer(cluster, 0, joined)
        began = int(cluster.said(0).rpartition("go on from step ")[2].partition(";")[0])
        self.assertEqual(began % (SAMPLES // 8), 0, "the end of an epoch of two ranks")
        cluster.wait_for_step(began + SAMPLES // 12 + 1)
        for rank in cluster.processes:
            cluster.processes[rank].send_signal(signal.SIGTERM)
        for rank in cluster.processes:
            cluster.wait(rank)
        rows = cluster.rows()
        self.assertEqual([row["step"] for row in rows], list(range(1, len(rows) + 1)))
        per_epoch = {row["step"]: row["examples"] for row in rows}
        self.assertEqual(per_epoch[began + SAMPLES // 12] - per_epoch[began], SAMPLES)

    # Started without a launcher, by a job that says nothing but where the others meet.
    def test_a_rank_that_joins_needs_no_number(self):
        cluster = self.cluster("numberless", 2, epochs=500).start_all()
        cluster.wait_for_step(2)
        joined = cluster.start(0, "--set", f"parallel.rendezvous=file:{cluster.store}", "--set", "parallel.join=true",
                               prefix=("env", "-u", "ECHOTRAIN_RANK", "-u", "ECHOTRAIN_SIZE", "-u", "ECHOTRAIN_RENDEZVOUS",
                                       "-u", "ECHOTRAIN_JOIN"),
                               joins=True)
        self.wait_for_newcomer(cluster, 0, joined)
        for rank in cluster.processes:
            cluster.processes[rank].send_signal(signal.SIGTERM)
        for rank in cluster.processes:
            cluster.wait(rank)

    # One dies, another waits to join.
    def test_shrinks_and_grows(self):
        cluster = self.cluster("both", 3, epochs=500).start_all()
        cluster.wait_for_step(2)
        cluster.processes[0].kill()
        joined = cluster.start(0, joins=True)
        self.wait_for_newcomer(cluster, 1, joined)
        self.assertIn("2 ranks go on", cluster.said(1))
        cluster.wait_for_step(cluster.step() + 5)
        self.assertNotIn("lost", cluster.said(joined))
        for rank in (1, 2, joined):
            cluster.processes[rank].send_signal(signal.SIGTERM)
        for rank in (1, 2, joined):
            cluster.wait(rank)
        rows = cluster.rows()
        self.assertEqual([row["step"] for row in rows], list(range(1, len(rows) + 1)))

    # A part of the ranks stands still until the others have gone on without it.
    def test_who_was_taken_for_lost_ends_with_an_error_that_says_so(self):
        cluster = self.cluster("split", 3, epochs=9, timeout=20).start_all()
        cluster.wait_for_step(6)
        cluster.signal(2, signal.SIGSTOP)
        cluster.wait_for(lambda: "2 ranks go on" in cluster.said(0) or not cluster.running(), "the others do not go on")
        cluster.signal(2, signal.SIGCONT)
        self.assertEqual(cluster.wait(2), 1, cluster.report())
        self.assertIn("the run continues without this rank", cluster.said(2))
        for rank in (0, 1):
            self.expect_end(cluster, rank)
        self.expect_whole(cluster, 9)

    # Both parts see the folder in which ranks meet, and think each other dead.
    @unittest.skipIf(what_is_missing()["link"], f"SKIPPED: {what_is_missing()['link']}")
    def test_of_two_parts_of_a_network_the_greater_goes_on(self):
        network = Network("split", 3)
        self.addCleanup(network.close)
        cluster = self.cluster("network", 3, epochs=9, timeout=20)
        for rank in range(3):
            cluster.start(rank, "--set", f"parallel.host={network.address(rank)}", prefix=network.prefix(rank))
        cluster.wait_for_step(6)
        network.cut(2)
        self.assertEqual(cluster.wait(2), 1, cluster.report())
        self.assertIn("the run continues without this rank", cluster.said(2))
        for rank in (0, 1):
            self.expect_end(cluster, rank)
        self.expect_whole(cluster, 9)

    # Its writer cannot come back while another one writes.
    def test_a_first_rank_that_stands_still_keeps_the_folder(self):
        cluster = self.cluster("folder", 3, epochs=500, timeout=20).start_all()
        cluster.wait_for_step(6)
        os.killpg(cluster.processes[0].pid, signal.SIGSTOP)
        for rank in (1, 2):
            self.assertEqual(cluster.wait(rank), 1, cluster.report())
            self.assertIn("another run writes into", cluster.said(rank))

    def test_launch_starts_a_rank_again(self):
        (self.root / "job.json").write_text(json.dumps(job(self.root, self.root / "launched", epochs=500, milliseconds=2,
                                                           timeout=30, elastic=True)))
        errors = open(self.root / "launch.err", "w+")
        launch = subprocess.Popen([PROGRAM, "launch", "-n", "2", "--restarts", "1", self.root / "job.json"],
                                  stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)

        def said():
            return (self.root / "launch.err").read_text()

        def wait_for(text):
            deadline = time.monotonic() + 120
            while said().count(text) < 1:
                self.assertIsNone(launch.poll(), said())
                self.assertLess(time.monotonic(), deadline, said())
                time.sleep(0.02)

        def wait_for_rows():  # of both: what was started again has begun
            step = int(said().rpartition("2 ranks go on from step ")[2].partition(";")[0])
            metrics = self.root / "launched" / "metrics.jsonl"
            while f'"step":{step + 2},' not in metrics.read_text():
                self.assertIsNone(launch.poll(), said())
                time.sleep(0.02)

        try:
            while not list((self.root / "launched").glob("checkpoints/step-*[0-9]/manifest.json")):
                self.assertIsNone(launch.poll(), said())
                time.sleep(0.02)
            pids = pathlib.Path(f"/proc/{launch.pid}/task/{launch.pid}/children").read_text().split()
            os.kill(int(pids[0]), signal.SIGKILL)  # rank 0, which writes
            wait_for("rank 0 was ended by signal 9; it is started again")
            wait_for("2 ranks go on")
            wait_for_rows()
            launch.send_signal(signal.SIGTERM)
            self.assertEqual(launch.wait(120), 128 + signal.SIGTERM, said())
        finally:
            launch.kill()
            launch.wait()
            errors.close()

    def test_elastic_jobs_say_what_they_need(self):
        for key, value, message in (("output.dir", "", "an output.dir"),
                                    ("output.checkpoint_every_steps", "0", "checkpoints to continue from")):
            cluster = self.cluster(key, 2)
            cluster.start(0, "--set", f"{key}={value}", "--set", "output.checkpoint_every_epochs=0")
            self.assertEqual(cluster.wait(0), 1)
            self.assertIn(f"parallel.elastic needs {message}", cluster.said(0))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:])
