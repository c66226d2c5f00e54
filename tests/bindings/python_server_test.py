"""A parameter server and its workers, threads of one process."""

import tempfile
import threading

import echotrain as et
from python_case import Case


class ServerTest(Case):
    def setUp(self):
        super().setUp()
        meeting = tempfile.TemporaryDirectory()
        self.addCleanup(meeting.cleanup)
        self.meeting = meeting.name

    def job(self, **parallel):
        return et.Job({"seed": 3, "pipeline": {"stages": [
            {"stage": "folder", "root": str(self.root)}, {"stage": "label"}, {"stage": "decode"},
            {"stage": "batch", "size": 8}, {"stage": "normalize"}]},
            "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
            "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.02}, "train": {"steps": 6},
            "output": {"dir": ""}, "parallel": {"algorithm": "downpour", "size": 2, "consistency": "sequential", "timeout": 30,
                                                "rendezvous": f"file:{self.meeting}", **parallel}})

    def test_workers_train_on_it(self):
        steps, both = [], threading.Barrier(2)

        def work():
            with self.job().run(device=et.Runtime(0)) as run:
                both.wait(60)  # the server ends when all who have come have finished
                steps.append(list(run)[-1].step)

        workers = [threading.Thread(target=work) for _ in range(2)]
        with et.Server(self.job()) as server:
            self.assertFalse(server.wait(0))
            self.assertEqual(server.status(), et.ServerStatus(0, 0, 0, 0))
            for worker in workers:
                worker.start()
            self.assertTrue(server.wait(120))
            self.assertEqual(server.status(), et.ServerStatus(workers=0, joined=2, finished=2, updates=12))
        for worker in workers:
            worker.join(60)
        self.assertEqual(steps, [6, 6])
        with self.assertRaisesRegex(et.errors.StateError, "the server is closed"):
            server.status()

    def test_another_thread_ends_the_wait(self):
        server = et.Server(self.job())
        ended = []
        waiter = threading.Thread(target=lambda: ended.append(server.wait()))
        waiter.start()
        server.stop()
        waiter.join(60)
        self.assertEqual(ended, [True])
        server.close()

    def test_nobody_comes(self):
        with et.Server(self.job(timeout=0.5)) as server:
            with self.assertRaisesRegex(et.errors.RankLostError, "no worker"):
                server.wait()
            self.assertEqual(server.status(), (0, 0, 0, 0), "it still says how many there were")

    def test_what_is_wrong_is_said(self):
        with self.assertRaisesRegex(et.errors.InvalidArgumentError, "shard 1 of 1"):
            et.Server(self.job(), shard=1)
        with self.assertRaisesRegex(et.errors.InvalidArgumentError, "parallel.algorithm"):
            et.Server(self.job(algorithm="synchronous"))
