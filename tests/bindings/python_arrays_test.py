"""Numbers of NumPy and Python as fields, options of wrong types, and calls as other libraries have them."""

import os
import tempfile

import numpy as np

import echotrain as et
from python_case import Case


class DenseCase(Case):
    def dense(self):
        model = et.Model([et.layers.dense(2)])
        return et.Trainer(model, et.optimizers.sgd(), 0.1, device=os.environ.get("ECHOTRAIN_TEST_DEVICE"))


class NumbersTest(DenseCase):
    def test_other_types_are_converted(self):
        cases = ((np.array([1, 2]), np.int32), (np.arange(3, dtype=np.int8), np.int32), (np.arange(3, dtype=np.uint32), np.int32),
                 (np.array([True, False]), np.int32), (np.linspace(0, 1, 5), np.float32), (np.float16(2.5), np.float32),
                 (np.array([1, 2], ">i4"), np.int32), (np.array([1.5], ">f4"), np.float32), (7, np.int32), (2.5, np.float32),
                 (True, np.int32), ([[1, 2], [3, 4]], np.int32), ((1, 2.5), np.float32), (np.int64(-5), np.int32))
        for value, dtype in cases:
            got = et.Batch({"x": value})["x"]
            self.assertEqual(got.dtype, dtype, value)
            np.testing.assert_array_equal(got, np.asarray(value).astype(dtype))

    def test_those_that_fields_hold_are_shared(self):
        for dtype in (np.uint8, np.uint16, np.int32, np.float32):
            array = np.arange(4, dtype=dtype)
            batch = et.Batch({"x": array})
            self.assertEqual(batch["x"].__array_interface__["data"][0], array.__array_interface__["data"][0])

    def test_what_does_not_fit_is_an_error(self):
        for value in (1 << 31, -(1 << 31) - 1, np.uint64(1 << 63), np.array([0, 1 << 40]), 1 << 70):
            with self.assertRaisesRegex((ValueError, TypeError), "'label'"):
                et.Batch({"label": value})
        with self.assertRaisesRegex(ValueError, "'label' is int64 and holds 2147483648, which does not fit int32"):
            et.Batch({"label": np.array([1 << 31])})
        with self.assertRaisesRegex(ValueError, "holds 1e.300, which does not fit float32"):
            et.Batch({"x": np.array([1e300])})
        for value in (np.inf, -np.inf, np.nan):  # these do
            np.testing.assert_array_equal(et.Batch({"x": value})["x"], np.float32(value))
        for value in ("text", ["text"], np.array(["a"]), np.array([1j]), None, object(), [None], {"a": 1}):
            with self.assertRaisesRegex(TypeError, "'x'"):
                et.Batch({"x": value})
        with self.assertRaisesRegex(ValueError, "'x'.*inhomogeneous"):
            et.Batch({"x": [[1], [2, 3]]})

    def test_arrays_without_elements(self):
        for shape in ((0,), (0, 3), (3, 0)):
            self.assertEqual(et.Batch({"x": np.zeros(shape, np.float32)})["x"].shape, shape)

    def test_labels_as_numpy_makes_them(self):
        images = np.random.default_rng(0).normal(size=(8, 3))
        labels = np.arange(8) % 2
        trainer, other = self.dense(), self.dense()
        trainer.step({"image": images, "label": labels})
        other.step({"image": images.astype(np.float32), "label": labels.astype(np.int32)})
        self.assertEqual(list(trainer.results(wait=True)), list(other.results(wait=True)))
        np.testing.assert_array_equal(trainer.predict(images), other.predict(images.astype(np.float32)))
        samples = [{"image": image, "label": int(label)} for image, label in zip(images, labels)]
        with et.Pipeline([et.source(samples), lambda s: {**s, "image": s["image"] * 1.5}, et.stages.batch(4)], epochs=1) as p:
            trainer.fit(p)


