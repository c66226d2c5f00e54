#!/usr/bin/env python3
"""Walks at random over the Python package, as tests/walk/main.cpp does over the C API, on few objects and threads.

    walk.py [--calls 2000] [--seed 1] [--patience 120]

An object may be closed at any time and used after that; another thread may be using it. Each call succeeds or raises one of the package's
errors, or Python's own for wrong arguments; nothing hangs, and no thread and no open file is left at the end.
"""

import argparse
import collections
import contextlib
import faulthandler
import gc
import math
import os
import pathlib
import random
import sys
import tempfile
import threading
import time
import traceback

import numpy as np

import echotrain as et
from echotrain import errors

# What the package says of misuse; all else is a defect.
EXPECTED = (errors.InvalidArgumentError, errors.NotFoundError, errors.DataIOError, errors.CorruptDataError, errors.CancelledError,
            errors.StateError, errors.UnsupportedError, errors.NotFiniteError, errors.RankLostError, errors.CallbackError,
            TypeError, ValueError, KeyError)
INTERNALS = ("std::", "basic_string", "json.exception", "swig", "unknown exception", "object is not callable", "'NoneType'")


class Mine(ValueError):
    """What functions of the program raise."""


class Walk:
    def __init__(self, seed, patience, folder):
        self.random = random.Random(seed)
        self.patience, self.folder = patience, folder
        self.latest = collections.deque(maxlen=40)
        self.counts, self.raised = collections.Counter(), collections.Counter()
        self.runtime = et.Runtime(os.environ.get("ECHOTRAIN_TEST_DEVICE"))
        self.objects = {kind: [] for kind in ("pipeline", "batch", "trainer", "run", "server")}
        self.lock = threading.Lock()
        self.open = {}  # by thread: the calls that have not returned, from the outermost on, each with when it began
        rows = folder / "rows.jsonl"
        rows.write_text("".join(f'{{"image": [{i % 7}.5, 1.5, 2, 1, 0, {i % 3}], "label": {i % 2}}}\n' for i in range(24)))
        self.rows = [et.stages.jsonl(str(rows), columns="image:f32,label:i32"), et.stages.label(), et.stages.batch(4)]

    def call(self, name, function, *arguments):
        """Calls, and returns the result; None after an error that the package promises."""
        with self.lock:
            self.counts[name] += 1
            self.latest.append(f"{name}{arguments}"[:200])
            calls = self.open.setdefault(threading.get_ident(), [])
            calls.append((name, time.monotonic()))
        try:
            return function(*arguments)
        except EXPECTED as error:
            with self.lock:
                self.raised[type(error).__name__] += 1
                self.latest.append(f"    {type(error).__name__}: {error}"[:300])
            text = str(error)
            if not text or (not isinstance(error, Mine) and any(word in text for word in INTERNALS)):
                raise AssertionError(f"{name}: {type(error).__name__} with the message {text!r}") from error
            return None
        finally:
            with self.lock:
                calls.pop()
                if not calls:
                    del self.open[threading.get_ident()]

    def watch(self, fail):
        """Calls `fail` with the reason if a call has not returned in time, whatever other threads do meanwhile."""
        while True:
            faulthandler.dump_traceback_later(self.patience, exit=True)  # if a call keeps even this thread from running
            time.sleep(min(1, self.patience / 4))
            with self.lock:
                late = [name for calls in self.open.values() for name, began in calls if time.monotonic() - began > self.patience]
            if late:
                fail(f"{late[0]} has not returned for {self.patience:g} s")

    def any(self, kind):
        there = self.objects[kind]
        return self.random.choice(there) if there else None

    def keep(self, kind, thing):
        if thing is None:
            return
        there = self.objects[kind]
        there.append(thing)
        if len(there) > 4:
            self.drop(kind)

    def drop(self, kind):
        """Closes an object, or leaves it to the collector."""
        there = self.objects[kind]
        if not there:
            return
        thing = there.pop(self.random.randrange(len(there)))
        if self.random.random() < 0.7 and hasattr(thing, "close"):
            self.call(f"{kind}.close", thing.close)

    # ---- pipelines and batches ----

    def samples(self, epoch):
        for i in range(self.random.choice((0, 5, 17))):
            yield {"image": np.full(6, i, np.float32), "label": np.int32(i % 2)}

    def function(self, seed):
        """A map that raises, returns nonsense or uses other objects for some samples."""
        def apply(fields, info):
            what = (info.ordinal * 7919 + seed) % 40
            if what == 0:
                raise Mine("a sample of the program's")
            if what == 1:
                return None
            if what == 2:
                return {}
            if what == 3:
                with et.Batch({"x": np.zeros(3, np.float32)}) as batch:
                    return {**fields, "x": batch["x"]}
            return fields
        return et.map(apply, name=f"map{seed}", with_info=True)

    def make_pipeline(self):
        seed = self.random.randrange(100)
        stages = self.random.choice((self.rows, [et.source(self.samples), et.stages.batch(4)],
                                     [et.source(self.samples), self.function(seed), et.stages.batch(2)],
                                     [et.stages.batch(4)], [et.source(self.samples), et.source(self.samples)], [3], []))
        options = self.random.choice(({}, {"epochs": 1}, {"epochs": 2, "threads": 2}, {"on_error": "skip"}, {"nonsense": 1}))
        self.keep("pipeline", self.call("Pipeline", lambda: et.Pipeline(stages, **options)))

    def read(self):
        pipeline = self.any("pipeline")
        if pipeline is not None:
            for batch in self.call("Pipeline.__iter__", lambda: [batch for _, batch in zip(range(3), pipeline)]) or ():
                self.keep("batch", batch)

    def use_pipeline(self):
        pipeline = self.any("pipeline")
        if pipeline is None:
            return
        name = self.random.choice(("stats", "explain", "trace", "bad_records", "save", "cancel", "close", "__len__", "__repr__"))
        result = self.call(f"Pipeline.{name}", getattr(pipeline, name))
        if name == "save" and result is not None:
            other = self.any("pipeline")
            self.call("Pipeline.restore", other.restore, result)

    def make_batch(self):
        values = self.random.choice((np.zeros((3, 6), np.float32), np.arange(4), [[1, 2], [3]], "text", np.float64(1e300), None, 7))
        name = self.random.choice(("image", "label", "", "a\x01", 3))
        self.keep("batch", self.call("Batch", lambda: et.Batch({name: values})))

    def use_batch(self):
        batch = self.any("batch")
        if batch is None:
            return
        field = self.random.choice(("image", "label", "nowhere", 3))
        name = self.random.choice(("__getitem__", "tensor", "samples", "mean_age", "__iter__", "__repr__", "close"))
        if name in ("__getitem__", "tensor"):
            self.call(f"Batch.{name}", getattr(batch, name), field)
        else:
            self.call(f"Batch.{name}", lambda: (lambda value: value() if callable(value) else value)(getattr(batch, name)))

    # ---- trainers and runs ----

    def rows_of(self, count):
        return {"image": np.ones((count, 6), np.float32), "label": np.zeros(count, np.int32)}

    def make_trainer(self):
        layers = self.random.choice(([et.layers.dense(2)], [et.layers.dense(3, activation="relu"), et.layers.dense(2)], []))
        self.keep("trainer", self.call("Trainer", lambda: et.Trainer(et.Model(layers), et.optimizers.sgd(), 0.01, device=self.runtime)))

    def use_trainer(self):
        trainer = self.any("trainer")
        if trainer is None:
            return
        given = self.random.choice((self.rows_of(4), self.rows_of(1), {"image": np.ones((4, 6), np.float32)}, {}, self.any("batch")))
        gradient = np.ones((self.random.choice((1, 4)), 2), np.float32)
        calls = {
            "step": (given,), "result": (self.random.random() < 0.5,), "forward": (given, self.random.random() < 0.5),
            "backward": (gradient,), "update": (), "gradients": (), "weights": (), "predict": (given,), "summary": (),
            "set_weights": ({"dense_1.bias": np.zeros(self.random.choice((2, 3)), np.float32)},),
            "set_hyperparameter": (self.random.choice(("momentum", "nonsense")), self.random.choice((0.0, -1.0, math.nan))),
            "save": (self.folder / "saved",), "load": (self.folder / self.random.choice(("saved", "nowhere")),),
            "export_onnx": (self.random.choice((self.folder / "model.onnx", "/proc/nowhere/x")),)}
        name = self.random.choice(sorted(calls))
        if name in ("step", "forward", "predict") and given is None:
            return
        self.call(f"Trainer.{name}", getattr(trainer, name), *calls[name])

    def evaluate(self):
        trainer, pipeline = self.any("trainer"), self.any("pipeline")
        if trainer is None or pipeline is None:
            return
        what = self.random.randrange(4)

        def told(done, batches):
            if what == 0:
                raise Mine("a progress function of the program's")
            if what == 1:
                trainer.predict(self.rows_of(2))  # in its own call
            return what != 2
        self.call("Trainer.evaluate", trainer.evaluate, pipeline, told)

    def make_run(self):
        stages = [stage for stage in self.rows]
        stalls = self.random.random() < 0.3
        if stalls:
            stages.insert(1, et.stages.delay(milliseconds=1e6))
        job = et.Job({"pipeline": {"stages": [et._schema.plain(stage) for stage in stages]},
                      "model": {"layers": [{"layer": "dense", "units": 2}]}, "optimizer": {"optimizer": "sgd"},
                      "schedule": {"learning_rate": 0.01}, "train": {"steps": self.random.choice((3, 10**6)), "progress_every": 0.02},
                      "output": {"dir": self.random.choice(("", str(self.folder / "run")))}})
        start = self.random.choice(("new", "overwrite", "trial", "evaluate", "nonsense"))
        run = self.call("Job.run", lambda: job.run(device=self.runtime, start=start))
        if run is not None:
            run.stalls = stalls
        self.keep("run", run)

    def use_run(self):
        run = self.any("run")
        if run is None:
            return
        name = self.random.choice(("events", "stop", "stats", "evaluate", "trainer", "close"))
        if name == "events":
            self.call("JobRun.__iter__", lambda: [event for _, event in zip(range(3), run)])
        elif name == "trainer":
            trainer = self.call("JobRun.trainer", lambda: run.trainer)
            if not run.stalls:  # whose trainer would wait for a batch
                self.keep("trainer", trainer)
        else:
            self.call(f"JobRun.{name}", getattr(run, name))

    # ---- threads ----

    def end_a_wait(self):
        """Cancels or closes what another thread waits for, or stops its run."""
        gate, waits = threading.Event(), threading.Event()

        def samples(epoch):
            waits.set()
            gate.wait(self.patience)
            yield {"x": np.float32(1)}

        pipeline = et.Pipeline([et.source(samples)], epochs=1)
        thread = threading.Thread(target=self.call, args=("Pipeline.__iter__", lambda: list(pipeline)))
        thread.start()
        assert waits.wait(self.patience), "the source was not called"
        self.call("Pipeline.stats", pipeline.stats)
        self.call("Pipeline.cancel", pipeline.cancel)
        thread.join(self.patience)
        assert not thread.is_alive(), "a reader that was cancelled still waits"
        gate.set()
        self.call("Pipeline.close", pipeline.close)

    def crowd(self):
        """Threads that use one trainer: each call is served or refused."""
        trainer = self.any("trainer")
        if trainer is None:
            return
        calls = [("Trainer.step", lambda: trainer.step(self.rows_of(4))), ("Trainer.result", lambda: trainer.result(wait=False)),
                 ("Trainer.predict", lambda: trainer.predict(self.rows_of(2))), ("Trainer.weights", trainer.weights)]
        chosen = [[self.random.choice(calls) for _ in range(6)] for _ in range(3)]
        failures = []

        def work(mine):
            try:
                for name, function in mine:
                    self.call(name, function)
            except BaseException as error:
                failures.append(error)
        threads = [threading.Thread(target=work, args=(mine,)) for mine in chosen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def drop_something(self):
        self.drop(self.random.choice(sorted(self.objects)))

    STEPS = {make_pipeline: 10, read: 20, use_pipeline: 20, make_batch: 8, use_batch: 15, make_trainer: 3, use_trainer: 40, evaluate: 5,
             make_run: 2, use_run: 12, end_a_wait: 2, crowd: 1, drop_something: 12}

    def step(self):
        self.random.choices(list(self.STEPS), list(self.STEPS.values()))[0](self)

    def rest(self):
        """Closes everything; returns the numbers of threads and open files that are left."""
        for kind, there in self.objects.items():
            while there:
                self.drop(kind)
        gc.collect()
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def settled(walk, most):
    """Waits for threads that are about to end; returns what is left."""
    for _ in range(100):
        left = walk.rest()
        if all(count <= limit for count, limit in zip(left, most)):
            break
        time.sleep(0.1)
    return left


def steady(walk):
    """What is left once it does not change any more."""
    seen = [walk.rest()]
    while len(seen) < 100 and not (len(seen) >= 3 and seen[-1] == seen[-2] == seen[-3]):
        time.sleep(0.1)
        seen.append(walk.rest())
    return seen[-1]


def check_rest(walk, first):
    left = settled(walk, first)
    if any(count > limit for count, limit in zip(left, first)):
        names = collections.Counter(task.read_text().strip() for task in pathlib.Path("/proc/self/task").glob("*/comm"))
        raise AssertionError(f"threads and files left: {left}, at first {first}; threads: {dict(names)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=float, default=120)
    given = parser.parse_args()
    print(" ".join(sys.argv[:1] + [f"--calls {given.calls} --seed {given.seed}"]), flush=True)
    with tempfile.TemporaryDirectory() as name:
        walk = Walk(given.seed, given.patience, pathlib.Path(name))
        first, between = (0, 0), max(given.calls // 8, 200)
        next_rest, rests = between, 0

        def end():
            print("\nthe latest calls:", *walk.latest, sep="\n  ")
            print(f"to repeat: walk.py --calls {given.calls} --seed {given.seed}")
            sys.stdout.flush()
            os._exit(1)

        def end_late(why):
            print(f"walk.py: {why}", file=sys.stderr)
            faulthandler.dump_traceback()
            end()
        threading.Thread(target=walk.watch, args=(end_late,), daemon=True).start()
        try:
            while sum(walk.counts.values()) < given.calls:
                walk.step()
                if sum(walk.counts.values()) < next_rest:
                    continue
                next_rest += between
                rests += 1
                if rests <= 2:  # threads of the driver and of oneTBB stay
                    first = tuple(max(pair) for pair in zip(first, steady(walk)))
                    continue
                check_rest(walk, first)
            if rests >= 2:
                check_rest(walk, first)
            else:
                walk.rest()
        except BaseException:
            traceback.print_exc()
            end()
        faulthandler.cancel_dump_traceback_later()
        for name, count in sorted(walk.counts.items()) + sorted(walk.raised.items()):
            print(f"{count:8}  {name}")
        print(f"{sum(walk.counts.values())} calls, nothing found; threads and open files at rest: {first}")


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
