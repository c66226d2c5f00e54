"""Ranks that train together over a transport that is written in Python: here threads of one process."""

import gc
import json
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import threading
import warnings
import weakref

import numpy as np

import echotrain as et
from python_case import Case

_REDUCE = {"sum": np.add, "min": np.minimum, "max": np.maximum}


class Place:
    """Where threads meet with what they bring: copies, which a rank may still read when another has given the meeting up."""

    def __init__(self, size):
        self.size, self.brought, self.why = size, [None] * size, ""
        self.barrier, self.parts, self.lock = threading.Barrier(size), {}, threading.Lock()

    def meet(self, rank, brings, timeout, read):
        self.brought[rank] = brings
        try:
            self.barrier.wait(timeout)
            read(self.brought)
            self.barrier.wait(timeout)
        except threading.BrokenBarrierError:
            raise et.errors.RankLostError(self.why or "nobody came", [1 - rank]) from None

    def part(self, colour):
        with self.lock:
            return self.parts.setdefault(colour, Place(self.size))


class Threads(et.Transport):
    ended = []

    def __init__(self, place, rank):
        super().__init__(rank, place.size)
        self.place = place

    def all_reduce(self, array, op):
        mine = array.copy()

        def read(all_ranks):
            array[:] = all_ranks[0]
            for other in all_ranks[1:]:
                _REDUCE[op](array, other, out=array)

        self.place.meet(self.rank, mine, self.timeout, read)

    def all_gather(self, part, sizes, array):
        self.place.meet(self.rank, part.copy(), self.timeout, lambda parts: np.concatenate(parts, out=array))

    def broadcast(self, array, root):
        def read(all_ranks):
            if self.rank != root:
                array[:] = all_ranks[root]

        self.place.meet(self.rank, array.copy(), self.timeout, read)

    def split(self, colour, key):
        return type(self)(self.place.part(colour), self.rank)

    def abort(self, reason):
        self.place.why = reason
        self.place.barrier.abort()

    def close(self):
        Threads.ended.append(self.rank)


