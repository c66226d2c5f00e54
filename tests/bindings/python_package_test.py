"""The Python package in its process, and what it makes of the schemas."""

import errno
import gc
import json
import logging
import os
import pathlib
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
from echotrain import _schema
from python_case import Case


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
        out, err = process.communicate(timeout=240)
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
        _, err = process.communicate(timeout=240)
        self.assertIn("KeyboardInterrupt", err)

    def test_ctrl_c_ends_calls_that_report_their_progress(self):
        for call in ("et.tune([et.stages.folder(root)])", "et.pack_folder(root, root + '-packed')"):
            process = self.run_script(f"""
                import os, signal, time
                from echotrain import native
                def works_until_it_is_stopped(*arguments):  # in the place of the library
                    progress = arguments[-1]
                    progress.report(1, -1, "")
                    os.kill(os.getpid(), signal.SIGINT)
                    while progress.report(2, -1, ""):
                        time.sleep(0.01)
                    raise et.errors.CancelledError("stopped")
                native.tune = native.pack_folder = works_until_it_is_stopped
                {call}
            """)
            _, err = process.communicate(timeout=240)
            self.assertIn("KeyboardInterrupt", err)

    def writer_of(self, pipe, process):
        """The pipe for writing, once the process reads it."""
        while True:
            try:
                return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                self.assertEqual(error.errno, errno.ENXIO)
            if process.poll() is not None:
                self.fail(process.communicate()[1])
            time.sleep(0.01)

    def test_ctrl_c_interrupts_evaluations_that_wait(self):
        pipe = self.root.parent / f"{self.root.name}-pipe.tar"
        os.mkfifo(pipe)
        self.addCleanup(pipe.unlink)
        for evaluation in ("trainer.evaluate(et.Pipeline([et.stages.webdataset(str(pipe)), *stages]))",
                           "list(job.run(device=device))"):
            process = self.run_script(f"""
                device, pipe = {os.environ.get("ECHOTRAIN_TEST_DEVICE")!r}, {str(pipe)!r}
                stages = [et.stages.label(), et.stages.decode(), et.stages.batch(16), et.stages.normalize()]
                rows = [{{"stage": "label"}}, {{"stage": "decode"}}, {{"stage": "batch", "size": 16}}, {{"stage": "normalize"}}]
                model = et.Model([et.layers.flatten(), et.layers.dense(2)])
                trainer = et.Trainer(model, et.optimizers.sgd(), 0.02, device=device)
                job = et.Job({{"pipeline": {{"stages": [{{"stage": "folder", "root": root}}, *rows]}},
                              "evaluation": {{"pipeline": {{"stages": [{{"stage": "webdataset", "pattern": pipe}}, *rows]}}}},
                              "model": {{"layers": [{{"layer": "flatten"}}, {{"layer": "dense", "units": 2}}]}},
                              "optimizer": {{"optimizer": "sgd"}}, "schedule": {{"learning_rate": 0.01}},
                              "train": {{"steps": 1}}, "output": {{"dir": ""}}}})
                {evaluation}
            """)
            try:
                self.addCleanup(os.close, self.writer_of(pipe, process))
                process.send_signal(signal.SIGINT)
                _, err = process.communicate(timeout=240)
                self.assertIn("KeyboardInterrupt", err)
            finally:
                process.kill()


