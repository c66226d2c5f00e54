"""Everyday use and misuse of the Python package: errors, lifetimes, threads, memory."""

import copy
import gc
import json
import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest

import numpy as np

import echotrain as et
from png import png


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls._folder.name)
        for i in range(64):
            folder = cls.root / str(i % 2)
            folder.mkdir(exist_ok=True)
            image = np.full((8, 8), 40 + 160 * (i % 2), np.uint8) + np.uint8(i % 30)
            (folder / f"{i:03}.png").write_bytes(png(image))

    @classmethod
    def tearDownClass(cls):
        cls._folder.cleanup()

    def stages(self, *more):
        return [et.stages.folder(self.root), et.stages.label(), et.stages.decode(), *more]

    def pipeline(self, *more, **options):
        return et.Pipeline(self.stages(*more), **options)

    def batches(self, size=16, **options):
        return self.pipeline(et.stages.batch(size), et.stages.normalize(), **options)

    def trainer(self, **options):
        model = et.Model([et.layers.flatten(), et.layers.dense(2)])
        return et.Trainer(model, et.optimizers.sgd(momentum=0.9), 0.02,
                          device=os.environ.get("ECHOTRAIN_TEST_DEVICE"), **options)


class PipelineTest(Case):
    def test_an_epoch_at_a_time(self):
        with self.batches(epochs=2) as p:
            self.assertEqual([b.samples for b in p], [16] * 4)
            self.assertEqual(sum(b.fresh for b in p), 64)
            self.assertEqual(list(p), [])  # the epochs are over
            self.assertEqual(p.stats()["consumer"]["fresh"], 128)

    def test_batches_are_mappings_of_read_only_arrays(self):
        batch = next(iter(self.batches()))
        self.assertEqual(set(batch), {"image", "label"})
        image = batch["image"]
        self.assertEqual((image.shape, image.dtype), ((16, 8, 8, 1), np.float32))
        with self.assertRaises(ValueError):
            image[0] = 0
        with self.assertRaisesRegex(KeyError, "imag"):
            batch["imag"]
        address = batch.tensor("image").__array_interface__["data"][0]
        self.assertEqual(image.__array_interface__["data"][0], address)  # no copy
        np.testing.assert_array_equal(np.from_dlpack(batch.tensor("image")), image)

    def test_fields_of_sixteen_bits(self):
        values = np.arange(6, dtype=np.uint16).reshape(2, 3) * 13000
        batch = et.Batch({"x": values})
        self.assertEqual(batch["x"].dtype, np.uint16)
        np.testing.assert_array_equal(batch["x"], values)
        np.testing.assert_array_equal(np.from_dlpack(batch.tensor("x")), values)
        narrow = next(iter(self.batches()))["image"]
        wide = next(iter(self.pipeline(et.stages.cast(to="u16", scale=True), et.stages.batch(16))))["image"]
        self.assertEqual((wide.dtype, wide.shape), (np.uint16, narrow.shape))
        self.assertTrue((wide % 257 == 0).all() and wide.any())

    def test_arrays_outlive_their_batch_and_pipeline(self):
        p = self.batches()
        batch = next(iter(p))
        image, copy = batch["image"], batch["image"].copy()
        batch.close()
        with self.assertRaisesRegex(et.errors.StateError, "closed"):
            batch["image"]
        self.assertEqual(repr(batch), "Batch(closed)")
        p.close()
        with self.assertRaises(et.errors.StateError):
            next(iter(p))
        del p, batch
        gc.collect()
        np.testing.assert_array_equal(image, copy)

    def test_wrong_options_name_the_nearest(self):
        with self.assertRaisesRegex(TypeError, "factr.*factor"):
            et.stages.echo(factr=2)
        with self.assertRaisesRegex(et.errors.InvalidArgumentError, "thread.*threads"):
            self.batches(thread=2)
        with self.assertRaisesRegex(ValueError, "factor"):
            self.pipeline(et.stages.echo("two"))
        with self.assertRaisesRegex(TypeError, "size.*dict"):
            self.pipeline(et.stages.batch({}))
        with self.assertRaisesRegex(TypeError, "neither a stage nor a function"):
            self.pipeline("batch")
        with self.assertRaisesRegex(TypeError, "no stage"):
            self.pipeline(et.layers.flatten())

    def test_functions_are_stages(self):
        def invert(sample):
            return {**sample, "image": 255 - sample["image"], "twice": sample["label"] * np.int32(2)}

        plain = [b["image"].copy() for b in self.pipeline(seed=1)]
        for threads in (1, 4):
            got = list(self.pipeline(invert, seed=1, threads=threads))
            self.assertEqual(len(got), 64)
            for before, after in zip(plain, got):
                np.testing.assert_array_equal(after["image"], 255 - before)
                self.assertEqual(after["twice"], after["label"] * 2)
                self.assertEqual(after["twice"].shape, ())

    def test_functions_see_batches_and_draw_reproducible_numbers(self):
        def noisy(batch, info):
            rng = np.random.default_rng((info.epoch, info.ordinal))
            return {"x": batch["image"] + rng.normal(size=batch["image"].shape).astype(np.float32)}

        def digest(threads):
            p = self.batches(threads=threads)
            p2 = et.Pipeline(self.stages(et.stages.batch(16), et.stages.normalize(),
                                         et.map(noisy, with_info=True)), threads=threads)
            del p
            return [b["x"].tobytes() for b in p2]

        self.assertEqual(digest(1), digest(4))

    def test_what_a_function_raises_is_raised_again(self):
        class Picky(Exception):
            pass

        def picky(sample):
            if sample["label"] == 1:
                raise Picky("no ones")
            return sample

        with self.assertRaises(Picky) as caught:
            list(self.pipeline(picky))
        self.assertIn("picky", str(caught.exception.__cause__))
        self.assertIn(".png", str(caught.exception.__cause__))
        p = self.pipeline(picky, on_error="skip", epochs=1)
        self.assertEqual(len(list(p)), 32)
        self.assertEqual(len(p.bad_records()), 32)

    def test_functions_that_return_nonsense(self):
        with self.assertRaisesRegex(TypeError, "NoneType"):
            list(self.pipeline(lambda sample: None))
        with self.assertRaisesRegex(TypeError, "float64.*astype"):
            list(self.pipeline(lambda sample: {"image": sample["image"] * 1.5}))

    def test_length_is_known_where_it_can_be(self):
        with self.batches(size=10) as p:
            self.assertEqual(len(p), 6)
            self.assertEqual(len(list(p)), 6)
        with self.pipeline(et.stages.repeat(2), et.stages.echo(1.5), et.stages.batch(10, drop_remainder=False)) as p:
            self.assertEqual(len(p), 20)  # 64 samples, twice, half of them echoed: 192
            self.assertEqual(sum(1 for _ in p), 20)
        with self.pipeline(et.stages.repeat(0), et.stages.batch(8)) as endless:
            self.assertTrue(endless)
            with self.assertRaisesRegex(TypeError, "not known"):
                len(endless)
        with tempfile.TemporaryDirectory() as folder:
            prefix = pathlib.Path(folder) / "new" / "train"
            packed = et.pack_folder(self.root, prefix, samples_per_shard=40)
            self.assertEqual((packed["samples"], packed["classes"], packed["skipped"]), (64, ["0", "1"], []))
            with self.assertRaisesRegex(et.errors.InvalidArgumentError, "earlier packing"):
                et.pack_folder(self.root, prefix)
            with et.Pipeline([et.stages.webdataset(str(prefix) + "-*.tar.zst"), et.stages.batch(16)]) as shards:
                with self.assertRaises(TypeError):
                    len(shards)
                self.assertEqual(sum(1 for _ in shards), 4)
                self.assertEqual(len(shards), 4)

    def test_tune_finds_settings_that_a_pipeline_takes(self):
        stages = [et.stages.folder(self.root), et.stages.decode(), et.stages.keep("image"), et.stages.batch(8)]
        found = et.tune(stages, seconds=0.05)
        self.assertGreater(found["samples_per_s"], 0)
        self.assertEqual({"threads", "prefetch"}, set(found["options"]))
        with et.Pipeline(stages, epochs=1, **found["options"]) as p:
            self.assertGreater(len(list(p)), 0)
        with self.assertRaises(TypeError):
            et.tune([et.stages.folder(self.root), lambda sample: sample])

    def test_explain_names_the_bottleneck(self):
        with et.Pipeline([et.source([{"x": np.zeros(2, np.float32)}] * 50), et.stages.delay(2), et.stages.batch(5)],
                         epochs=1, trace_events=1000) as p:
            with self.assertRaises(et.EchoTrainError):
                p.explain()
            list(p)
            self.assertIn("delay", p.explain().splitlines()[1])
            self.assertTrue(p.explain("svg").startswith("<svg"))
            self.assertIn("traceEvents", p.trace())

    def test_sources_within_sources(self):
        a = et.stages.folder(self.root)
        spec = et.stages.mix([a, [a, et.stages.label()]], weights=[2, 1])
        with et.Pipeline([spec, et.stages.cache(), et.stages.decode(), et.stages.keep("image"), et.stages.batch(3)], epochs=1) as p:
            self.assertGreater(len(list(p)), 0)
        with self.assertRaisesRegex(et.EchoTrainError, "cannot stand there"):
            list(et.Pipeline([et.stages.mix([et.stages.decode()])]))

    def test_sources_of_ones_own(self):
        samples = [{"x": np.full(3, i, np.float32), "label": np.int32(i)} for i in range(10)]
        with et.Pipeline([et.source(samples), et.stages.batch(5)], epochs=2) as p:
            batches = list(p)
            np.testing.assert_array_equal(batches[1]["label"], range(5, 10))
            self.assertEqual(batches[0]["x"].shape, (5, 3))
            self.assertEqual(len(list(p)), 2)

        def by_epoch(epoch):
            for i in range(3):
                yield {"label": np.int32(10 * epoch + i)}

        with et.Pipeline([et.source(by_epoch), et.stages.repeat(2)], epochs=2) as p:
            self.assertEqual([int(b["label"]) for b in p], [0, 1, 2, 0, 1, 2])
            self.assertEqual([int(b["label"]) for b in p], [10, 11, 12, 10, 11, 12])
        with self.assertRaisesRegex(TypeError, "once only"):
            et.source(iter(samples))

        def breaks(epoch):
            yield samples[0]
            raise KeyError("gone")

        with self.assertRaisesRegex(KeyError, "gone"):
            list(et.Pipeline([et.source(breaks)]))
        with self.assertRaisesRegex(TypeError, "dict of arrays"):
            list(et.Pipeline([et.source([1, 2])]))

    def test_position_is_saved_and_restored(self):
        options = dict(seed=3, epochs=1)
        stages = self.stages(et.stages.echo(2, buffer=20), et.stages.batch(8))
        p = et.Pipeline(stages, **options)
        it = iter(p)
        for _ in range(5):
            next(it)
        state = json.loads(json.dumps(p.save()))
        tail = [b["label"].tolist() for b in it]
        again = et.Pipeline(stages, **options)
        again.restore(state)
        self.assertEqual([b["label"].tolist() for b in again], tail)
        with self.assertRaisesRegex(et.errors.InvalidArgumentError, "other stages"):
            self.batches().restore(state)

    def test_cancel_from_another_thread(self):
        p = self.pipeline(et.stages.delay(60000))
        timer = threading.Timer(0.2, p.cancel)
        timer.start()
        begin = time.monotonic()
        with self.assertRaises(et.errors.CancelledError):
            next(iter(p))
        self.assertLess(time.monotonic() - begin, 2)

    def test_a_trainer_in_use_by_another_thread(self):
        entered, let_go = threading.Event(), threading.Event()

        def wait(sample):
            entered.set()
            let_go.wait()
            return sample

        trainer, scores = self.trainer(), []
        batch = next(iter(self.batches()))
        evaluation = self.pipeline(wait, et.stages.batch(16), et.stages.normalize(), epochs=1)
        other = threading.Thread(target=lambda: scores.append(trainer.evaluate(evaluation)))
        other.start()
        entered.wait()
        for use in (lambda: trainer.step(batch), lambda: trainer.predict(batch),
                    lambda: trainer.save(self.root / "none"), lambda: next(iter(evaluation))):
            with self.assertRaisesRegex(et.errors.StateError, "in use by another thread"):
                use()
        self.assertIn("stages", evaluation.stats())  # from any thread
        let_go.set()
        other.join()
        self.assertEqual(len(scores), 1)
        trainer.step(batch)

    def test_a_pipeline_is_not_pickled(self):
        for thing in (self.batches(), next(iter(self.batches()))):
            with self.assertRaisesRegex(TypeError, "cannot be pickled"):
                pickle.dumps(thing)

    def test_abandoned_and_repeated_pipelines_leave_no_memory_behind(self):
        def resident():
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096

        def once():
            p = self.pipeline(lambda s: s, et.stages.batch(8), threads=1)
            next(iter(p))

        for _ in range(200):
            once()
        before = resident()
        for _ in range(1000):
            once()
        self.assertLess(resident() - before, 24 << 20)

    def test_collected_in_any_order(self):
        for _ in range(20):
            p = self.batches()
            batch = next(iter(p))
            things = [p, batch, batch.tensor("image"), batch["image"], iter(p)]
            del p, batch
            random.shuffle(things)
            while things:
                things.pop()
                gc.collect(0)