class TransportTest(Case):
    def job(self, rows, out="", **parallel):
        more = {"parallel": parallel} if parallel else {}
        return {**more, "seed": 3, "pipeline": {"stages": [
            {"stage": "folder", "root": str(self.root)}, {"stage": "label"}, {"stage": "decode"},
            {"stage": "batch", "size": rows}, {"stage": "normalize"}]},
            "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
            "optimizer": {"optimizer": "sgd", "momentum": 0.9}, "schedule": {"learning_rate": 0.02},
            "train": {"steps": 6}, "output": {"dir": str(out), "tensorboard": False}}

    def run_on(self, job, transport):
        """The last event, or what was raised."""
        try:
            with et.Job(job).run(transport=transport, device=et.Runtime(0)) as run:
                return list(run)[-1]
        except BaseException as error:
            return error

    def together(self, job, transports):
        outcomes = [None] * len(transports)

        def rank(number):
            outcomes[number] = self.run_on(job, transports[number])

        threads = [threading.Thread(target=rank, args=(i,)) for i in range(len(transports))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            self.assertFalse(thread.is_alive(), "a rank hangs")
        return outcomes

    @staticmethod
    def losses(folder):
        rows = map(json.loads, (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines())
        return [row["loss"] for row in rows if row["kind"] == "step"]

    def test_gradients_of_16_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            seen, plain, short = set(), pathlib.Path(folder, "plain"), pathlib.Path(folder, "short")

            class Watched(Threads):
                def all_reduce(self, array, op):
                    seen.add(array.dtype.name)
                    super().all_reduce(array, op)

            for out, compression in ((plain, "none"), (short, "fp16")):
                place, job = Place(2), self.job(8, out)
                job["parallel"] = {"compression": compression}
                for event in self.together(job, [Watched(place, rank) for rank in range(2)]):
                    self.assertEqual((event.kind, event.step), ("end", 6), event)
                self.assertEqual("float16" in seen, compression == "fp16")
            np.testing.assert_allclose(self.losses(short), self.losses(plain), atol=1e-3)
            place, job["parallel"] = Place(2), {"compression": "bf16"}
            for error in self.together(job, [Threads(place, rank) for rank in range(2)]):
                self.assertIsInstance(error, et.errors.EchoTrainError)

    def test_ranks_train_as_one_with_all_their_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            one, two = pathlib.Path(folder, "one"), pathlib.Path(folder, "two")
            for _ in et.Job(self.job(16, one)).run():
                pass
            Threads.ended, place = [], Place(2)
            transports = [Threads(place, rank) for rank in range(2)]
            watched = weakref.ref(transports[0])
            for event in self.together(self.job(8, two), transports):
                self.assertEqual((event.kind, event.step, event.examples), ("end", 6, 96), event)
            self.assertEqual(sorted(Threads.ended), [0, 0, 1, 1], "each rank's, and what was split off")
            np.testing.assert_allclose(self.losses(two), self.losses(one), atol=1e-4)
            self.assertEqual(len(self.losses(two)), 6)
            del transports
            gc.collect()
            self.assertIsNone(watched(), "the run let go of it")

    def test_two_devices_train_as_two_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            devices, ranks = pathlib.Path(folder, "devices"), pathlib.Path(folder, "ranks")
            name = et.devices()[0].name
            with et.Job(self.job(8, devices, devices=[name, name])).run(device=0) as run:
                events = list(run)
            self.assertEqual((events[-1].kind, events[-1].examples), ("end", 96))
            place = Place(2)
            self.together(self.job(8, ranks), [Threads(place, 0), Threads(place, 1)])
            self.assertEqual(self.losses(devices), self.losses(ranks), "to the bit")
            self.assertEqual(len(self.losses(devices)), 6)

    def test_a_device_that_fails_ends_the_run(self):
        with self.assertRaisesRegex(et.errors.NoDeviceError, "no Vulkan device matches 'none such'"):
            et.Job(self.job(8, devices=["0", "none such"])).run(device=0)

    def test_what_it_raises_comes_out_of_the_run_and_ends_the_others(self):
        class Failing(Threads):
            calls = 0

            def all_reduce(self, array, op):
                Failing.calls += 1
                if Failing.calls == 5:
                    raise ZeroDivisionError("the wire is cut")
                super().all_reduce(array, op)

        place = Place(2)
        good, bad = self.together(self.job(8), [Threads(place, 0), Failing(place, 1)])
        self.assertIsInstance(bad, ZeroDivisionError)
        self.assertIsInstance(bad.__cause__, et.errors.CallbackError)
        self.assertIsInstance(good, et.errors.RankLostError)
        self.assertIn("the wire is cut", str(good))

    def test_what_it_raises_comes_out_of_an_evaluation(self):
        class Cut(Threads):
            is_cut = False

            def all_reduce(self, array, op):
                if self.is_cut:
                    raise ZeroDivisionError("the wire is cut")
                super().all_reduce(array, op)

            def all_gather(self, part, sizes, array):
                if self.is_cut:
                    raise ZeroDivisionError("the wire is cut")
                super().all_gather(part, sizes, array)

        job = self.job(8)
        job["evaluation"] = {"pipeline": job["pipeline"]}
        for call in (et.JobRun.evaluate, et.JobRun.profile):
            Cut.is_cut = False
            with et.Job(job).run(transport=Cut(Place(1), 0), device=et.Runtime(0), start="trial") as run:
                Cut.is_cut = True
                with self.assertRaises(ZeroDivisionError, msg=call):
                    call(run)

    def test_a_lost_connection_is_a_lost_rank(self):
        class Cut(Threads):
            def split(self, colour, key):
                raise ConnectionResetError("reset by peer")

        error = self.run_on(self.job(8), Cut(Place(1), 0))
        self.assertIsInstance(error, ConnectionResetError)
        self.assertIsInstance(error.__cause__, et.errors.RankLostError)

    def test_a_run_is_collected_after_its_transport_raised(self):
        class Cut(Threads):
            calls = 0

            def all_reduce(self, array, op):
                Cut.calls += 1
                if Cut.calls == 5:
                    raise ZeroDivisionError("the wire is cut")
                super().all_reduce(array, op)

        place = Place(2)
        other = threading.Thread(target=self.run_on, args=(self.job(8), Threads(place, 1)))
        other.start()
        run = et.Job(self.job(8)).run(transport=Cut(place, 0), device=et.Runtime(0))
        try:  # assertRaises would empty the frames that the traceback refers to
            list(run)
            self.fail("nothing was raised")
        except ZeroDivisionError:
            pass
        other.join(120)
        watched = weakref.ref(run)
        del run
        gc.collect()
        self.assertIsNone(watched(), "the run's threads would stay")

    def test_says_what_needs_a_function_that_it_lacks(self):
        class Small(et.Transport):
            pass

        error = self.run_on(self.job(8), Small(0, 1))
        self.assertIsInstance(error, et.errors.UnsupportedError)
        self.assertRegex(str(error), "Small has no function split: ranks exchange gradients")

    def test_misuse(self):
        with self.assertRaisesRegex(TypeError, "derive its class from echotrain.Transport"):
            et.Job(self.job(8)).run(transport=object())
        with self.assertRaisesRegex(ValueError, "rank 2 of 2"):
            et.Transport(2, 2)

        class Unmade(et.Transport):
            def __init__(self):
                pass  # so there is no rank

        unmade = Unmade()
        left = weakref.ref(unmade)
        with self.assertRaisesRegex(AttributeError, "rank"):
            et.Job(self.job(8)).run(transport=unmade)
        del unmade
        gc.collect()
        self.assertIsNone(left(), "a transport is kept for a run that did not begin")

        class Nothing(Threads):
            def split(self, colour, key):
                return None

        error = self.run_on(self.job(8), Nothing(Place(1), 0))
        self.assertIsInstance(error, TypeError)
        self.assertIn("must return a Transport", str(error))

    def test_it_may_stop_and_close_the_run_while_another_thread_closes_it(self):
        job = self.job(8)
        job["train"] = {"steps": 10**9}
        for end in et.JobRun.stop, et.JobRun.close:
            held, aborted, place = threading.Event(), threading.Event(), Place(2)

            class Ending(Threads):
                gradients = 0

                def all_reduce(self, array, op):
                    self.gradients += array.dtype == np.float32
                    if self.gradients > 1:  # those of a step that is on its way
                        held.set()
                        aborted.wait(60)  # by close()
                        end(run)
                    super().all_reduce(array, op)

                def abort(self, reason):
                    super().abort(reason)
                    aborted.set()

            other = threading.Thread(target=self.run_on, args=(job, Threads(place, 1)))
            other.start()
            run = et.Job(job).run(transport=Ending(place, 0), device=et.Runtime(0))
            events = run.events(1e-9)
            while not held.wait(1):
                next(events)
            closer = threading.Thread(target=run.close, daemon=True)
            closer.start()
            closer.join(60)
            self.assertFalse(closer.is_alive(), f"{end.__name__}() in a transport waits for close(), which waits for the transport")
            other.join(60)

    def test_a_program_may_end_within_a_run(self):
        program = textwrap.dedent("""
            import sys, threading
            sys.path.insert(0, sys.argv[1])
            import echotrain as et
            from python_transport_test import Place, Threads, json
            class Slow(Threads):  # so that steps are on their way when the program ends
                def all_reduce(self, array, op):
                    if array.dtype == "float32":
                        threading.Event().wait(0.05)
                    super().all_reduce(array, op)
            run = et.Job(json.loads(sys.argv[2])).run(transport=Slow(Place(1), 0), device=0)
            events = iter(run)
            while next(events).step < 3:
                pass
            print("begun")
        """)
        job = self.job(8)
        job["train"] = {"steps": 10**9, "progress_every": 0.01}
        self.check_ends(program, job)

    # Threads that are within a call of the library's when the interpreter goes.
    def test_a_program_may_end_while_threads_read_events(self):
        program = textwrap.dedent("""
            import sys, threading
            sys.path.insert(0, sys.argv[1])
            import echotrain as et
            from python_transport_test import Place, Threads, json
            begun = threading.Barrier(4)
            def read(transport):
                events = iter(et.Job(json.loads(sys.argv[2])).run(transport=transport, device=0))
                next(events)
                begun.wait()
                for event in events:
                    pass
            place = Place(2)
            for transport in Threads(place, 0), Threads(place, 1), None:
                threading.Thread(target=read, args=(transport,), daemon=True).start()
            begun.wait()
            print("begun", flush=True)
        """)
        job = self.job(8)
        job["train"] = {"steps": 10**9, "progress_every": 0.01}
        self.check_ends(program, job)

    def check_ends(self, program, job):
        here = str(pathlib.Path(__file__).parent)
        result = subprocess.run([sys.executable, "-c", program, here, json.dumps(job)], capture_output=True, text=True, timeout=120)
        self.assertEqual((result.returncode, result.stdout), (0, "begun\n"), result.stderr)


if __name__ == "__main__":
    warnings.simplefilter("error")
    import unittest
    unittest.main()
