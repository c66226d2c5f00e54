#!/usr/bin/env python3
"""Ranks that `echotrain launch` starts on this machine.

    launch_test.py ECHOTRAIN PAINTER JOB

ECHOTRAIN is the program, PAINTER the quickstart's painter of digits, JOB the quickstart's job.
"""

import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock

from support import free_port, packed_digits, runner

PROGRAM, PAINTER, JOB = map(os.path.abspath, sys.argv[1:4])
run = runner(PROGRAM)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def environment(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return dict(word.split(b"=", 1) for word in file.read().split(b"\0") if b"=" in word)


def state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(") ", 1)[1][0]


def signal_pends(pid, number):
    masks = re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


class Launch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = packed_digits(run, PAINTER, 200, 121)
        cls.root = pathlib.Path(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def words(self, name, **keys):
        settings = {"data": self.root / "data", "out": self.root / name, "train.seconds": 0, "train.steps": 6,
                    "evaluation.every_epochs": 0,
                    "output.checkpoint_every_steps": 2, "model": json.dumps(
                        {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 10}]})}
        settings.update({key.replace("__", "."): value for key, value in keys.items()})
        if "pipeline" not in settings:
            settings["pipeline.stages.2.milliseconds"] = 0
        out = [JOB]
        for key, value in settings.items():
            out += ["--set", f"{key}={value}"]
        return out

    def losses(self, name):
        rows = map(json.loads, (self.root / name / "metrics.jsonl").read_text().splitlines())
        return [(row["step"], row["loss"], row["examples"]) for row in rows if row["kind"] == "step"]

    def begin(self, name, size=2, **keys):
        """A run of `size` ranks that goes on until somebody ends it, when it has written a checkpoint; and its ranks' processes."""
        process = subprocess.Popen([PROGRAM, "launch", "-n", str(size), *self.words(name, train__steps=10**9, **keys)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        deadline = time.monotonic() + 240
        while not list((self.root / name / "checkpoints").glob("step-*[0-9]/manifest.json")):
            self.assertIsNone(process.poll(), process.poll() is not None and process.communicate())
            self.assertLess(time.monotonic(), deadline, "no checkpoint came")
            time.sleep(0.05)
        ranks = {int(environment(pid)[b"ECHOTRAIN_RANK"]): pid for pid in children(process.pid)}
        return process, ranks

    def ended(self, process, ranks):
        out, errors = process.communicate(timeout=120)
        for pid in ranks.values():
            self.assertFalse(os.path.exists(f"/proc/{pid}"), f"rank process {pid} is left")
        return out, errors

    def test_ranks_train_as_one_with_all_their_rows(self):
        # One after the other, as they lie in the shard: what echo repeats and shuffles is each rank's own.
        plain = [row for row in json.loads(pathlib.Path(JOB).read_text())["pipeline"]["stages"]
                 if row["stage"] in ("webdataset", "label", "decode", "normalize", "batch")]
        for row in plain:
            row.pop("shuffle", None)

        def words(name, rows):
            stages = [{**row, "size": rows} if row["stage"] == "batch" else row for row in plain]
            return self.words(name, pipeline=json.dumps({"stages": stages}))

        for name in ("two", "again"):
            result = run("launch", "-n", "2", *words(name, 16))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("6 steps, 192 examples", result.stdout)
            self.assertEqual(result.stdout.count("6 steps"), 1, "one display for all")
        self.assertEqual(self.losses("two"), self.losses("again"))
        alone = run("train", *words("one", 32))
        self.assertEqual(alone.returncode, 0, alone.stderr)
        for two, one in zip(self.losses("two"), self.losses("one"), strict=True):
            self.assertEqual((two[0], two[2]), (one[0], one[2]))
            self.assertAlmostEqual(two[1], one[1], places=3)

    def test_devices_of_a_process_are_ranks(self):
        """Two devices of one process train as two processes do, to the bit; and two processes with two each as four."""
        def losses(name, *words):
            result = run(*words, *self.words(name))
            self.assertEqual(result.returncode, 0, result.stderr)
            return self.losses(name), result.stdout

        devices = ["--set", 'parallel.devices=["0", "0"]']
        alone, shown = losses("devices", "train", *devices)
        self.assertIn("the first of 2", shown)
        self.assertEqual(alone, losses("processes", "launch", "-n", "2")[0])
        self.assertEqual(len(alone), 6)
        self.assertEqual(losses("both", "launch", "-n", "2", *devices)[0], losses("four", "launch", "-n", "4")[0])
        result = run("eval", *self.words("devices"), *devices)
        self.assertEqual(result.returncode, 0, result.stderr)
        result = run("train", "--device", "0", *self.words("mistaken"), *devices)
        self.assertEqual(result.returncode, 2)
        self.assertIn("parallel.devices", result.stderr)

    def test_variables_of_torchrun_and_kubernetes_make_ranks(self):
        port = free_port() - 1  # the ranks take the port above torchrun's
        ranks = [subprocess.Popen([PROGRAM, "train", *self.words("variables"), "--set", "parallel={}"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost",
                                       "MASTER_PORT": str(port)}) for rank in range(2)]
        for rank in ranks:
            _, errors = rank.communicate(timeout=240)
            self.assertEqual(rank.returncode, 0, errors)
        launched = run("launch", "-n", "2", *self.words("launched"))
        self.assertEqual(launched.returncode, 0, launched.stderr)
        self.assertEqual(self.losses("variables"), self.losses("launched"))

    def test_ranks_share_a_cache(self):
        cache = {"stage": "cache", "shared": str(self.root / "decoded")}  # instead of an echo node of the factor 1
        none = {"stage": "cache", "bytes": 1}
        for name, stage in (("uncached", none), ("cached", cache), ("warm", cache)):
            done = run("launch", "-n", "2", *self.words(name, pipeline__stages__5=json.dumps(stage)))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.losses(name), self.losses("uncached"), name)
        index = sum(os.path.getsize(file) - 64 for file in (self.root / "decoded").glob("part-*.index"))
        self.assertGreaterEqual(index, 200 * 48, "each digit is there")
        done = run("launch", "-n", "2", *self.words("other", pipeline__stages__5=json.dumps(cache),
                                                    pipeline__stages__4__channels="rgb"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("'channels' was \"gray\" and is \"rgb\". Remove the folder", done.stderr)

    def test_a_terminal_has_one_display_and_is_told_why_it_ends(self):
        terminal, inner = pty.openpty()
        process = subprocess.Popen([PROGRAM, "launch", "-n", "2", *self.words("terminal", train__steps=10**9)],
                                   stdout=inner, stderr=inner, stdin=inner, start_new_session=True)
        os.close(inner)
        shown = b""

        def read_until(done):
            nonlocal shown
            deadline = time.monotonic() + 120
            while not done():
                self.assertLess(time.monotonic(), deadline, shown)
                if select.select([terminal], [], [], 0.1)[0]:
                    try:
                        shown += os.read(terminal, 65536)
                    except OSError:  # all who wrote there have ended
                        return

        def steps():  # as the display tells them, from left to right
            return [int(n) for n in re.findall(rb"step (\d+)\D", shown)]

        read_until(lambda: len(steps()) > 5)
        self.assertEqual(steps(), sorted(steps()), "two displays would go forth and back")
        self.assertIn(b"\r\x1b[K", shown)
        ranks = {int(environment(pid)[b"ECHOTRAIN_RANK"]): pid for pid in children(process.pid)}
        os.kill(ranks[1], signal.SIGKILL)
        read_until(lambda: False)
        self.assertNotEqual(process.wait(60), 0)
        os.close(terminal)
        self.assertRegex(shown, rb"\r\x1b\[Kechotrain: rank 1 was ended by signal 9", "not behind the progress")
        for pid in ranks.values():
            self.assertFalse(os.path.exists(f"/proc/{pid}"), f"rank process {pid} is left")

    MESH = {"mesh": {"pipeline": 2, "tensor": 2}, "micro_batches": 4}

    def stages(self, **keys):
        """The settings of a model in two stages."""
        return {"parallel": json.dumps({"mesh": {"pipeline": 2}, "micro_batches": 4, "schedule": "1f1b"}),
                "model": json.dumps({"layers": [{"layer": "flatten"},
                                                {"layer": "dense", "units": 32, "activation": "relu"},
                                                {"layer": "dense", "units": 16, "activation": "relu"},
                                                {"layer": "dense", "units": 10}]}), **keys}

    def test_stages_of_a_model_train_as_one_device(self):
        staged = run("launch", "-n", "2", *self.words("staged", **self.stages()))
        self.assertEqual(staged.returncode, 0, staged.stderr)
        self.assertRegex(staged.stderr, r"stage 1: .* work, [0-9]+ parameters, about [0-9.]+ kB")
        alone = run("train", *self.words("in-one", model=self.stages()["model"]))
        self.assertEqual(alone.returncode, 0, alone.stderr)
        for two, one in zip(self.losses("staged"), self.losses("in-one"), strict=True):
            self.assertEqual((two[0], two[2]), (one[0], one[2]))
            self.assertAlmostEqual(two[1], one[1], places=3)

    def test_stages_whose_tensors_are_shared_train_as_one_device(self):
        keys = self.stages(parallel=json.dumps(self.MESH))
        optimizer = {"optimizer": json.dumps({"optimizer": "sgd", "momentum": 0.9, "clip_norm": 0.5})}
        meshed = run("launch", "-n", "4", *self.words("meshed", **keys, **optimizer))
        self.assertEqual(meshed.returncode, 0, meshed.stderr)
        self.assertEqual(meshed.stderr.count("1 x 2 x 2 (data x pipeline x tensor)"), 1, meshed.stderr)
        self.assertEqual(meshed.stderr.count("dense_2: split by columns"), 1, meshed.stderr)
        self.assertEqual(meshed.stderr.count("stage 1: "), 1, meshed.stderr)
        alone = run("train", *self.words("unmeshed", model=keys["model"], **optimizer))
        self.assertEqual(alone.returncode, 0, alone.stderr)
        for four, one in zip(self.losses("meshed"), self.losses("unmeshed"), strict=True):
            self.assertEqual((four[0], four[2]), (one[0], one[2]))
            self.assertAlmostEqual(four[1], one[1], places=3)
        # One device goes on with their checkpoint, and two stages with that one's.
        more = run("train", *self.words("meshed", model=keys["model"], train__steps=8, **optimizer), "--resume")
        self.assertEqual(more.returncode, 0, more.stderr)
        two = run("launch", "-n", "2", *self.words("meshed", **self.stages(train__steps=10), **optimizer), "--resume")
        self.assertEqual(two.returncode, 0, two.stderr)
        self.assertEqual(len(self.losses("meshed")), 10)

    def test_a_killed_stage_ends_all(self):
        process, ranks = self.begin("stage-killed", **self.stages())
        os.kill(ranks[1], signal.SIGKILL)
        out, errors = self.ended(process, ranks)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("rank 1 is lost", errors)

    def test_a_killed_rank_of_a_mesh_ends_all(self):
        process, ranks = self.begin("mesh-killed", 4, **self.stages(parallel=json.dumps(self.MESH)))
        os.kill(ranks[3], signal.SIGKILL)
        out, errors = self.ended(process, ranks)
        self.assertNotEqual(process.returncode, 0)
        # Who learns of it first depends on the moment: a neighbour along an axis or the whole group.
        self.assertRegex(errors, "rank 3 is lost|rank 3: among those along .*: rank 1 is lost")

    def test_ranks_share_the_tensors_of_a_model(self):
        model = json.dumps({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 24, "activation": "relu"},
                                       {"layer": "dense", "units": 10}]})
        shared = run("launch", "-n", "2", *self.words("shared", model=model), "--set", 'parallel.mesh={"tensor": 2}')
        self.assertEqual(shared.returncode, 0, shared.stderr)
        self.assertEqual(shared.stderr.count("dense_2: split by columns"), 1, shared.stderr)
        self.assertRegex(shared.stderr, r"dense_2: split by columns, [0-9.]+ kB less on each rank")
        alone = run("train", *self.words("whole", model=model))
        self.assertEqual(alone.returncode, 0, alone.stderr)
        for two, one in zip(self.losses("shared"), self.losses("whole"), strict=True):
            self.assertEqual((two[0], two[2]), (one[0], one[2]))
            self.assertAlmostEqual(two[1], one[1], places=3)
        # Either goes on with the other's checkpoint.
        more = run("train", *self.words("shared", model=model, train__steps=8), "--resume")
        self.assertEqual(more.returncode, 0, more.stderr)
        self.assertIn("8 steps", more.stdout)

    def test_ranks_share_out_the_update(self):
        def train(name, stage, *more, **keys):
            result = run("launch", "-n", "2", *self.words(name, optimizer=json.dumps({"optimizer": "adamw"}), **keys),
                         "--set", f"parallel.zero_stage={stage}", *more)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stderr.count("2 ranks shard"), int(stage > 0), result.stderr)

        train("all", 0)
        train("state", 1)
        self.assertEqual(self.losses("state"), self.losses("all"))
        train("gradients", 2)
        for own, all in zip(self.losses("gradients"), self.losses("all"), strict=True):
            self.assertAlmostEqual(own[1], all[1], places=4)
        train("state", 2, "--resume", train__steps=8)  # another stage goes on
        self.assertEqual(len(self.losses("state")), 8)
        plain = run("launch", "-n", "2", *self.words("plain", optimizer='{"optimizer": "sgd"}'), "--set", "parallel.zero_stage=1")
        self.assertIn("each saves 0 bytes, as this optimizer keeps no state", plain.stderr)

    def test_mistakes_are_told_once(self):
        result = run("launch", "-n", "3", *self.words("mistake", optimizer__optimizer="sdg"))
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr.count("sdg"), 1, result.stderr)
        for words in (["launch", JOB], ["launch", "-n", "0", JOB]):
            result = run(*words)
            self.assertEqual(result.returncode, 2)
            self.assertIn("echotrain launch -n 2", result.stderr)

    def test_a_parent_that_ignores_its_children_does_not_keep_it_waiting(self):
        words = ["launch", "-n", "2", *self.words("ignored")]
        former = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # kept by the program it starts
        try:
            process = subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        finally:
            signal.signal(signal.SIGCHLD, former)
        try:
            out, _ = process.communicate(timeout=240)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 0, out)
        self.assertIn("6 steps", out)

    def test_help_has_examples_on_lines_of_their_own(self):
        self.assertIn("\n  echotrain launch -n 3 job.json --servers 2\n", run("launch", "--help").stdout)

    def test_a_job_with_ranks_needs_a_launcher(self):
        result = run("train", *self.words("alone"), "--set", "parallel={}")
        self.assertEqual(result.returncode, 1)
        self.assertIn("echotrain launch", result.stderr)

    def test_a_killed_rank_ends_all(self):
        process, ranks = self.begin("killed")
        os.kill(ranks[1], signal.SIGKILL)
        out, errors = self.ended(process, ranks)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("rank 1 is lost: ", errors)
        self.assertNotIn(".cc:", errors, "where in Gloo's sources it was seen")

    def test_who_becomes_the_first_of_an_elastic_run_shows_it(self):
        process, ranks = self.begin("led", parallel='{"elastic": true}')
        os.kill(ranks[0], signal.SIGKILL)
        last = self.losses("led")[-1][0]
        gives_up = threading.Timer(120, process.kill)
        gives_up.start()
        self.addCleanup(gives_up.cancel)
        steps = (int(step) for line in process.stdout for step in re.findall(r" epoch \d+ step (\d+)", line))
        self.assertTrue(any(step > last for step in steps), "nobody shows the progress any more")
        os.kill(ranks[1], signal.SIGTERM)
        out, errors = self.ended(process, ranks)
        self.assertRegex(out, r"\d+ steps, \d+ examples", errors)

    def test_a_killed_launcher_leaves_no_rank(self):
        process, ranks = self.begin("orphans")
        process.kill()
        deadline = time.monotonic() + 60
        while any(os.path.exists(f"/proc/{pid}/exe") for pid in ranks.values()):
            self.assertLess(time.monotonic(), deadline, "a rank goes on")
            time.sleep(0.05)
        process.communicate()

    def test_a_second_signal_ends_all_at_once_and_leaves_nothing(self):
        meetings = self.root / "meetings"
        meetings.mkdir()
        for number in (signal.SIGINT, signal.SIGTERM):
            with unittest.mock.patch.dict(os.environ, TMPDIR=str(meetings)):
                process, ranks = self.begin(f"twice-{int(number)}")
            self.assertEqual(len(list(meetings.iterdir())), 1)
            os.kill(ranks[1], signal.SIGSTOP)  # it does not end in order
            process.send_signal(number)
            deadline = time.monotonic() + 60
            while signal_pends(process.pid, number):  # a second one would be taken for the same
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            process.send_signal(number)
            out, errors = self.ended(process, ranks)
            self.assertEqual(process.returncode, 128 + number, errors)
            self.assertEqual(list(meetings.iterdir()), [])

    def test_ctrl_z_suspends_the_ranks_too(self):
        def wait_for(states):
            deadline = time.monotonic() + 60
            while not all(state(pid) in states for pid in (process.pid, *ranks.values())):
                self.assertLess(time.monotonic(), deadline, [state(pid) for pid in ranks.values()])
                time.sleep(0.05)

        process, ranks = self.begin("suspended")
        os.killpg(process.pid, signal.SIGTSTP)
        wait_for("T")
        os.killpg(process.pid, signal.SIGCONT)
        wait_for("RSD")
        process.send_signal(signal.SIGINT)
        out, errors = self.ended(process, ranks)
        self.assertEqual(process.returncode, 128 + signal.SIGINT, errors)

    def test_ctrl_c_before_all_ranks_are_there_ends_the_run(self):
        meetings = self.root / "started"
        meetings.mkdir()
        for _ in range(3):
            process = subprocess.Popen([PROGRAM, "launch", "-n", "4", *self.words("early", train__steps=10**9, out="")],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
                                       env={**os.environ, "TMPDIR": str(meetings)})
            while process.poll() is None and not list(meetings.iterdir()):
                pass
            os.killpg(process.pid, signal.SIGINT)
            try:
                _, errors = process.communicate(timeout=60)
            finally:
                process.kill()
            self.assertEqual(process.returncode, 128 + signal.SIGINT, errors)
            self.assertEqual(list(meetings.iterdir()), [])

    def test_ctrl_c_ends_all_in_order_and_resuming_goes_on(self):
        to_group, to_launcher = os.killpg, os.kill  # a terminal signals the group
        for send, number in ((to_group, signal.SIGINT), (to_launcher, signal.SIGINT), (to_group, signal.SIGTERM),
                             (to_launcher, signal.SIGTERM)):
            name = f"{send.__name__}-{int(number)}"
            process, ranks = self.begin(name)
            send(process.pid, number)
            out, errors = self.ended(process, ranks)
            self.assertIn("echotrain: interrupted: ", errors, name)
            self.assertEqual(process.returncode, 128 + number, errors)
            step = self.losses(name)[-1][0]
            result = run("launch", "-n", "2", *self.words(name, train__steps=step + 2), "--resume")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual([row[0] for row in self.losses(name)], list(range(1, step + 3)))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
