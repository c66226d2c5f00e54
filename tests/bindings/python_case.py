"""What tests of the Python package share."""

import os
import pathlib
import tempfile
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
