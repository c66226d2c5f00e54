"""Everyday use and misuse of models, trainers and jobs in Python."""

import copy
import os
import pathlib
import pickle
import tempfile
import time

import numpy as np

import echotrain as et
from python_case import Case


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

    def test_hyperparameters_change_between_steps(self):
        trainer, plain = self.trainer(), self.trainer()
        for each in (trainer, plain):
            each.fit(self.batches())
        trainer.set_hyperparameter("weight_decay", 0.5)
        for each in (trainer, plain):
            each.fit(self.batches())
        self.assertLess(np.abs(trainer.weight("dense_2.weight")).sum(), np.abs(plain.weight("dense_2.weight")).sum())
        with self.assertRaisesRegex(et.errors.NotFoundError, "did you mean 'weight_decay'"):
            trainer.set_hyperparameter("weight_decai", 0.5)
        with self.assertRaisesRegex(et.errors.InvalidArgumentError, "weight_decay"):
            trainer.set_hyperparameter("weight_decay", -1)

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
        with self.assertRaisesRegex(et.errors.NotFoundError, "label"):
            t.step({"image": x})

    def test_a_loop_pass_by_pass(self):
        rng = np.random.default_rng(1)
        x = rng.normal(size=(32, 3)).astype(np.float32)
        y = (x @ [[1], [-2], [0.5]]).astype(np.float32)
        model = et.Model([et.layers.dense(1)], inputs=["x"], loss="mse")
        t = et.Trainer(model, et.optimizers.sgd(), 0.2, device=os.environ.get("ECHOTRAIN_TEST_DEVICE"))
        with self.assertRaisesRegex(et.errors.StateError, "call forward"):
            t.backward(y)
        for step in range(60):
            difference = t.forward({"x": x}) - y
            self.assertIsNone(t.backward(2 * difference / len(x)))
            np.testing.assert_allclose(t.gradient("dense_1.weight").reshape(-1),
                                       (2 * x.T @ difference / len(x)).reshape(-1), atol=1e-5)
            result = t.update()
            self.assertEqual((result.step, result.samples), (step + 1, 32))
            self.assertTrue(np.isnan(result.loss))
        self.assertLess(np.abs(t.predict({"x": x}) - y).max(), 1e-2)
        with self.assertRaisesRegex(et.errors.StateError, "call backward"):
            t.update()

        ones = np.ones_like(y)
        t.forward({"x": x}, input_gradients=True)
        inputs = t.backward(ones)
        np.testing.assert_allclose(inputs["x"], np.tile(t.weight("dense_1.weight").reshape(1, 3), (32, 1)), atol=1e-6)
        t.forward({"x": x})
        before = t.gradients()
        t.backward(ones, accumulate=True)
        for name, gradient in t.gradients().items():
            np.testing.assert_allclose(gradient, 2 * before[name], rtol=1e-5)
        weight = t.weight("dense_1.bias")
        t.set_gradients({"dense_1.bias": np.array([5], np.float32)})
        t.update()
        np.testing.assert_allclose(t.weight("dense_1.bias"), weight - 1, rtol=1e-5)
        with self.assertRaisesRegex(et.errors.InvalidArgumentError, r"f32 \[32, 1\], as the output is"):
            t.forward({"x": x})
            t.backward(x)

    def test_samples_without_elements_are_refused_by_each_way_in(self):
        layers = et.layers
        for shape, model in (((0,), [layers.dense(2)]), ((4, 0, 3), [layers.conv2d(2), layers.flatten(), layers.dense(2)])):
            trainer = et.Trainer(et.Model(model), et.optimizers.sgd(), 0.1)
            batch = {"image": np.zeros((2, *shape), np.float32), "label": np.zeros(2, np.int32)}
            samples = [{"image": np.zeros(shape, np.float32), "label": np.int32(i)} for i in range(2)]

            def pipeline():
                return et.Pipeline([et.source(samples), et.stages.batch(2)], epochs=1)

            for enter in (lambda: trainer.step(batch), lambda: trainer.forward(batch), lambda: trainer.predict(batch),
                          lambda: trainer.fit(pipeline()), lambda: trainer.evaluate(pipeline())):
                with self.assertRaisesRegex(et.errors.InvalidArgumentError, "field 'image' is f32 .* its samples have no elements"):
                    enter()
            empty = {name: array[:0] for name, array in batch.items()}
            for enter in trainer.step, trainer.forward, trainer.predict:
                with self.assertRaises(et.errors.InvalidArgumentError):
                    enter(empty)
            with self.assertRaisesRegex(et.errors.InvalidArgumentError, "give the shape of a sample"):
                et.Model(model).summary(image=list(shape))

        trainer = et.Trainer(et.Model([layers.dense(2)]), et.optimizers.sgd(), 0.1)
        trainer.forward({"image": np.ones((2, 3), np.float32)})
        for shape in (2, 0), (0, 2):
            with self.assertRaisesRegex(et.errors.InvalidArgumentError, "the gradient of the output is"):
                trainer.backward(np.zeros(shape, np.float32))

    def test_frozen_parameters(self):
        x = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)
        model = et.Model([et.layers.dense(4), et.layers.dense(2)], frozen="dense_1.*")
        t = et.Trainer(model, et.optimizers.adam(), 0.1, device=os.environ.get("ECHOTRAIN_TEST_DEVICE"))
        t.predict(x)
        before = t.weights()
        t.step({"image": x, "label": np.arange(8, dtype=np.int32) % 2})
        changed = [name for name, value in t.weights().items() if not np.array_equal(value, before[name])]
        self.assertEqual(changed, ["dense_2.weight", "dense_2.bias"])
        self.assertIn("16 of them frozen", str(t.summary()))
        self.assertEqual((t.summary().parameters, t.summary().frozen), (26, 16))
        with self.assertRaisesRegex(et.errors.NotFoundError, "'dens_1.*'"):
            et.Trainer(et.Model([et.layers.dense(2)], frozen=["dens_1.*"]), et.optimizers.sgd(), 0.1,
                       device=os.environ.get("ECHOTRAIN_TEST_DEVICE")).predict(x)

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
        with self.assertRaisesRegex(TypeError, "is not a layer"):
            et.Model([et.stages.decode()])

    def test_ready_made_models(self):
        model = et.Model(et.models.transformer_decoder(vocab_size=5, blocks=1, width=8, heads=2, dropout=0))
        self.assertEqual(model.json["inputs"], "input")
        self.assertEqual(et.Model.from_json(model.json).json, model.json)
        t = et.Trainer(model, et.optimizers.adam(), 0.01, device=os.environ.get("ECHOTRAIN_TEST_DEVICE"))
        text = np.arange(24, dtype=np.int32).reshape(4, 6) % 5
        t.step({"input": text, "target": (text + 1) % 5})
        self.assertEqual(t.predict(et.Batch({"input": text})).shape, (4, 6, 5))
        with tempfile.TemporaryDirectory() as folder:
            t.export_onnx(pathlib.Path(folder) / "model.onnx")
            self.assertIn(b"embedding.weight", (pathlib.Path(folder) / "model.onnx").read_bytes())
            same = et.Model.from_onnx(pathlib.Path(folder) / "model.onnx")
            tuned = et.Model.from_onnx(pathlib.Path(folder) / "model.onnx", [et.layers.dense(2, name="classes")], until="embedding",
                                       frozen="embedding.*", loss="mse")
            self.assertEqual([layer["name"] for layer in tuned.json["layers"]], ["embedding", "classes"])
            adapted = et.Model.from_onnx(pathlib.Path(folder) / "model.onnx", lora={"layers": ["*.up", "*.down"], "rank": 2})
            begun = et.Trainer(adapted, et.optimizers.adam(), 0.01, device=os.environ.get("ECHOTRAIN_TEST_DEVICE"))
            np.testing.assert_allclose(begun.predict(et.Batch({"input": text})), t.predict(et.Batch({"input": text})), atol=1e-5)
            self.assertTrue(any("lora_a" in name for name in begun.weights()), list(begun.weights()))
            for copy_of in (same, pickle.loads(pickle.dumps(same))):
                again = et.Trainer(copy_of, et.optimizers.adam(), 0.01, device=os.environ.get("ECHOTRAIN_TEST_DEVICE"))
                np.testing.assert_allclose(again.predict(et.Batch({"input": text})), t.predict(et.Batch({"input": text})), atol=1e-5)
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

    def test_events_come_in_time(self):
        stages = self.job().json["pipeline"]["stages"]
        stages.insert(1, {"stage": "delay", "milliseconds": 600000})  # no step is ever made
        job = et.Job(self.job().json, {"pipeline.stages": stages, "train.progress_every": 3600})
        with job.run(device=os.environ.get("ECHOTRAIN_TEST_DEVICE")) as run:
            event = next(run.events(0.01))
            self.assertEqual((event.kind, event.step), ("progress", 0))
            with self.assertRaisesRegex(et.errors.InvalidArgumentError, "seconds is -1"):
                next(run.events(-1))

    def test_a_job_is_advised(self):
        device = os.environ.get("ECHOTRAIN_TEST_DEVICE")
        told = []
        advice = self.job().advise(device=device, seconds=0.1, progress=lambda *args: told.append(args))
        self.assertEqual([args[:2] for args in told], [(i, None) for i in range(len(told))])
        self.assertIn("the pipeline alone", [text for _, _, text in told])
        self.assertGreater(advice["measured"]["downstream_s"], 0)
        self.assertEqual([stage["name"] for stage in advice["measured"]["stages"] if "reading" not in stage["name"]],
                         ["folder", "label", "decode", "batch", "normalize"])
        self.assertIn("Echo: ", advice["text"])
        self.assertEqual(et.Job(advice["job"]).json["model"], self.job().json["model"])
        with self.assertRaisesRegex(et.errors.InvalidArgumentError, "seconds"):
            self.job().advise(device=device, seconds=0)
        with self.assertRaises(et.errors.CancelledError):
            self.job().advise(device=device, seconds=60, progress=lambda calls, total, text: False)
        with self.assertRaises(ZeroDivisionError):
            self.job().advise(device=device, seconds=60, progress=lambda calls, total, text: 1 // 0)

    def test_a_folder_holds_one_run(self):
        device = os.environ.get("ECHOTRAIN_TEST_DEVICE")
        spec = self.job().json
        with tempfile.TemporaryDirectory() as folder:
            job = et.Job(spec, {"output.dir": folder})
            list(job.run(device=device))
            rows = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
            with self.assertRaisesRegex(et.errors.StateError, "step 12.*output.dir.*resume.*overwrite.*--set"):
                job.run(device=device)
            with self.assertRaisesRegex(ValueError, "one"):
                job.run(device=device, resume=True, overwrite=True)
            list(et.Job(spec, {"output.dir": folder, "train.steps": 14}).run(device=device, resume=True))
            self.assertEqual((pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()[:12], rows)
            list(et.Job(spec, {"output.dir": folder, "train.steps": 3}).run(device=device, overwrite=True))
            self.assertEqual(len((pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()), 3)
        del spec["output"]
        with self.assertLogs("echotrain", "WARNING") as logs:
            et.Job(spec).run(device=device)
            end = time.monotonic() + 30  # another thread brings the line
            while not logs.output and time.monotonic() < end:
                time.sleep(0.01)
        self.assertRegex(logs.output[0], "saves nothing.*output.dir")


class NulTest(Case):
    """Texts with a NUL character inside are refused and never cut off."""

    def test_arguments(self):
        trainer = self.trainer()
        trainer.predict(np.zeros((2, 8, 8, 1), np.float32))
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/a\0b"
            for call in (lambda: trainer.save(path), lambda: trainer.load(path), lambda: trainer.export_onnx(path),
                         lambda: trainer.load_pytorch(path), lambda: et.Job(path), lambda: et.Job("x", {"a": "\0"}),
                         lambda: trainer.weight("a\0b")):
                with self.assertRaisesRegex(et.errors.InvalidArgumentError, "argument '[a-z]+' has a NUL character"):
                    call()
            self.assertEqual(os.listdir(folder), [])

    def test_options(self):
        with self.assertRaisesRegex(et.errors.InvalidArgumentError, r"option 'root' is .*u0000.*NUL"):
            list(et.Pipeline([et.stages.folder("a\0b"), et.stages.label()]))
        with self.assertRaisesRegex(et.errors.InvalidArgumentError, "NUL"):
            et.Job({"output": {"dir": "a\0b"}})


class EarlyStoppingTest(Case):
    def test_it_begins_anew_with_each_fit(self):
        trainer, stopping = self.trainer(), et.EarlyStopping("loss", patience=1)
        for losses, epochs in (([1, 2, 2], 2), ([9, 8, 7], 3)):
            trainer.stop_training, run = False, 0
            stopping.on_train_begin(trainer)
            for run, loss in enumerate(losses, 1):
                stopping.on_epoch_end(trainer, run, {"loss": loss})
                if trainer.stop_training:
                    break
            self.assertEqual(run, epochs)
