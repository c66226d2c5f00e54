"""Everyday use and misuse of pipelines and batches in Python: errors, lifetimes, threads, memory."""

import gc
import json
import pathlib
import pickle
import random
import sys
import tempfile
import threading
import warnings
import weakref

import numpy as np

import echotrain as et
from echotrain.pipeline import _set_field
from png import png
from python_case import Case


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

    def test_a_second_image_does_not_replace_the_first(self):
        s, data = et.stages, np.frombuffer(png(np.full((4, 4), 9, np.uint8)), np.uint8)
        sample = {"jpg": data, "seg.png": data}
        with self.assertRaisesRegex(ValueError, "decode would replace the field 'image' by the decoded 'seg.png'"):
            next(iter(et.Pipeline([et.source([sample]), s.decode(), s.decode(field="seg.png")])))
        named = et.Pipeline([et.source([sample]), s.decode(field="seg.png"), lambda x: {"mask": x["image"], "jpg": x["jpg"]}, s.decode()])
        self.assertEqual(set(next(iter(named))), {"mask", "image"})

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

    def test_a_pipeline_is_collected_after_its_function_raised(self):
        def fail(sample):
            raise ArithmeticError("this sample is wrong")

        p = self.pipeline(fail, et.stages.batch(4))
        try:  # assertRaises would empty the frames that the traceback refers to
            list(p)
            self.fail("nothing was raised")
        except ArithmeticError:
            pass
        watched = weakref.ref(p)
        del p
        gc.collect()
        self.assertIsNone(watched(), "its threads would stay")

    def test_wrong_options_name_the_nearest(self):
        with self.assertRaisesRegex(TypeError, "factr.*factor"):
            et.stages.echo(factr=2)
        with self.assertRaisesRegex(et.errors.InvalidArgumentError, "thread.*threads"):
            self.batches(thread=2)
        with self.assertRaisesRegex(ValueError, "factor.*lie in"):
            self.pipeline(et.stages.echo(0.5))
        with self.assertRaisesRegex(TypeError, "size.*dict"):
            et.stages.batch({})
        with self.assertRaisesRegex(TypeError, "neither a stage nor a function"):
            self.pipeline("batch")
        with self.assertRaisesRegex(TypeError, "is not a stage"):
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
        with self.assertRaisesRegex(TypeError, "'image' is <U3.*numbers"):
            list(self.pipeline(lambda sample: {"image": np.array("one")}))

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
            packed = et.pack_folder(self.root, prefix, per_shard=40)
            self.assertEqual((packed["samples"], packed["classes"], packed["skipped"]), (64, ["0", "1"], []))
            with self.assertRaisesRegex(et.errors.InvalidArgumentError, "earlier packing"):
                et.pack_folder(self.root, prefix)
            for names in ({"per_shard": 40, "level": 0}, {"samples_per_shard": 40, "zstd_level": 0}):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    et.pack_folder(self.root, pathlib.Path(folder) / "plain" / "x", overwrite=True, **names)
                self.assertEqual([warning.category for warning in caught], [] if "level" in names else [DeprecationWarning] * 2)
                self.assertEqual(sorted(path.name for path in (pathlib.Path(folder) / "plain").glob("x-*")),
                                 ["x-000000.tar", "x-000001.tar"])
            with self.assertRaisesRegex(TypeError, "no argument 'shard'"):
                et.pack_folder(self.root, prefix, shard=40)
            with et.Pipeline([et.stages.webdataset(str(prefix) + "-*.tar.zst"), et.stages.batch(16)]) as shards:
                with self.assertRaises(TypeError):
                    len(shards)
                self.assertEqual(sum(1 for _ in shards), 4)
                self.assertEqual(len(shards), 4)

    def test_tune_finds_settings_that_a_pipeline_takes(self):
        stages = [et.stages.folder(self.root), et.stages.decode(), et.stages.keep("image"), et.stages.batch(8)]
        told = []
        found = et.tune(stages, seconds=0.05, progress=lambda *args: told.append(args))
        self.assertEqual([args[:2] for args in told], [(i + 1, None) for i in range(len(found["trials"]))])
        self.assertEqual([json.loads(text) for _, _, text in told], found["trials"])
        with self.assertRaises(et.errors.CancelledError):
            et.tune(stages, seconds=0.05, progress=lambda trials, total, trial: False)
        self.assertGreater(found["samples_per_s"], 0)
        self.assertEqual({"threads", "prefetch"}, set(found["options"]))
        with et.Pipeline(stages, epochs=1, **found["options"]) as p:
            self.assertGreater(len(list(p)), 0)
        with self.assertRaises(TypeError):
            et.tune([et.stages.folder(self.root), lambda sample: sample])

    def test_explain_names_the_bottleneck(self):
        # For 3 s: on a busy machine the beginning of a shorter run would outweigh what the delay takes.
        with et.Pipeline([et.source([{"x": np.zeros(2, np.float32)}] * 150), et.stages.delay(20), et.stages.batch(5)],
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
        entered, cancelled = threading.Event(), threading.Event()

        def wait(sample):
            entered.set()
            cancelled.wait()
            return sample

        p = self.pipeline(wait)

        def cancel():
            entered.wait()
            p.cancel()
            cancelled.set()

        other = threading.Thread(target=cancel)
        other.start()
        with self.assertRaises(et.errors.CancelledError):
            next(iter(p))
        other.join()

    def test_an_array_is_let_go_of_by_a_batch_that_is_closed(self):
        batch, array = et.Batch({"x": np.zeros(3, np.float32)}), np.ones(3, np.float32)
        batch.close()
        held = sys.getrefcount(array)
        for _ in range(3):
            with self.assertRaisesRegex(et.errors.StateError, "closed"):
                _set_field(batch._handle, "y", array)
        self.assertEqual(sys.getrefcount(array), held)

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