class MisuseTest(DenseCase):
    def test_a_label_of_no_class_comes_first(self):
        trainer = self.dense()
        for label, words in ((5, "^label 5, but the model has 2 classes"), (-7, "^label -7, but the model has 2 classes")):
            trainer.step({"image": np.ones((2, 3)), "label": [0, label]})
            with self.assertRaisesRegex(et.errors.NotFiniteError, words):
                list(trainer.results(wait=True))

    def test_arrays_where_a_pipeline_is_due(self):
        trainer, x, y = self.dense(), np.zeros((8, 3)), np.zeros(8, np.int64)
        for call in (lambda: trainer.fit(x, y), lambda: trainer.fit(x, y, epochs=3), lambda: trainer.run(x, y)):
            with self.assertRaisesRegex(TypeError, r"takes a Pipeline, not float64 \[8, 3\] and int64 \[8\].*et.source"):
                call()
        for call in (lambda: trainer.evaluate(x), lambda: trainer.fit(pipeline=x)):
            with self.assertRaisesRegex(TypeError, r"takes a Pipeline, not float64 \[8, 3\];"):
                call()
        with self.assertRaisesRegex(TypeError, "not list"):
            trainer.fit([1])
        # What the message proposes works.
        proposed = et.Pipeline([et.source([{"image": a, "label": b} for a, b in zip(x, y)]), et.stages.shuffle(),
                                et.stages.batch(4)])
        self.assertEqual(len(trainer.fit(proposed, 2).epoch), 2)

    def test_bytes_where_floats_are_due(self):
        trainer = self.dense()
        trainer.predict(np.zeros((1, 3)))
        with self.assertRaisesRegex(ValueError, r"x / 255 - mean\) / std"):
            trainer.predict(np.zeros((1, 3), np.uint8))
        with self.assertRaisesRegex(ValueError, "u16.*normalize"):
            trainer.predict(np.zeros((1, 3), np.uint16))

    def test_options_are_checked_when_a_stage_is_made(self):
        s, layers = et.stages, et.layers
        for make, words in ((lambda: s.batch("a"), r"stages.batch\(\): size='a' is a str; it takes type integer"),
                            (lambda: s.batch(2.5), "size=2.5 is a float"), (lambda: s.batch(True), "size=True is a bool"),
                            (lambda: s.batch(None), "NoneType"), (lambda: s.echo("two"), "type number"),
                            (lambda: s.normalize(mean=0.5), "type list of numbers"), (lambda: s.folder(3), "type string"),
                            (lambda: s.batch(8, drop_remainder=1), "type boolean"),
                            (lambda: layers.residual(layers.dense(2)), "type list of layers"),
                            (lambda: s.zip([s.files("*"), et.source([{"x": 1}])]), r"sources contains source\(list\); it takes stages, but no"),
                            (lambda: s.mix([[et.source([{"x": 1}]), s.take(3)]]), r"sources contains source\(list\); it takes stages"),
                            (lambda: et.schedule("fast"), "type number")):
            with self.assertRaisesRegex(TypeError, words):
                make()
        with self.assertRaisesRegex(ValueError, "channels cannot be 'grey'; did you mean 'gray'"):
            s.decode(channels="grey")
        for good in (s.batch(np.int64(8)), s.echo(2), s.echo(np.float32(2.5)), s.normalize(mean=np.array([0.5])),
                     s.normalize(mean=(0.5, 0.5, 0.5), std=[1, 1, 1]), s.folder(self.root)):
            self.assertIsNotNone(repr(good))

    def test_numbers_that_are_not_finite_are_named(self):
        nan, layers = float("nan"), et.layers
        for make, words in ((lambda: et.Trainer(et.Model([layers.dense(2)]), et.optimizers.sgd(), nan), "'learning_rate' is nan"),
                            (lambda: et.Trainer(et.Model([layers.dense(2)]), et.optimizers.sgd(np.float32("inf")), 0.1),
                             "'momentum' is inf"),
                            (lambda: et.Model([layers.dense(2), layers.dropout(nan)]), "'layers.1.rate' is nan"),
                            (lambda: et.Pipeline([et.stages.folder(self.root), et.stages.echo(nan)]), "'factor' is nan"),
                            (lambda: et.Job({"schedule": {"milestones": [1, nan]}}), "'schedule.milestones.1' is nan"),
                            (lambda: et.Job({}, {"schedule.learning_rate": -np.inf}), "'schedule.learning_rate' is -inf"),
                            (lambda: et.Job({"schedule": {"milestones": [1, 10**400]}}), "'schedule.milestones.1' is an integer beyond"),
                            (lambda: et.Job({}, {"train.steps": -10**5000}), "'train.steps' is an integer beyond"),
                            (lambda: et.Pipeline([et.stages.folder(self.root), et.stages.batch(10**400)]), "'size' is an integer"),
                            (lambda: et.Pipeline([et.stages.folder(self.root)], seed=10**400), "'seed' is an integer beyond")):
            with self.assertRaisesRegex(ValueError, words):
                make()

    def test_errors_name_the_argument_and_its_value(self):
        trainer = self.dense()
        for call, error, words in (
                (lambda: trainer.step(None), TypeError, "None is a NoneType; give a dict of arrays"),
                (lambda: et.Runtime(None, -1), et.errors.InvalidArgumentError, "memory_limit_bytes is -1"),
                (lambda: et.Batch({"x": np.zeros((1,) * 9)}), et.errors.UnsupportedError, "9 axes; at most 8"),
                (lambda: et.Batch([1, 2]), TypeError, r"\[1, 2\] is a list; give a dict of arrays"),
                (lambda: trainer.forward(np.zeros((1, 3))), TypeError, "is a ndarray; give a dict"),
                (lambda: et.Model([et.layers.dense(2)], lora=["*.query"]), TypeError, "lora is .*; give a dict"),
                (lambda: trainer.profile({"image": np.zeros((1, 3)), "label": [0]}, 10**10), OverflowError,
                 r"'steps' is 10000000000; it must lie in \[-2147483648, "),
                (lambda: trainer.profile({"image": np.zeros((1, 3)), "label": [0]}, 1.5), TypeError,
                 "'steps' is an int, not float: 1.5"),
                (lambda: et.Trainer(et.Model([et.layers.dense(2)]), et.optimizers.sgd(), 0.1, seed=2**64), OverflowError,
                 "'seed' is 18446744073709551616; "),
                (lambda: et.Trainer(et.Model([et.layers.dense(2)]), et.optimizers.sgd(), 0.1, seed="1"), TypeError,
                 "'seed' is an int, not str: '1'"),
                (lambda: et.Trainer.detections(np.zeros((1, 2, 6)), "0.3"), TypeError,
                 "'score_threshold' is a float, not str: '0.3'"),
                (lambda: et.Trainer.detections(np.zeros((1, 2, 6)), 10**400), OverflowError, "too large"),
                (lambda: et.Runtime(hang_seconds=None), TypeError, "'hang_seconds' is a float, not NoneType: None"),
                (lambda: et.Runtime(trust_driver="no"), TypeError, "'trust_driver' is a bool, not str: 'no'")):
            with self.assertRaisesRegex(error, words):
                call()

    def test_numbers_may_be_those_of_numpy(self):
        et.Trainer(et.Model([et.layers.dense(2)]), et.optimizers.sgd(), 0.1, seed=np.int64(1))
        outputs, number = np.random.default_rng(1).random((1, 2, 12)), np.float32(0.25)
        np.testing.assert_array_equal(et.Trainer.detections(outputs, number, number),
                                      et.Trainer.detections(outputs, 0.25, 0.25))
        et.Runtime(os.environ.get("ECHOTRAIN_TEST_DEVICE"), hang_seconds=np.float64(300), trust_driver=1).close()
        self.assertIsNone(self.dense().result(wait=np.bool_(True)))

    def test_what_is_no_path_is_no_name_of_a_file(self):
        trainer, folder = self.dense(), os.getcwd()
        trainer.predict(np.zeros((1, 3)))
        os.chdir(tempfile.mkdtemp())
        try:
            for call in (lambda: trainer.save(None), lambda: trainer.load(None), lambda: trainer.export_onnx(None),
                         lambda: et.Job(None), lambda: et.Study(None), lambda: et.pack_folder(self.root, None),
                         lambda: et.write_report("t", {"a": None}, "report.html"), lambda: trainer.save(3)):
                with self.assertRaisesRegex(TypeError, "os.PathLike object, not "):
                    call()
            self.assertEqual(os.listdir(), [])
        finally:
            os.chdir(folder)

    def test_a_tensor_goes_to_no_other_device(self):
        tensor = et.Batch({"x": np.ones(3, np.float32)}).tensor("x")
        with self.assertRaisesRegex(BufferError, r"device \(2, 0\) was asked for"):
            tensor.__dlpack__(dl_device=(2, 0))
        self.assertIsNotNone(tensor.__dlpack__(dl_device=(1, 0)))

    def test_sources_that_give_no_sample(self):
        for samples, words in (([{"x": 1}, None], "source gave NoneType.*iterator ends"), ([{}], "without fields"),
                               (lambda epoch: None, "source's function returned NoneType"), ([3], "dict of arrays")):
            with self.assertRaisesRegex(TypeError, words):
                list(et.Pipeline([et.source(samples)], epochs=1))
        self.assertEqual(list(et.Pipeline([et.source([])], epochs=1)), [])
        with self.assertRaisesRegex(TypeError, "at least one"):
            list(et.Pipeline([et.source([{"x": 1}]), lambda sample: {}], epochs=1))