class TrainerTest(Case):
    def test_fit_learns_and_returns_keras_history(self):
        seen = []
        trainer = self.trainer()
        history = trainer.fit(self.batches(), 8, validation=self.batches(),
                              callbacks=[lambda epoch, logs: seen.append(epoch)])
        self.assertEqual(set(history.history), {"loss", "accuracy", "val_loss", "val_accuracy"})
        self.assertEqual(history.epoch, list(range(8)))
        self.assertEqual(seen, list(range(8)))
        self.assertLess(history.history["loss"][-1], history.history["loss"][0])
        self.assertGreater(history.history["val_accuracy"][-1], 0.9)

    def test_run_yields_events(self):
        trainer = self.trainer()
        events = list(trainer.run(self.batches(), 3, validation=self.batches()))
        self.assertEqual([e.kind for e in events], (["step"] * 4 + ["epoch"]) * 3 + ["end"])
        self.assertEqual([e.step for e in events if e.kind == "step"], list(range(1, 13)))
        self.assertEqual(events[-1].examples, 192)
        self.assertGreater(events[-1].eval_accuracy, 0.5)
        for event in trainer.run(self.batches(), 3):
            break  # leaving in the middle leaves no result behind
        self.assertIsNone(trainer.result(wait=True))
        with self.assertRaisesRegex(ValueError, "epochs"):
            next(trainer.run(self.batches(), 0))

    def test_batches_of_any_size_in_any_order(self):
        trainer, quiet = self.trainer(seed=3), self.trainer(seed=3)
        rng = np.random.default_rng(1)
        image = rng.normal(size=(100, 8, 8, 1)).astype(np.float32)
        self.assertEqual(trainer.predict(image[:1]).shape, (1, 2))
        losses = trainer.fit(self.batches(16), epochs=1).history["loss"]
        self.assertEqual(losses, quiet.fit(self.batches(16), epochs=1).history["loss"])
        everything = trainer.predict(image)
        for rows in (1, 30, 16, 99):
            np.testing.assert_allclose(trainer.predict(image[:rows]), everything[:rows], atol=1e-5)
        whole = trainer.evaluate(self.batches(64))
        for size in (30, 7):  # 64 = 30 + 30 + 4
            scores = trainer.evaluate(self.pipeline(et.stages.batch(size, drop_remainder=False), et.stages.normalize()))
            self.assertAlmostEqual(scores["loss"], whole["loss"], places=5)
            self.assertEqual(scores["accuracy"], whole["accuracy"])
        trainer.fit(self.batches(32), validation=self.batches(30))
        with self.assertRaisesRegex(et.errors.InvalidArgumentError, r"'image' is f32 \[N, 9, 9, 1\].*resize"):
            trainer.predict(np.zeros((1, 9, 9, 1), np.float32))

    def test_echoed_batches_are_not_fresh(self):
        p = self.pipeline(et.stages.batch(16), et.stages.normalize(), et.stages.echo(2), epochs=1)
        counts = [(b.fresh, b.echoed) for b in p]
        self.assertEqual(sorted(counts), [(0, 16)] * 4 + [(16, 0)] * 4)
        self.assertEqual(p.stats()["consumer"]["fresh"], 64)

    def test_summaries(self):
        model = et.Model([et.layers.conv2d(4, kernel=3), et.layers.batch_norm(), et.layers.flatten(),
                          et.layers.dense(2)])
        summary = model.summary(image=(8, 8, 1))
        self.assertEqual([layer.name for layer in summary.layers], ["conv2d_1", "batch_norm_2", "flatten_3", "dense_4"])
        self.assertEqual([layer.parameters for layer in summary.layers], [3 * 3 * 4 + 4, 8, 0, 2 * 256 + 2])
        self.assertEqual(summary.layers[0].shape, (None, 8, 8, 4))
        self.assertEqual((summary.parameters, summary.states), (40 + 8 + 514, 8))
        self.assertRegex(str(summary), r"conv2d_1 +\[N, 8, 8, 4\] +40\n")
        self.assertIn("562 parameters, 8 running statistics", repr(summary))
        words = et.Model([et.layers.embedding(7, 4), et.layers.flatten(), et.layers.dense(2)], inputs="text")
        self.assertEqual(words.summary(text=np.zeros(5, np.int32)).parameters, 28 + 42)
        with self.assertRaisesRegex(ValueError, "imag.*'image'"):
            model.summary(imag=(8, 8, 1))
        with self.assertRaisesRegex(ValueError, "reads field 'image'"):
            model.summary()
        for wrong in ((8, 0, 1), (8, -1), (1 << 31, 1 << 31, 8)):
            with self.assertRaisesRegex(ValueError, "shape of a sample"):
                model.summary(image=wrong)
        trainer = self.trainer()
        with self.assertRaisesRegex(et.errors.StateError, "before the first batch"):
            trainer.summary()
        trainer.predict(np.zeros((1, 8, 8, 1), np.float32))
        self.assertEqual(trainer.summary().parameters, 130)

    def test_weights_are_arrays(self):
        trainer = self.trainer()
        with self.assertRaisesRegex(et.errors.StateError, "before the first batch"):
            trainer.weights()
        trainer.fit(self.batches())
        weights = trainer.weights()
        self.assertEqual({name: array.shape for name, array in weights.items()},
                         {"dense_2.weight": (64, 2), "dense_2.bias": (2,)})
        np.testing.assert_array_equal(trainer.weight("dense_2.weight"), weights["dense_2.weight"])
        image = np.random.default_rng(0).normal(size=(5, 8, 8, 1)).astype(np.float32)
        flat = image.reshape(5, 64)
        np.testing.assert_allclose(trainer.predict(image), flat @ weights["dense_2.weight"] + weights["dense_2.bias"],
                                   atol=1e-5)
        trainer.set_weights({"dense_2.bias": weights["dense_2.bias"] + np.float32(3)})
        np.testing.assert_allclose(trainer.predict(image),
                                   flat @ weights["dense_2.weight"] + weights["dense_2.bias"] + 3, atol=1e-5)
        other = self.trainer(seed=9)
        other.predict(image)
        other.set_weights(trainer.weights())
        np.testing.assert_array_equal(other.predict(image), trainer.predict(image))
        with self.assertRaisesRegex(et.errors.NotFoundError, "dense_2.bias"):
            trainer.weight("dense_2.bia")
        before = trainer.weights()
        for wrong, words in (({"dense_2.bias": np.zeros(3, np.float32)}, r"f32 \[2\], not f32 \[3\]"),
                             ({"dense_2.bias": np.zeros(2, np.int32)}, "not i32"),
                             ({"dense_2.bias": np.zeros(2, np.float32), "dense_1.bias": np.zeros(2, np.float32)},
                              "no weight 'dense_1.bias'")):
            with self.assertRaisesRegex(et.EchoTrainError, words):
                trainer.set_weights(wrong)
        for name, array in trainer.weights().items():
            np.testing.assert_array_equal(array, before[name])

    def test_a_model_is_data(self):
        models = [et.Model([et.layers.conv2d(4, name="a"), et.layers.residual([et.layers.conv2d(4)]),
                            et.layers.flatten(), et.layers.dense(2)], loss="softmax_cross_entropy",
                           label_smoothing=0.1, precision="bf16", recompute=True),
                  et.Model(et.models.cifar_resnet(depth=8), inputs="picture"),
                  et.Model.from_json({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]})]
        for model in models:
            copies = [copy.copy(model), copy.deepcopy(model)]
            copies += [pickle.loads(pickle.dumps(model, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
            for twin in copies:
                self.assertEqual(twin.json, model.json)
                self.assertEqual(twin.layers, model.layers)
                self.assertEqual(repr(twin), repr(model))
        self.assertIsNot(copy.deepcopy(models[0]).layers[0], models[0].layers[0])
        with self.assertRaisesRegex(TypeError, "cannot be pickled"):
            copy.deepcopy(self.trainer())

    def test_reprs_say_what_there_is(self):
        def invert(sample):
            return sample

        p = self.pipeline(invert, et.stages.batch(16), seed=4)
        self.assertRegex(repr(p), r"^Pipeline\(\[stages.folder\(.*\), map\(invert\), stages.batch\(size=16\)\], seed=4\)$")
        trainer = self.trainer()
        for words in ("layers.dense(units=2)", "optimizers.sgd(momentum=0.9)", "0.02",
                      trainer.runtime.device.name):
            self.assertIn(words, repr(trainer))

    def test_hooks_that_would_never_be_called(self):
        with self.assertRaisesRegex(TypeError, "on_epoch_ends.*did you mean 'on_epoch_end'"):
            class Misspelt(et.Callback):
                def on_epoch_ends(self, trainer, epoch, logs):
                    pass
        with self.assertRaisesRegex(TypeError, "on_batch_begin.*There are: .*on_batch_end"):
            type("Foreign", (et.EarlyStopping,), {"on_batch_begin": lambda self: None})

        class Lookalike:
            def on_epoch_end(self, epoch, logs):
                pass

        trainer = self.trainer()
        for callbacks, words in (([et.EarlyStopping], r"EarlyStopping\(\)"), ([Lookalike()], "derive"),
                                 ([3], "neither"), (et.EarlyStopping(), "give a list"), (print, "give a list")):
            with self.assertRaisesRegex(TypeError, words):
                trainer.fit(self.batches(), callbacks=callbacks)
        told = []
        trainer.fit(self.batches(), callbacks=[lambda epoch, logs: told.append(epoch)])
        self.assertEqual(told, [0])

    def test_names_of_other_libraries_are_pointed_to_ours(self):
        for make, words in ((lambda: et.optimizers.adam(lr=0.1), "has no option 'lr'.*learning_rate=0.01"),
                            (lambda: et.optimizers.sgd(learning_rate=0.1), r"Trainer\(model, optimizers.sgd\(\)"),
                            (lambda: et.optimizers.sgd(wd=0.1), "weight_decay"),
                            (lambda: et.schedule(lr=0.1), "learning_rate"),
                            (lambda: et.layers.conv2d(8, kernel_size=3), "'kernel'"),
                            (lambda: et.layers.dropout(p=0.1), "'rate'"),
                            (lambda: et.stages.batch(batch_size=3), "'size'")):
            with self.assertRaisesRegex(TypeError, words):
                make()

    def test_early_stopping(self):
        history = self.trainer().fit(self.batches(), 50, callbacks=[et.EarlyStopping("loss", patience=-1)])
        self.assertLess(len(history.epoch), 50)
        with self.assertRaisesRegex(ValueError, "val_loss"):
            self.trainer().fit(self.batches(), 2, callbacks=[et.EarlyStopping()])

    def test_steps_on_arrays_and_prediction(self):
        rng = np.random.default_rng(1)
        x = rng.normal(size=(32, 3)).astype(np.float32)
        y = (x[:, 0] > 0).astype(np.int32)
        model = et.Model([et.layers.dense(2)])
        t = et.Trainer(model, et.optimizers.sgd(), 0.5, device=os.environ.get("ECHOTRAIN_TEST_DEVICE"))
        for _ in range(100):
            t.step({"image": x, "label": y})
        self.assertEqual(len(list(t.results(wait=True))), 100)
        self.assertGreater(np.mean(t.predict(x).argmax(axis=1) == y), 0.9)
        with self.assertRaisesRegex(et.errors.InvalidArgumentError, r"\[N, 2\].*\[N, 3\]"):
            t.step({"image": x[:, :2], "label": y})
        with self.assertRaisesRegex(TypeError, "float64"):
            t.step({"image": x.astype(np.float64), "label": y})
        with self.assertRaisesRegex(et.errors.NotFoundError, "label"):
            t.step({"image": x})

    def test_what_a_detector_found(self):
        # One anchor in the middle, far more likely class 0 than background or class 1; nothing in the second image.
        output = np.zeros((2, 1, 11), np.float32)
        output[:, 0, 7:] = 0.5, 0.5, 0.25, 0.5
        output[0, 0, 1] = 9
        first, second = et.Trainer.detections(output)
        np.testing.assert_allclose(first, [[0, 0.375, 0.25, 0.625, 0.75, 1]], atol=1e-3)
        self.assertEqual(second.shape, (0, 6))
        with self.assertRaisesRegex(et.errors.InvalidArgumentError, "anchors"):
            et.Trainer.detections(output[0])

    def test_a_pipeline_that_was_never_right_closes(self):
        with self.assertRaises(et.errors.InvalidArgumentError):
            et.Pipeline([et.stages.webdataset("x.tar")], thread=1)
        et.pipeline._close_all()  # as at the interpreter's end; nothing but the error above is said

    def test_models_are_graphs(self):
        layers = et.layers
        graph = et.Model([
            layers.dense(4, name="a"), layers.relu(), layers.add(input=["relu_2", "a"]),
            layers.residual([layers.dense(4)], shortcut=[layers.dense(4, bias=False)], activation="gelu"),
            layers.dense(2)], inputs="x", loss="huber", target="y", delta=0.5)
        self.assertEqual(graph.json["inputs"], ["x"])
        self.assertEqual(graph.json["layers"][3]["layers"], [{"layer": "dense", "units": 4}])
        t = et.Trainer(graph, et.optimizers.adamw(clip_norm=1), 0.01, device=os.environ.get("ECHOTRAIN_TEST_DEVICE"))
        x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
        for _ in range(50):
            t.step({"x": x, "y": x[:, :2]})
        losses = [result.loss for result in t.results(wait=True)]
        self.assertLess(losses[-1], 0.5 * losses[0])
        self.assertEqual(t.predict(et.Batch({"x": x})).shape, (8, 2))
        with self.assertRaisesRegex(ValueError, "layer 'relu_1': there is no layer or field 'b'"):
            t = et.Trainer(et.Model([layers.relu(input=["b"])]), et.optimizers.sgd(), 0.1,
                           device=os.environ.get("ECHOTRAIN_TEST_DEVICE"))
            t.step({"image": x, "label": np.zeros(8, np.int32)})
        with self.assertRaisesRegex(TypeError, "no layer"):
            et.Model([et.stages.decode()])

    def test_ready_made_models(self):
        model = et.Model(et.models.transformer_decoder(symbols=5, blocks=1, width=8, heads=2, dropout=0))
        self.assertEqual(model.json["inputs"], "input")
        self.assertEqual(et.Model.from_json(model.json).json, model.json)
        t = et.Trainer(model, et.optimizers.adam(), 0.01, device=os.environ.get("ECHOTRAIN_TEST_DEVICE"))
        text = np.arange(24, dtype=np.int32).reshape(4, 6) % 5
        t.step({"input": text, "target": (text + 1) % 5})
        self.assertEqual(t.predict(et.Batch({"input": text})).shape, (4, 6, 5))
        with tempfile.TemporaryDirectory() as folder:
            t.export_onnx(pathlib.Path(folder) / "model.onnx")
            self.assertIn(b"embedding.weight", (pathlib.Path(folder) / "model.onnx").read_bytes())
        with self.assertRaisesRegex(TypeError, "did you mean 'depth'"):
            et.models.resnet(deep=18)

    def test_an_epoch_without_a_batch(self):
        with self.assertRaisesRegex(et.errors.StateError, "no batch"):
            self.trainer().fit(self.batches(size=1000))

    def job(self):
        return et.Job({"pipeline": {"stages": [
            {"stage": "folder", "root": str(self.root)}, {"stage": "label"}, {"stage": "decode"},
            {"stage": "batch", "size": 16}, {"stage": "normalize"}]},
            "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
            "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.01},
            "train": {"steps": 50}, "output": {"dir": ""}}, {"train.steps": 12})

    def test_jobs(self):
        job = self.job()
        self.assertEqual(job.json["train"]["steps"], 12)
        events = list(job.run(device=os.environ.get("ECHOTRAIN_TEST_DEVICE")))
        self.assertEqual((events[-1].kind, events[-1].step), ("end", 12))
        with self.assertRaisesRegex(et.errors.EchoTrainError, "step.*steps"):
            et.Job(job.json, {"train.stepz": 1})

    def test_a_folder_holds_one_run(self):
        device = os.environ.get("ECHOTRAIN_TEST_DEVICE")
        spec = self.job().json
        with tempfile.TemporaryDirectory() as folder:
            job = et.Job(spec, {"output.dir": folder})
            list(job.run(device=device))
            rows = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
            with self.assertRaisesRegex(et.errors.StateError, "step 12.*resume.*overwrite.*output.dir"):
                job.run(device=device)
            with self.assertRaisesRegex(ValueError, "one"):
                job.run(device=device, resume=True, overwrite=True)
            list(et.Job(spec, {"output.dir": folder, "train.steps": 14}).run(device=device, resume=True))
            self.assertEqual((pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()[:12], rows)
            list(et.Job(spec, {"output.dir": folder, "train.steps": 3}).run(device=device, overwrite=True))
            self.assertEqual(len((pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()), 3)
        del spec["output"]
        with self.assertWarnsRegex(UserWarning, "saves nothing.*output.dir"):
            et.Job(spec).run(device=device)


class ProcessTest(Case):
    def run_script(self, text, **kwargs):
        script = f"import echotrain as et\nroot = {str(self.root)!r}\n" + textwrap.dedent(text)
        # A process started in the background of a shell ignores the interrupt, and so do its children.
        return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True,
                                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **kwargs)

    def test_clean_exit_with_a_running_pipeline(self):
        process = self.run_script("""
            def slow(sample):
                return dict(sample)
            p = et.Pipeline([et.stages.folder(root), et.stages.repeat(), slow], threads=4)
            it = iter(p)
            for _ in range(100):
                next(it)
            print("done")
        """)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out, err), (0, "done\n", ""))

    def test_ctrl_c_interrupts_a_wait(self):
        process = self.run_script("""
            import threading, time
            p = et.Pipeline([et.stages.folder(root), et.stages.delay(600000)])
            def tell():
                while p.stats()["stages"][0]["items_out"] == 0:
                    time.sleep(0.01)
                print("waiting", flush=True)
            threading.Thread(target=tell, daemon=True).start()
            next(iter(p))
        """)
        self.assertEqual(process.stdout.readline(), "waiting\n")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertIn("KeyboardInterrupt", err)


class SchemaTest(unittest.TestCase):
    def test_functions_have_signatures_and_documentation(self):
        import inspect
        signature = inspect.signature(et.stages.echo)
        self.assertEqual(list(signature.parameters)[0], "factor")
        self.assertEqual(signature.parameters["mode"].default, "fixed")
        self.assertIn("on_demand", et.stages.echo.__doc__)

    def test_stubs_name_every_function(self):
        for module in (et.stages, et.layers, et.optimizers):
            stub = pathlib.Path(module.__file__).with_suffix(".pyi").read_text()
            compile(stub, "stub", "exec")
            for name in module.__all__:
                self.assertIn(f"def {name}(", stub)

    def test_kernels_are_tuned_into_a_file(self):
        path = os.path.join(tempfile.mkdtemp(), "kernels.json")
        runtime = et.Runtime(os.environ.get("ECHOTRAIN_TEST_DEVICE"))
        trainer = et.Trainer(et.Model([et.layers.dense(2)]), et.optimizers.sgd(), 0.1, device=runtime)
        batch = et.Batch({"image": np.ones((4, 3), np.float32), "label": np.zeros(4, np.int32)})
        trainer.step(batch)
        runtime.tune(path)
        with open(path) as file:
            self.assertIn("nn 4x2x3 fp32", json.load(file)["devices"][runtime.device.name])
        et.Runtime(os.environ.get("ECHOTRAIN_TEST_DEVICE"), tuning=path)
        with self.assertRaises(et.errors.EchoTrainError):
            et.Runtime(tuning=path + ".none")

    def test_a_wrong_device_is_an_error_that_lists_those_there_are(self):
        with self.assertRaises(et.errors.EchoTrainError):
            et.Runtime("no such device")
        self.assertGreaterEqual(len(et.devices()), 1)


if __name__ == "__main__":
    unittest.main()
