#!/usr/bin/env python3
"""How runs on several ranks behave towards their user: who speaks, what mistakes are told and how often, and the examples of
docs/distributed.md.

    ranks_test.py ECHOTRAIN PAINTER DOCUMENT

ECHOTRAIN is the program, PAINTER the quickstart's painter of digits, DOCUMENT docs/distributed.md.
"""

import os
import pathlib
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from support import free_port, runner

PROGRAM, PAINTER, DOCUMENT = map(os.path.abspath, sys.argv[1:4])
run = runner(PROGRAM)
DOCUMENTED = "".join(path.read_text(encoding="utf-8") for path in
                     (pathlib.Path(DOCUMENT), pathlib.Path(DOCUMENT).with_name("parameter_server.md")))


def shell_blocks(heading):
    """Of the section with this heading, in the document or that on parameter servers."""
    section = re.search(rf"\n##? {heading}\n(.*?)(?=\n##? |\Z)", DOCUMENTED, re.DOTALL).group(1)
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        (cls.root / "bin").mkdir()
        for name, target in (("draw", PAINTER), ("echotrain", PROGRAM)):
            (cls.root / "bin" / name).symlink_to(target)
        setup = shell_blocks("Processes that are started by hand")[0]
        setup = setup[setup.index("draw "):setup.index("END\n", setup.index("END'") + 4) + 4]
        cls.shell(setup.replace("2000", "200"), check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def environment(cls, variables):
        kept = {key: value for key, value in os.environ.items() if not re.match("RANK|WORLD|MASTER|OMPI|PMI|SLURM", key)}
        return {**kept, "PATH": f"{cls.root}/bin:{os.environ['PATH']}", "LP_NUM_THREADS": "1", **variables}

    @classmethod
    def shell(cls, text, **options):
        return subprocess.run(["bash", "-e", "-c", text], cwd=cls.root, env=cls.environment({}), capture_output=True,
                              text=True, timeout=200, **options)

    def begin(self, *words, **variables):
        process = subprocess.Popen([PROGRAM, *words], cwd=self.root, env=self.environment(variables), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def train(self, *settings, **variables):
        words = [word for setting in ("output.dir=", *settings) for word in ("--set", setting)]
        return self.begin("train", "digits.json", *words, **variables)

    def ended(self, process):
        out, errors = process.communicate(timeout=200)
        return process.returncode, out, errors

    def refused(self, *settings, **variables):
        status, _, errors = self.ended(self.train(*settings, **variables))
        self.assertEqual(status, 1, errors)
        return errors

    def launched(self, rank, port, **more):
        """What torchrun says to the processes of a machine."""
        return {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port - 1), **more}

    def test_the_first_rank_speaks_for_all(self):
        port = free_port()
        ranks = [self.train("parallel={}", **self.launched(rank, port)) for rank in range(2)]
        (status, out, errors), (other_status, other_out, other_errors) = map(self.ended, ranks)
        self.assertEqual((status, other_status), (0, 0), errors + other_errors)
        self.assertRegex(out, r"2 ranks: [0-9]+ examples/s over the whole run; each exchanged [0-9.]+ [kM]B a step")
        self.assertEqual((other_out, other_errors), ("", ""))

    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "there is no Open MPI")
    def test_one_display_under_mpirun(self):
        def mpirun(*settings):
            words = [word for setting in ("output.dir=", *settings) for word in ("--set", setting)]
            return subprocess.run(["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "3", PROGRAM, "train",
                                   "digits.json", *words], cwd=self.root, env=self.environment({}), capture_output=True, text=True,
                                  timeout=200)

        meeting = '{"engine": "gloo", "rendezvous": "file:mpirun"}'
        shown = mpirun(f"parallel={meeting}")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        for once in ("device: ", "output: ", "examples (", "3 ranks: "):
            self.assertEqual(shown.stdout.count(once), 1, shown.stdout)
        for setting, told in (("optimizer.optimizer=sdg", "did you mean 'sgd'"), ("name=alone", "parallel.size=1")):
            refused = mpirun(setting)
            self.assertNotEqual(refused.returncode, 0)
            self.assertEqual(refused.stderr.count(told), 1, refused.stderr)

    def test_launch_tells_what_ranks_exchange(self):
        result = run("launch", "-n", "2", "digits.json", "--set", "output.dir=", cwd=self.root, env=self.environment({}))
        self.assertEqual(result.returncode, 0, result.stderr)
        kilobytes = float(re.search(r"each exchanged ([0-9.]+) kB a step", result.stdout).group(1))
        parameters = 28 * 28 * 10 + 10
        self.assertGreater(kilobytes, parameters * 4 / 1000)  # the gradients
        self.assertLess(kilobytes, parameters * 4 / 1000 * 1.5)
        alone = self.ended(self.train())
        self.assertNotIn("exchanged", alone[1])

    def test_the_end_of_a_run_with_another_number_of_ranks_is_told(self):
        def steps(size, epochs, *more):
            result = run("launch", "-n", str(size), "digits.json", "--set", "output.dir=shrunk", "--set", f"train.epochs={epochs}",
                         *more, cwd=self.root, env=self.environment({}))
            self.assertEqual(result.returncode, 0, result.stderr)
            step, end = re.findall(r" epoch \d+ step (\d+) of (\d+),", result.stdout)[-1]
            self.assertEqual(step, end, result.stdout)
            return int(end)

        three = steps(3, 1)
        self.assertGreater(steps(1, 2, "--resume"), 2 * three)

    def test_mistakes_are_told_once(self):
        mistakes = ("optimizer.optimizer=sdg", "sdg"), ("pipeline.stages.0.root=nowhere", "nowhere")
        for setting, word in mistakes:
            port = free_port()
            ranks = [self.train("parallel={}", setting, **self.launched(rank, port)) for rank in range(2)]
            results = [self.ended(process) for process in ranks]
            self.assertEqual([result[0] for result in results], [1, 1])
            self.assertIn(word, results[0][2])
            self.assertRegex(results[1][2], r"\A(rank 1: echotrain: rank 0 ended the group: .*\n)?\Z")
            result = run("launch", "-n", "3", "digits.json", "--set", "output.dir=", "--set", setting, cwd=self.root,
                         env=self.environment({}))
            self.assertEqual(result.returncode, 1)
            self.assertEqual(len(re.findall(rf"'{word}'", result.stderr)), 1, result.stderr)

    def test_a_rank_of_another_machine_tells_its_own(self):
        errors = self.refused("parallel={}", "optimizer.optimizer=sdg", RANK="1", WORLD_SIZE="2", LOCAL_RANK="0")
        self.assertTrue(errors.startswith("rank 1: echotrain: "), errors)

    def test_a_launched_job_without_the_section_is_refused(self):
        for variables in ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, {"PMI_RANK": "0", "PMI_SIZE": "2"},
                          {"RANK": "0", "WORLD_SIZE": "2"},
                          {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}):
            errors = self.refused(**variables)
            for word in ("has started 2 processes", *list(variables)[1:2], "--set 'parallel={}'", "parallel.size=1"):
                self.assertIn(word, errors)
            status, out, errors = self.ended(self.train("parallel.size=1", **variables))
            self.assertEqual(status, 0, errors)
            self.assertIn("steps, ", out)
        status, _, errors = self.ended(self.train(OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="1"))
        self.assertEqual(status, 0, errors)

    def test_what_is_missing_is_named(self):
        for settings, variables, words in (
                (["parallel={}"], {"RANK": "0"}, ["lacks WORLD_SIZE, MASTER_ADDR, MASTER_PORT"]),
                (["parallel={}"], {"RANK": "0", "WORLD_SIZE": "2"}, ["lacks MASTER_ADDR, MASTER_PORT"]),
                (["parallel={}"], {}, ["echotrain launch", "mpirun"]),
                (["parallel.rank=1"], {}, ["parallel.size is missing"]),
                (["parallel.size=3"], {}, ["neither parallel.rank nor a launcher"]),
                (["parallel.size=3"], self.launched(0, free_port()), ["parallel.size is 3", "has started 2"]),
                (['parallel={"rank": 0, "size": 2}'], {}, ["file:FOLDER", "tcp://HOST:PORT", "launch"]),
                (['parallel={"rank": 0, "size": 2, "rendezvous": "file:bim/meet"}'], {}, ["did you mean 'bin'"]),
                (['parallel={"devices": ["0"], "rendezvous": "file:meet"}'], {}, ["parallel.rank and parallel.size"]),
                (['parallel={"interface": "lo"}'], {"PMI_RANK": "0", "PMI_SIZE": "2"}, ["mpi-mpich", "set parallel.engine"]),
                (['parallel={"rank": 0, "size": 2, "rendezvous": "file:meet"}'], {"ECHOTRAIN_JOIN": "1"}, ["is not elastic"]),
                (['parallel={"elastic": true, "min_ranks": 3, "rank": 0, "size": 2, "rendezvous": "file:meet"}'], {},
                 ["parallel.min_ranks is 3", "2 ranks"])):
            errors = self.refused(*settings, **variables)
            for word in words:
                self.assertIn(word, errors)

    def test_who_waits_for_others_says_so(self):
        meeting = '"rendezvous": "file:nobody", "timeout": 15'  # it is told after 3 s
        for rank in range(2):
            errors = self.refused(f'parallel={{"rank": {rank}, "size": 2, {meeting}}}')
            self.assertIn("waits for the other ranks, 2 in all, at file:nobody, for 15 s at most", errors)
            self.assertIn(f"rank {1 - rank} did not come", errors)
        errors = self.refused(f'parallel={{"algorithm": "downpour", {meeting}}}')
        self.assertIn("waits for the parameter server at file:nobody, for 15 s at most", errors)
        errors = self.refused('parallel={"elastic": true, "join": true, "join_timeout": 15, "rank": 0, "size": 1, "rendezvous": '
                              '"file:nobody"}', "output.dir=joins")
        self.assertIn("waits to join the run at file:nobody, which admits new ranks at the end of an epoch", errors)

    def test_a_log_file_has_each_line_at_once(self):
        waits = self.train('parallel={"rank": 0, "size": 2, "rendezvous": "file:alone"}')
        self.assertTrue(select.select([waits.stdout], [], [], 60)[0], "nothing is told before the others come")
        self.assertIn("device: ", waits.stdout.readline())

    def test_a_port_that_another_program_has_is_told_at_once(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            place = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
            errors = self.refused(f'parallel={{"rank": 0, "size": 2, "timeout": 1000, "rendezvous": "{place}"}}')
        self.assertIn("this port is used by another program", errors)

    def test_options_without_effect_are_refused(self):
        for section, words in (
                ('"min_ranks": 2', ["parallel.min_ranks is 2", "parallel.elastic to true"]),
                ('"join": true', ["parallel.join is true", "parallel.elastic"]),
                ('"micro_batches": 8', ["parallel.micro_batches is 8", "parallel.mesh.pipeline"]),
                ('"mesh": {"pipeline": 2}, "micro_batches": 32', ["parallel.micro_batches is 32", "batches of 16"]),
                ('"servers": 2, "n_push": 3', ["parallel.servers is 2 and parallel.n_push is 3", "downpour or easgd"]),
                ('"algorithm": "easgd", "n_fetch": 3', ["parallel.n_fetch is 3", "'downpour'"]),
                ('"algorithm": "downpour", "delay": 3', ["parallel.delay is 3", "'bounded'"]),
                ('"algorithm": "downpour", "server_momentum": 0.5', ["parallel.server_momentum is 0.5", "'sgd'"]),
                ('"outer_every": 3', ["parallel.outer_every is 3", "'diloco'"]),
                ('"algorithm": "diloco", "bucket_mb": 1', ["parallel.bucket_mb is 1", "'synchronous'"]),
                ('"batches_ahead": 2', ["parallel.batches_ahead is 2", "'bucket'"]),
                ('"elastc": true', ["did you mean 'elastic'"]),
                ('"meshs": {}', ["did you mean 'mesh'"]),
                ('"mesh": {"tensr": 2}', ["did you mean 'tensor'"])):
            errors = self.refused(f"parallel={{{section}}}")
            for word in words:
                self.assertIn(word, errors)
        self.assertIn("did you mean 'parallel'", self.refused("paralel.mesh.tensor=2"))
        errors = self.refused('parallel={"servers": 1, "min_ranks": 1}')  # as by default
        self.assertIn("no launcher has started", errors)

    def test_hints_name_what_was_meant(self):
        for words, expected in ((["train", "a", "--rank", "1"], "--set parallel.rank=VALUE"),
                                (["train", "a", "--tensor", "2"], "--set parallel.mesh.tensor=VALUE"),
                                (["launch", "a", "--rank", "2"], "did you mean 'ranks'"),
                                (["evaluate", "a"], "did you mean 'eval'"),
                                (["launch", "-n", "2", self.root / "digits.json", "--set", "parallel.size=1"], "leave parallel.size out")):
            result = run(*words)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(expected, result.stderr)

    def documented(self, heading, command):
        """The words of such commands in the document's section."""
        lines = [line for block in shell_blocks(heading) for line in block.splitlines()
                 if line.startswith(command) and "parallel=" in line]
        return [shlex.split(line)[1:] for line in lines]

    def test_one_device_needs_no_brackets(self):
        status, out, errors = self.ended(self.train('parallel={"devices": "0"}', "train.epochs=1"))
        self.assertEqual(status, 0, out + errors)

    def test_the_two_processes_of_the_document(self):
        port = free_port()
        words = [[word.replace("29400", str(port)) for word in of]
                 for of in self.documented("Processes that are started by hand", "echotrain train")]
        self.assertEqual(len(words), 2)
        ranks = [self.begin(*of, "--set", "output.dir=two") for of in words]
        for of, (status, out, errors) in zip(words, map(self.ended, ranks)):
            self.assertEqual(status, 0, errors)
            self.assertIn("2 ranks: ", out)
            self.assertEqual("which rank 0 writes" in out, '"rank": 1' in " ".join(of), out)
        self.assertTrue((self.root / "two/checkpoints").is_dir())

    def test_the_server_and_two_workers_of_the_document(self):
        server = self.documented("Parameter servers", "echotrain parameter-server")
        worker = self.documented("Parameter servers", "echotrain train")
        self.assertEqual((len(server), len(worker)), (1, 1))
        serves = self.begin(*server[0])
        self.assertIn("waits for workers at file:meet", serves.stdout.readline())
        # The first one stays until the second has joined: it would be the last one otherwise, with which the server ends.
        first = self.begin(*worker[0], "--set", "train.epochs=1000000000")
        self.assertIn("1 worker joined; 1 is here", serves.stdout.readline())
        status, out, errors = self.ended(self.begin(*worker[0]))
        self.assertEqual(status, 0, errors)
        self.assertIn("with the servers", out)
        first.send_signal(signal.SIGTERM)
        self.assertEqual(self.ended(first)[0], 128 + signal.SIGTERM)
        status, out, errors = self.ended(serves)
        self.assertEqual(status, 0, errors)
        # Who comes and goes between two looks is told of both at once, so that two need never be here.
        self.assertRegex(out, r"1 worker joined; [12] (is|are) here, [0-9]+ updates? so far")
        self.assertEqual(sum(map(int, re.findall("([0-9]) workers? finished", out))), 2, out)
        self.assertRegex(out, r"shard 0: 2 workers, [0-9]+ updates")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