class SchemaTest(unittest.TestCase):
    def test_functions_have_signatures_and_documentation(self):
        import inspect
        signature = inspect.signature(et.stages.echo)
        self.assertEqual(list(signature.parameters)[0], "factor")
        self.assertEqual(signature.parameters["mode"].default, "fixed")
        self.assertIn("on_demand", et.stages.echo.__doc__)

    FORMS = (None, True, 3, 3.0, 2.5, -1, "x", {}, [], [1], [2.0], [2.5], [True], ["x"], ["x", "y"], [None], [[]], [{}])
    FILLERS = {"integer": 1, "number": 1, "boolean": True, "string": "x"}

    @staticmethod
    def refusal(kind, name, options, is_source):
        """What the library says against the options; "" where it takes them."""
        try:
            if kind == "stages":
                pipeline = et.native.PipelineHandle("{}")
                if not is_source:
                    pipeline.add("folder", '{"root": "."}')
                pipeline.add(name, json.dumps(options))
            elif kind == "layers":
                et.native.ModelHandle(json.dumps({"layers": [{"layer": name, **options}]}))
            else:
                et.native.OptimizerHandle(name, json.dumps(options), '{"learning_rate": 1}')
        except et.errors.EchoTrainError as error:
            return str(error)
        return ""

    def test_options_are_of_the_types_that_the_library_takes(self):
        checked = 0
        for module, kind in ((et.stages, "stages"), (et.layers, "layers"), (et.optimizers, "optimizers")):
            for row in _schema.load(kind):
                required = {o["name"]: o.get("choices", [self.FILLERS.get(o["type"], [])])[0]
                            for o in row["options"] if o["required"]}
                is_source = kind == "stages" and "a pipeline has one source" not in self.refusal(kind, row["name"], required, True)
                for option in row["options"]:
                    for value in self.FORMS:
                        refusal = self.refusal(kind, row["name"], {**required, option["name"]: value}, is_source)
                        refused = f"option '{option['name']}' must be of type" in refusal
                        try:
                            _schema.check_option(row["name"], {**option, "choices": [value]}, value)
                            accepted = True
                        except TypeError:
                            accepted = False
                        with self.subTest(kind, name=row["name"], option=option["name"], value=value, refusal=refusal):
                            # (A layer within a list is checked by itself.)
                            self.assertTrue(accepted != refused or "layer" in option["type"] and refusal)
                        checked += 1
        self.assertGreater(checked, 1000)
        self.assertEqual(et.layers.conv2d(2, input="pool").options["input"], "pool")

    def test_stubs_name_every_function(self):
        for module in (et.stages, et.layers, et.optimizers):
            stub = pathlib.Path(module.__file__).with_suffix(".pyi").read_text()
            compile(stub, "stub", "exec")
            for name in module.__all__:
                self.assertIn(f"def {name}(", stub)

    def test_objects_that_native_functions_return_are_freed(self):
        pipeline = et.native.PipelineHandle.from_json('{"stages": [{"stage": "folder", "root": "."}]}')
        self.assertTrue(pipeline.thisown)

    def test_kernels_are_tuned_into_a_file(self):
        path = os.path.join(tempfile.mkdtemp(), "kernels.json")
        runtime = et.Runtime(os.environ.get("ECHOTRAIN_TEST_DEVICE"))
        trainer = et.Trainer(et.Model([et.layers.dense(2)]), et.optimizers.sgd(), 0.1, device=runtime)
        batch = et.Batch({"image": np.ones((4, 3), np.float32), "label": np.zeros(4, np.int32)})
        trainer.step(batch)
        told = []
        runtime.tune(path, progress=lambda *args: told.append(args))
        self.assertEqual([args[:2] for args in told], [(done, len(told)) for done in range(1, len(told) + 1)])
        self.assertRegex(told[0][2], "^nn 4x2x3 fp32: .")
        with open(path) as file:
            self.assertIn("nn 4x2x3 fp32", json.load(file)["devices"][runtime.device.name])
        et.Runtime(os.environ.get("ECHOTRAIN_TEST_DEVICE"), tuning=path)
        with self.assertRaises(et.errors.EchoTrainError):
            et.Runtime(tuning=path + ".none")

    def test_a_wrong_device_is_an_error_that_lists_those_there_are(self):
        with self.assertRaises(et.errors.EchoTrainError):
            et.Runtime("no such device")
        self.assertGreaterEqual(len(et.devices()), 1)

    def test_options_of_a_runtime(self):
        device = os.environ.get("ECHOTRAIN_TEST_DEVICE")
        for trusts in (False, True):
            folder = pathlib.Path(tempfile.mkdtemp())
            runtime = et.Runtime(device, tuning="", kernels="tiled", cache_dir=folder, trust_driver=trusts)
            trainer = et.Trainer(et.Model([et.layers.dense(2)]), et.optimizers.sgd(), 0.1, device=runtime)
            trainer.step({"image": np.ones((4, 3), np.float32), "label": np.zeros(4, np.int32)})
            list(trainer.results(wait=True))
            del trainer, runtime
            gc.collect()  # the device goes, and writes its cache
            self.assertEqual(not list(folder.glob("kernels-*")), trusts, "what was compared is kept there")
        with et.Runtime(device) as runtime:
            name = runtime.device.name
        self.assertEqual(repr(runtime), f"Runtime({name!r})")
        with self.assertRaisesRegex(et.errors.StateError, "the device is closed"):
            runtime.device
        with self.assertRaisesRegex(ValueError, "kernels is 'best'; it is one of automatic, cpu"):
            et.Runtime(device, kernels="best")

    def test_how_long_a_device_may_hang_is_an_option(self):
        et.Runtime(os.environ.get("ECHOTRAIN_TEST_DEVICE"), hang_seconds=60)
        with self.assertRaisesRegex(et.errors.EchoTrainError, "hang_seconds is -1"):
            et.Runtime(hang_seconds=-1)


