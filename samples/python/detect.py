"""Trains a detector (SSD, Liu et al. 2016) to find squares, discs and triangles, and draws what it finds.

    python samples/python/detect.py [--steps 1500] [--picture found.png]      # the picture needs matplotlib

Scenes are drawn as they are needed, in noise; boxes travel with their images through crops and flips. Prints the mean
average precision on scenes it has not seen: of each shape, the area under precision over recall, where a box counts as
found from an intersection over union of 0.5 on.
"""

import argparse
import itertools
import time

import echotrain as et
import numpy as np

from scenes import SHAPES, scene

BATCH = 16


def scenes(count, seed):
    """A source that a pipeline may read again and again: the same scenes in each epoch."""
    def samples(epoch):
        for i in range(count):
            image, boxes = scene(np.random.default_rng([seed, i]))
            yield {"image": image, "boxes": boxes.astype(np.float32)}
    return samples


def overlap(a, b):
    both = np.clip(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0, None).prod()
    return both / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - both)


def average_precision(found, wanted, label):
    """The average precision for one shape. `found` and `wanted` have a list of boxes for each image."""
    answers, total = [], 0
    for boxes, truth in zip(found, wanted):
        truth = [t[1:] for t in truth if t[0] == label]
        total += len(truth)
        free = set(range(len(truth)))
        for box in boxes[boxes[:, 0] == label]:  # the best first
            match = max(free, key=lambda i: overlap(box[1:5], truth[i]), default=None)
            right = match is not None and overlap(box[1:5], truth[match]) >= 0.5
            free -= {match} if right else set()
            answers.append((box[5], right))
    right = np.array([r for _, r in sorted(answers, key=lambda a: -a[0])], float).cumsum()
    precision = right / np.arange(1, len(right) + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]  # what is reached at this recall or above
    return float((np.diff(right, prepend=0) * envelope).sum() / max(total, 1))


def evaluate(trainer, pipeline):
    """Mean average precision over an epoch; and of the first batch its images and what was found in them."""
    found, wanted, shown = [], [], None
    for batch in pipeline:
        outputs = trainer.predict(batch)
        found += trainer.detections(outputs, score_threshold=0.02)
        wanted += [rows[rows[:, 0] >= 0] for rows in batch["boxes"]]
        shown = shown or (batch["image"].copy(), trainer.detections(outputs, score_threshold=0.3))
    return [average_precision(found, wanted, label) for label in range(len(SHAPES))], shown


def draw(path, images, found):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colours = ["#edae49", "#7fd1e8", "#ff7f8e"]
    figure, axes = plt.subplots(2, 6, figsize=(12, 4.3), constrained_layout=True)
    for axis, image, boxes in zip(axes.flat, images, found):
        axis.imshow((image * 0.25 + 0.5).clip(0, 1), extent=(0, 1, 1, 0))
        for label, left, top, right, bottom, score in boxes:
            colour = colours[int(label)]
            axis.add_patch(plt.Rectangle((left, top), right - left, bottom - top, fill=False, color=colour, linewidth=2))
            axis.text(left, max(top - 0.02, 0.07), f"{SHAPES[int(label)]} {score:.2f}", color="black", fontsize=8,
                      bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.8})
        axis.axis("off")
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--picture", help="where to draw what is found in some scenes (PNG)")
    arguments = parser.parse_args()
    et.prefer_wide_cpu_vectors()
    last = [et.stages.boxes(classes=len(SHAPES), max_boxes=8)]
    batches = [et.stages.batch(BATCH, drop_remainder=True), et.stages.normalize(mean=[0.5], std=[0.25])]
    training = et.Pipeline([et.source(scenes(2000, seed=1)), et.stages.echo(2), *last, et.stages.random_crop(pad=6),
                            et.stages.flip(), et.stages.brightness_contrast(), *batches], seed=1, epochs=0)
    test = et.Pipeline([et.source(scenes(256, seed=2)), *last, *batches])
    model = et.Model(et.models.ssd(classes=len(SHAPES), width=16, levels=5, first_level=3, min_scale=0.2, max_scale=0.5),
                     max_boxes=8)
    trainer = et.Trainer(model, et.optimizers.adamw(weight_decay=1e-4, clip_norm=10),
                         et.schedule(3e-3, schedule="cosine", warmup_steps=50), total_steps=arguments.steps)
    started = time.time()
    endless = itertools.chain.from_iterable(itertools.repeat(training))  # iterating over it once is an epoch
    for step, batch in enumerate(itertools.islice(endless, arguments.steps), 1):
        trainer.step(batch)
        if step % 100 == 0:
            losses = [result.loss for result in trainer.results(wait=True)]
            print(f"step {step:5}  loss {np.mean(losses):6.3f}  {time.time() - started:5.0f} s", flush=True)
    precision, (images, found) = evaluate(trainer, test)
    print("average precision: " + ", ".join(f"{name} {p:.3f}" for name, p in zip(SHAPES, precision)) +
          f"; mean {np.mean(precision):.3f}")
    if arguments.picture:
        draw(arguments.picture, images, found)


if __name__ == "__main__":
    main()
