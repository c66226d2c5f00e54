"""The scenario of scenario.c in Python."""

import os
import struct
import sys

import echotrain as et


def pipeline(pattern, training):
    stages = [et.stages.webdataset(pattern), et.stages.take(1024 if training else 300),
              et.stages.label(classes=10), et.stages.decode()]
    if training:
        stages += [et.stages.echo(2.5, buffer=200), et.stages.random_crop(pad=2)]
    stages += [et.stages.batch(64, drop_remainder=training), et.stages.normalize()]
    return et.Pipeline(stages, seed=5, threads=2)


def trainer():
    model = et.Model([et.layers.conv2d(8, activation="relu"), et.layers.max_pool(), et.layers.flatten(),
                      et.layers.dense(10)])
    return et.Trainer(model, et.optimizers.sgd(momentum=0.9), learning_rate=0.05, seed=3,
                      device=os.environ.get("ECHOTRAIN_TEST_DEVICE"))


def print_bits(what, value):
    print(what, struct.pack(">d", value).hex())


def train_epoch(t, p):
    for batch in p:
        t.step(batch)
        for result in t.results():
            print_bits("loss", result.loss)
    for result in t.results(wait=True):
        print_bits("loss", result.loss)


def main(train, test, directory):
    p, t = pipeline(train, True), trainer()
    train_epoch(t, p)
    t.save(directory)
    position = p.save()
    p, t, evaluation = pipeline(train, True), trainer(), pipeline(test, False)
    p.restore(position)
    t.load(directory)
    train_epoch(t, p)
    scores = t.evaluate(evaluation)
    print_bits("eval_loss", scores["loss"])
    print_bits("eval_accuracy", scores["accuracy"])
    for value in t.predict(next(iter(evaluation)))[0]:
        print_bits("logit", float(value))


if __name__ == "__main__":
    main(*sys.argv[1:])