class LogTest(Case):
    def bad_folder(self, folder):
        (pathlib.Path(folder) / "a").mkdir()
        for i in range(3):
            (pathlib.Path(folder) / "a" / f"{i}.png").write_bytes(b"no image")

    def lines_of(self, name, count, run):
        """The records that the logger gets while ``run`` runs and for some time after it: another thread brings them."""
        records, logger = [], logging.getLogger(name)
        handler = logging.Handler()
        handler.emit = records.append
        logger.addHandler(handler)
        try:
            run()
            end = time.monotonic() + 30
            while len(records) < count and time.monotonic() < end:
                time.sleep(0.01)
        finally:
            logger.removeHandler(handler)
        return records

    def records_of_bad_folder(self, count):
        with tempfile.TemporaryDirectory() as folder:
            self.bad_folder(folder)

            def run():
                pipeline = et.Pipeline([et.stages.folder(folder), et.stages.decode()], epochs=1, on_error="skip",
                                       max_bad_share=1.0)
                self.assertEqual(list(pipeline), [])

            return self.lines_of("echotrain.bad_records", count, run)

    def test_bad_records_reach_a_logger_of_their_own(self):
        records = self.records_of_bad_folder(3)
        self.assertGreaterEqual(len(records), 3)
        self.assertEqual(records[0].levelno, logging.WARNING)
        self.assertIn("bad record dropped", records[0].getMessage())

    def test_a_handler_that_fails_loses_its_own_line_only(self):
        def fails(_):
            logger.removeFilter(fails)
            raise RuntimeError("the program's mistake")

        logger = logging.getLogger("echotrain.bad_records")
        logger.addFilter(fails)
        self.assertGreaterEqual(len(self.records_of_bad_folder(2)), 2)

    def test_an_import_starts_no_thread(self):
        done = subprocess.run([sys.executable, "-c", "import threading, echotrain; print(threading.active_count())"],
                              capture_output=True, text=True, timeout=240)
        self.assertEqual((done.stdout, done.stderr), ("1\n", ""))

    def test_warnings_are_shown_without_any_configuration(self):
        script = """
            import logging
            model = et.Model.from_json({"model": "transformer_decoder", "symbols": 5, "width": 8})
            print(model.json["layers"][0]["entries"])
        """
        done = subprocess.run([sys.executable, "-c", "import echotrain as et\n" + textwrap.dedent(script)],
                              capture_output=True, text=True, timeout=240)
        self.assertEqual((done.returncode, done.stdout), (0, "5\n"))
        self.assertIn("'symbols' is now called 'vocab_size'", done.stderr)


