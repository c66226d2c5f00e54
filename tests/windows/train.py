"""Trains on a folder of images, by the package that is installed, and saves and reads a checkpoint in a folder whose name is not ASCII.

    train.py IMAGES
"""

import pathlib
import sys
import tempfile

import numpy as np

import echotrain as et

s, layers = et.stages, et.layers


def pipeline(change):
    return et.Pipeline([s.folder(sys.argv[1]), s.label(classes=10), s.decode(channels="gray"), s.echo(2, buffer=500), et.map(change),
                        s.random_crop(pad=2), s.batch(32), s.normalize()], seed=1)


def main():
    print("device:", et.devices()[0].name)
    model = et.Model([layers.conv2d(8, activation="relu"), layers.max_pool(), layers.flatten(), layers.dense(10)])
    trainer = et.Trainer(model, et.optimizers.sgd(momentum=0.9), 0.02, seed=1)
    changed = []

    def change(sample):  # on a thread of the pipeline
        changed.append(sample["image"].shape)
        return sample

    losses = trainer.fit(pipeline(change), epochs=3).history["loss"]
    print("losses:", losses)
    assert losses[2] < losses[0] and changed
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "Größe 日本"
        trainer.save(path)
        other = et.Trainer(model, et.optimizers.sgd(momentum=0.9), 0.02, seed=2)
        other.load(path)
        images = np.random.default_rng(1).normal(size=(5, 28, 28, 1)).astype(np.float32)
        np.testing.assert_array_equal(other.predict(images), trainer.predict(images))


if __name__ == "__main__":
    main()
