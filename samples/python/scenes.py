"""Scenes for a detector: squares, discs and triangles in noise, and the boxes around them.

    python samples/python/scenes.py FOLDER [--size 32] [--train 4000] [--test 256] [--seed 1]      # needs numpy

writes what samples/jobs/scenes.json learns from: FOLDER/scenes-train-image.npy, u8 [n, size, size, 3], scenes-train-boxes.npy,
f32 [n, 8, 5] (label, left, top, right, bottom as shares of the image; label -1: no box), and the same for test.
"""

import argparse
import pathlib

import numpy as np

SHAPES = ["square", "disc", "triangle"]
MOST_BOXES = 8


def scene(rng, size=64):
    """An image u8 [size, size, 3] with one to four shapes, and their boxes [n, 5]: label, left, top, right, bottom."""
    y, x = np.mgrid[:size, :size] + 0.5
    slope = rng.normal(0, 0.4, (2, 1, 1, 3)) * 64 / size
    image = rng.uniform(60, 190, 3) + slope[0] * (y - size / 2)[..., None] + slope[1] * (x - size / 2)[..., None]
    boxes = []
    for _ in range(rng.integers(1, 5)):
        side = rng.uniform(11, 30) * size / 64
        left, top = rng.uniform(0, size - side, 2)
        box = np.array([left, top, left + side, top + side])
        if any((np.minimum(box[2:], b[2:]) > np.maximum(box[:2], b[:2])).all() for b in (b[1:] for b in boxes)):
            continue  # it would cover another one
        label = rng.integers(len(SHAPES))
        u, v = (x - left) / side, (y - top) / side
        inside = (u >= 0) & (u <= 1) & (v >= 0) & (v <= 1)
        if label == 1:
            inside = (u - 0.5) ** 2 + (v - 0.5) ** 2 <= 0.25
        elif label == 2:
            inside &= np.abs(u - 0.5) <= v / 2
        contrast = rng.uniform(50, 120, 3) * rng.choice([-1, 1], 3)
        image[inside] = image[inside].mean(0) + contrast
        boxes.append(np.array([label, *box], np.float32))
    image += rng.normal(0, 12, image.shape)
    return image.clip(0, 255).astype(np.uint8), np.array(boxes, np.float32) * [1, *[1 / size] * 4]


def write(folder, part, count, size, seed):
    images = np.empty((count, size, size, 3), np.uint8)
    boxes = np.zeros((count, MOST_BOXES, 5), np.float32)
    boxes[..., 0] = -1
    for i in range(count):
        images[i], found = scene(np.random.default_rng([seed, i]), size)
        boxes[i, :len(found)] = found
    np.save(folder / f"scenes-{part}-image.npy", images)
    np.save(folder / f"scenes-{part}-boxes.npy", boxes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--size", type=int, default=32, help="pixels of a side")
    parser.add_argument("--train", type=int, default=4000, help="scenes to train on")
    parser.add_argument("--test", type=int, default=256, help="scenes to evaluate with")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write(arguments.folder, "train", arguments.train, arguments.size, 2 * arguments.seed)
    write(arguments.folder, "test", arguments.test, arguments.size, 2 * arguments.seed + 1)
    print(f"{arguments.train} scenes to train on, {arguments.test} to evaluate with")


if __name__ == "__main__":
    main()