class FormerNamesTest(Case):
    def test_options_and_arguments(self):
        with self.assertWarnsRegex(DeprecationWarning, "'open' is now called 'open_rows'") as caught:
            stage = et.stages.pack_sequences("text", 8, open=3)
        self.assertEqual((caught.filename, stage), (__file__, et.stages.pack_sequences("text", 8, open_rows=3)))
        with self.assertRaisesRegex(TypeError, "no option 'open'"):
            et.stages.pack_sequences("text", 8, open_rows=3, open=3)
        outputs = np.zeros((1, 4, 2 + 8 + 1), np.float32)
        with self.assertWarnsRegex(DeprecationWarning, "'most' is now called 'max_detections'") as caught:
            found = et.Trainer.detections(outputs, most=2)
        self.assertEqual((caught.filename, len(found)), (__file__, 1))
        with self.assertRaisesRegex(TypeError, "no argument 'mots'"):
            et.Trainer.detections(outputs, mots=2)

    def test_a_former_name_belongs_to_one_option(self):
        renamed = 0
        for kind in ("stages", "layers", "models", "optimizers"):
            for entry in et.schema(kind):
                names = [name for option in entry["options"] for name in (option["name"], option.get("former")) if name]
                self.assertEqual(len(names), len(set(names)), entry["name"])
                renamed += len(names) - len(entry["options"])
        self.assertGreater(renamed, 0)


class LibraryTest(Case):
    def test_packing_tells_its_progress_and_can_be_stopped(self):
        with tempfile.TemporaryDirectory() as folder:
            told = []
            packed = et.pack_folder(self.root, pathlib.Path(folder) / "x", progress=lambda done, total: told.append((done, total)))
            self.assertEqual(packed["samples"], 64)
            self.assertEqual(told[-1], (64, 64))
            with self.assertRaises(et.errors.CancelledError):
                et.pack_folder(self.root, pathlib.Path(folder) / "y", progress=lambda done, total: False)
            with self.assertRaises(ZeroDivisionError):
                et.pack_folder(self.root, pathlib.Path(folder) / "z", progress=lambda done, total: 1 // 0)
            self.assertFalse(list(pathlib.Path(folder).glob("[yz]-*")))

    def test_statistics_are_explained_elsewhere(self):
        pipeline = self.batches()
        next(iter(pipeline))
        self.assertIn("bottleneck", json.loads(et.explain_stats(pipeline.stats(), "json")))
        self.assertIn("samples", et.explain_stats(pipeline.stats()))

    def test_pipelines_from_json(self):
        spec = {"stages": [{"stage": "folder", "root": str(self.root)}, {"stage": "label"}, {"stage": "decode"},
                           {"stage": "batch", "size": 16}], "epochs": 1}
        pipeline = et.Pipeline.from_json(spec)
        self.assertEqual(len(pipeline), 4)
        self.assertEqual(sum(batch.samples for batch in pipeline), 64)
        with self.assertRaisesRegex(et.errors.InvalidArgumentError, "'stages'"):
            et.Pipeline.from_json("{}")

    def test_a_run_is_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            job = et.Job({"pipeline": {"stages": [{"stage": "folder", "root": str(self.root)}, {"stage": "label"}, {"stage": "decode"},
                                                  {"stage": "batch", "size": 16}, {"stage": "normalize"}]},
                          "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
                          "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.01},
                          "train": {"steps": 4}, "output": {"dir": folder}})
            self.assertEqual(job.output_dir, folder)
            with job.run(device=os.environ.get("ECHOTRAIN_TEST_DEVICE")) as run:
                list(run)
            page = pathlib.Path(folder) / "report.html"
            table = et.write_report("runs", {"mine": folder}, page)
            self.assertIn("mine", json.dumps(table))
            self.assertIn("<html", page.read_text())

    def test_a_trainer_is_profiled(self):
        trainer = self.trainer()
        profile = trainer.profile(next(iter(self.batches())), steps=2)
        self.assertGreater(len(profile), 0)
        self.assertIsNone(trainer.result(), "its steps give no results")

    def test_schemas(self):
        self.assertIn("train", et.schema("job"))
        with self.assertRaises(et.errors.InvalidArgumentError):
            et.schema("jobs")