class EvaluationTest(DenseCase):
    def data(self, rows=40):
        samples = [{"image": np.full(3, i / rows), "label": i % 2} for i in range(rows)]
        return et.Pipeline([et.source(samples), et.stages.batch(10)])

    def test_progress(self):
        trainer, told = self.dense(), []
        scores = trainer.evaluate(self.data(), lambda done, batches: told.append((done, batches)))
        self.assertEqual(told, [(1, None), (2, None), (3, None), (4, None)])
        self.assertEqual(scores, trainer.evaluate(self.data()))
        self.assertEqual(len(told), 4)
        told = []
        trainer.evaluate(self.batches_of_three(), lambda done, batches: told.append((done, batches)))
        self.assertEqual(told, [(i, 4) for i in range(1, 5)])

    def batches_of_three(self):
        return self.pipeline(lambda s: {"image": np.ones(3), "label": s["label"]}, et.stages.batch(16), epochs=1)

    def test_progress_that_stops_or_raises(self):
        trainer, told = self.dense(), []

        def stop(done, batches):
            told.append(done)
            return done < 2

        with self.assertRaises(et.errors.CancelledError):
            trainer.evaluate(self.data(), stop)
        self.assertEqual(told, [1, 2])
        with self.assertRaisesRegex(KeyError, "mine"):
            trainer.evaluate(self.data(), lambda done, batches: {}["mine"])
        with self.assertRaises(et.errors.StateError):
            trainer.evaluate(self.data(), lambda done, batches: trainer.summary())
        self.assertIn("loss", trainer.evaluate(self.data()))

    def test_an_evaluation_is_a_whole_epoch(self):
        trainer, data = self.dense(), self.data()
        whole = trainer.evaluate(self.data())
        with self.assertRaises(et.errors.CancelledError):
            trainer.evaluate(data, lambda done, batches: False)
        self.assertEqual(trainer.evaluate(data), whole)
        next(iter(data))
        told = []
        self.assertEqual(trainer.evaluate(data, lambda done, batches: told.append((done, batches))), whole)
        self.assertEqual(told, [(0, None)] * 3 + [(done, 4) for done in range(1, 5)])
        once = et.Pipeline([et.source([{"image": np.ones(3), "label": 1}] * 20), et.stages.batch(10)], epochs=1)
        next(iter(once))
        with self.assertRaisesRegex(ValueError, "no epoch left"):
            trainer.evaluate(once)

    def test_callbacks_of_fit(self):
        told = []

        class Watch(et.Callback):
            def on_evaluation(self, trainer, done, batches):
                told.append(done)

        self.dense().fit(self.data(), 2, validation=self.data(20), callbacks=[Watch()])
        self.assertEqual(told, [1, 2] * 2)

    def test_jobs(self):
        stages = [{"stage": "folder", "root": str(self.root)}, {"stage": "label"}, {"stage": "decode"},
                  {"stage": "batch", "size": 16}, {"stage": "normalize"}]
        job = et.Job({"pipeline": {"stages": stages}, "evaluation": {"pipeline": {"stages": stages}, "every_steps": 2},
                      "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
                      "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.01}, "output": {"dir": ""}},
                     {"train.steps": 4, "train.progress_every": 3600})
        self.assertRegex(repr(job), r"^Job\(\{'pipeline': .*, \{'train.steps': 4, .*\}\)$")
        told = []
        run = job.run(device=os.environ.get("ECHOTRAIN_TEST_DEVICE"), on_evaluation=lambda *args: told.append(args))
        self.assertEqual(sum(event.kind == "evaluation" for event in run), 2)
        self.assertEqual(told, [(i, 4) for i in range(1, 5)] * 2)
        stopped = job.run(device=os.environ.get("ECHOTRAIN_TEST_DEVICE"), on_evaluation=lambda *args: False)
        self.assertEqual([event.kind for event in stopped if event.kind == "evaluation"], [])
        events = []
        with self.assertRaises(ZeroDivisionError):
            for event in job.run(device=os.environ.get("ECHOTRAIN_TEST_DEVICE"), on_evaluation=lambda *args: 1 / 0):
                events.append(event.kind)
        self.assertEqual(events, ["end"])  # the event that came with the failure is not lost
        self.assertTrue(repr(run).startswith("JobRun(Job("))

    def test_models_are_compared_by_what_they_are_made_of(self):
        model = et.Model([et.layers.dense(2)])
        self.assertEqual(model, et.Model([et.layers.dense(2)]))
        self.assertEqual(model, et.Model.from_json(model.json))
        self.assertNotEqual(model, et.Model([et.layers.dense(3)]))
        self.assertNotEqual(model, "a model")
