"""What is left in the middle, stopped or wrongly given in Python."""

import gc
import math
import os
import pathlib
import sys
import tempfile
import threading

import numpy as np

import echotrain as et
from python_case import Case


class MisuseTest(Case):
    def run_of(self, folder, **options):
        stages = [{"stage": "folder", "root": str(self.root)}, {"stage": "label"}, {"stage": "decode"},
                  {"stage": "batch", "size": 16}, {"stage": "normalize"}]
        job = et.Job({"pipeline": {"stages": stages}, "model": {"layers": [
            {"layer": "flatten"}, {"layer": "dense", "units": 2}]}, "optimizer": {"optimizer": "sgd"},
            "schedule": {"learning_rate": 0.01}, "train": {"steps": 50}, "output": {"dir": folder}})
        return job.run(device=os.environ.get("ECHOTRAIN_TEST_DEVICE"), **options)

    def test_a_run_that_is_closed_gives_its_folder_back(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.run_of(folder) as run:
                next(iter(run))
                with self.assertRaisesRegex(et.errors.StateError, "another run writes into"):
                    self.run_of(folder, overwrite=True)
            again = self.run_of(folder, overwrite=True)
            again.close()
            again.close()
            again.stop()
            with self.assertRaisesRegex(et.errors.StateError, "closed"):
                next(iter(again))
            with self.run_of(folder, overwrite=True) as last:
                last.stop()
                self.assertLess(list(last)[-1].step, 50)

    def test_a_run_has_a_trainer_that_outlives_it(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.run_of(folder) as run:
                trainer = run.trainer
                self.assertIs(trainer, run.trainer)
                self.assertIn("JobRun", repr(trainer))
                next(iter(run))
                name, weight = next(iter(trainer.weights().items()))
                trainer.set_weights({name: np.full_like(weight, 0.5)})
                trainer.set_hyperparameter("weight_decay", 0.1)
                with self.assertWarnsRegex(DeprecationWarning, "trainer.set_hyperparameter"):
                    run.set_hyperparameter("weight_decay", 0.2)
                self.assertEqual(run.stats()["stages"][0]["name"], "folder")
                for step in (lambda: trainer.result(), lambda: trainer.update(), lambda: trainer.gradients(),
                             lambda: trainer.step({"image": np.zeros((1, 28, 28, 1))})):
                    with self.assertRaisesRegex(et.errors.StateError, "the trainer of a run"):
                        step()
                with self.assertRaisesRegex(et.errors.StateError, "no evaluation"):
                    run.evaluate()
                while next(iter(run)).kind != "end":
                    continue
            self.assertEqual(trainer.weight(name).shape, weight.shape)
            with self.assertRaisesRegex(et.errors.StateError, "closed"):
                run.stats()
            with self.run_of(folder, start="evaluate") as last:
                np.testing.assert_array_equal(last.trainer.weight(name), trainer.weight(name))
                with self.assertRaises(et.errors.StateError):
                    next(iter(last))
            for wrong in ({"start": "evalute"}, {"start": "resume", "resume": True}):
                with self.assertRaises(ValueError):
                    self.run_of(folder, **wrong)
            with self.run_of(folder, overwrite=True) as left:
                trainer = left.trainer
                next(iter(left))
            self.run_of(folder, overwrite=True).close()
            self.assertEqual(trainer.weight(name).shape, weight.shape)

    def test_what_is_missing_is_an_os_error(self):
        missing = self.root / "nowhere"
        for call in (lambda: list(et.Pipeline([et.stages.folder(missing), et.stages.label()])),
                     lambda: list(et.Pipeline([et.stages.webdataset(f"{missing}.tar")])),
                     lambda: et.Job(missing), lambda: self.trainer().load(missing)):
            with self.assertRaisesRegex(OSError, "nowhere"):
                call()
        error = et.errors.make_error(et.errors.NotFoundError.status, "there is no 'x'")
        self.assertIsInstance(error, FileNotFoundError)
        self.assertIsInstance(error, LookupError)
        self.assertEqual(str(error), "there is no 'x'")

    # Records whose failures are skipped leave exceptions behind, whose words may stand in those of the one that matters.
    def test_the_exception_is_what_ended_the_run(self):
        def zeros(epoch):
            return ({"label": np.int32(i)} for i in range(2))

        for skipped, ended in ((ValueError(""), ValueError("one")), (ValueError("one"), ValueError("")),
                               (KeyError("label"), ValueError("a 'label' is missing")), (ValueError("map"), ValueError("one")),
                               (ValueError("one"), OSError("one"))):
            def fail(sample):
                raise ended if sample["label"] else skipped

            with et.Pipeline([et.source(zeros), fail], on_error="skip", max_bad_records=1, threads=1) as pipeline:
                with self.assertRaises(type(ended)) as caught:
                    list(pipeline)
            self.assertIs(caught.exception, ended)
            self.assertIn("key '1'", str(ended.__cause__))

    def test_the_exception_is_what_ended_the_evaluation(self):
        ended = OSError("mine")

        def fail(sample):
            raise ended

        with self.pipeline(fail, et.stages.batch(16), et.stages.normalize()) as validation:
            with self.assertRaises(OSError) as caught:
                self.trainer().evaluate(validation)
        self.assertIs(caught.exception, ended)
        self.assertIsInstance(ended.__cause__, et.errors.CallbackError)

    def test_functions_of_one_name_and_failure(self):
        def first(sample):
            raise failures[0] if sample["label"] == 0 else failures[1]

        def after(sample):
            raise failures[2]

        failures = [ValueError("same"), ValueError("other"), ValueError("same")]
        with et.Pipeline([et.source([{"label": np.int32(1)}]), lambda s: s, after]) as pipeline:
            with self.assertRaises(ValueError) as caught:
                list(pipeline)
        self.assertIs(caught.exception, failures[2])

    def test_the_exception_is_found_while_others_fail(self):
        class Cycle:
            def __init__(self):
                self.me = self

            def __del__(self):  # the collector runs it, and with it other threads, within an allocation
                sum(range(50))

        def fail():
            while not done.is_set():
                failures.add("f", ValueError("other"))

        failures, done = et.pipeline._Failures(), threading.Event()
        threshold, interval = gc.get_threshold(), sys.getswitchinterval()
        gc.set_threshold(5)
        sys.setswitchinterval(1e-5)
        threads = [threading.Thread(target=fail) for _ in range(2)]
        try:
            for thread in threads:
                thread.start()
            for _ in range(5000):
                Cycle()
                cause = ValueError("this")
                failures.add("f", cause)
                found = failures.original(et.errors.CallbackError("the function 'f' failed: ValueError: this"))
                self.assertIn(str(found), ("this", "the function 'f' failed: ValueError: this"))
        finally:
            gc.set_threshold(*threshold)
            sys.setswitchinterval(interval)
            done.set()
            for thread in threads:
                thread.join()

    def test_names_that_are_no_text(self):
        zero = np.zeros(1, np.float32)
        for name, error, words in ((3, TypeError, "argument 'field' is a str, not int: 3"),
                                   (None, TypeError, "not NoneType: None"), (b"x", TypeError, "not bytes"),
                                   ("\ud800", UnicodeError, r"argument 'field' is '\\ud800', which cannot be written as UTF-8"),
                                   ("a\0b", et.errors.InvalidArgumentError, "NUL character"),
                                   ("", et.errors.InvalidArgumentError, "the name of a field is empty"),
                                   ("a\nb", et.errors.InvalidArgumentError, "control character at byte 1"),
                                   ("x" * 10_000_000, et.errors.InvalidArgumentError, "has 10000000 bytes")):
            with self.assertRaisesRegex(error, words):
                et.Batch({name: zero})
            with et.Pipeline([et.source([{"x": zero}]), lambda sample, name=name: {**sample, name: zero}]) as pipeline:
                with self.assertRaisesRegex(error, words):
                    list(pipeline)
        with et.Batch({"x": zero}) as batch:
            for name in (3, None, "\ud800", "y"):
                self.assertNotIn(name, batch)
                with self.assertRaises(KeyError):
                    batch[name]
            with self.assertRaisesRegex(TypeError, "argument 'field' is a str, not int"):
                batch.tensor(3)
        with self.assertRaisesRegex(TypeError, "argument 'name' is a str, not int"):
            et.Pipeline([et.source([{"x": zero}]), et.map(lambda sample: sample, name=3)])

    def test_failures_in_words_that_are_no_utf8_or_long(self):
        def fail(sample):
            raise ValueError(words)

        for words in ("\ud800", "a field padded with \0\0", "долго " * 400):
            with et.Pipeline([et.source([{"label": np.int32(1)}]), fail]) as pipeline:
                with self.assertRaises(ValueError) as caught:
                    list(pipeline)
            self.assertEqual(str(caught.exception), words)

    def test_an_evaluation_that_is_stopped_within_fit(self):
        told = []

        class Stop(et.Callback):
            def on_evaluation(self, trainer, done, batches):
                told.append(done)
                return len(told) != 2  # within the first evaluation

        later = []

        class Watch(et.Callback):
            def on_evaluation(self, trainer, done, batches):
                later.append(done)

        history = self.trainer().fit(self.batches(), 3, validation=self.batches(),
                                     callbacks=[Stop(), Watch(), et.EarlyStopping(patience=3)])
        self.assertEqual(told, [1, 2, 0, 0, 1, 2, 3, 4, 1, 2, 3, 4])
        self.assertEqual(later, told)
        self.assertEqual([math.isnan(value) for value in history.history["val_loss"]], [True, False, False])
        self.assertEqual(len(history.history["loss"]), 3)

    def test_an_evaluation_that_is_cancelled_within_fit(self):
        validation = self.batches()

        class Cancel(et.Callback):
            def on_evaluation(self, trainer, done, batches):
                validation.cancel()

        with self.assertRaises(et.errors.CancelledError):
            self.trainer().fit(self.batches(), validation=validation, callbacks=[Cancel()])

    def test_arguments(self):
        device = os.environ.get("ECHOTRAIN_TEST_DEVICE")
        layers = [et.layers.flatten(), et.layers.dense(2)]
        for model in (layers, layers[0], None):
            with self.assertRaisesRegex(TypeError, r"et\.Model\(\[\.\.\.\]\)"):
                et.Trainer(model, et.optimizers.sgd(), 0.1, device=device)
        trainer = self.trainer()
        for epochs in (-1, 0):
            with self.assertRaisesRegex(ValueError, f"epochs is {epochs}"):
                trainer.fit(self.batches(), epochs)
        image = np.random.default_rng(0).normal(size=(5, 8, 8, 1)).astype(np.float32)
        np.testing.assert_array_equal(trainer.predict({"image": image}), trainer.predict(image))
        with et.Batch({"image": image}) as batch:
            np.testing.assert_array_equal(trainer.predict(batch), trainer.predict(image))
        with self.assertRaisesRegex(et.errors.NotFoundError, "image"):
            trainer.predict({"imag": image})
