#!/usr/bin/env python3
"""The README's four commands, as it prints them, from a folder of images to a prediction.

    newcomer.py ECHOTRAIN README.md

Draws images of three kinds, which a small network tells apart after some hundred steps.
"""

import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from support import png

PROGRAM, README = map(pathlib.Path, sys.argv[1:3])
SIDE, IMAGES = 24, 48


def picture(kind, rng):
    """A disc, a ring or a cross of any light colour, somewhere on a ground of any dark one."""
    x0, y0 = rng.uniform(SIDE * 0.4, SIDE * 0.6), rng.uniform(SIDE * 0.4, SIDE * 0.6)
    size = rng.uniform(6, 8)
    ground, ink = [rng.randrange(90) for _ in range(3)], [rng.randrange(160, 240) for _ in range(3)]

    def inside(x, y):
        x, y, distance = abs(x - x0), abs(y - y0), math.hypot(x - x0, y - y0)
        if kind == "cross":
            return min(x, y) < 1.5 and max(x, y) < size
        return distance < size and (kind == "disc" or distance > size - 2.5)

    return [[value + rng.randrange(12) for x in range(SIDE) for value in (ink if inside(x, y) else ground)]
            for y in range(SIDE)]


def readme_commands():
    text = README.read_text()
    block = re.search(r"^## Train on your images$.*?^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
    lines = [line.split("#")[0].strip() for line in block.splitlines()]
    return [line.split()[1:] for line in lines if line.startswith("echotrain ")][:4]


def main():
    commands = readme_commands()
    assert [words[0] for words in commands] == ["pack", "init", "train", "predict"], commands
    with tempfile.TemporaryDirectory() as folder:
        root, rng = pathlib.Path(folder), random.Random(1)
        for kind in ("disc", "ring", "cross"):
            (root / "images" / kind).mkdir(parents=True)
            for i in range(IMAGES):
                (root / "images" / kind / f"{i}.png").write_bytes(png(picture(kind, rng), channels=3))
        (root / "photo.jpg").write_bytes(png(picture("ring", rng), channels=3))  # what it is, its bytes say
        for words in commands:
            result = subprocess.run([PROGRAM.absolute(), *words], cwd=root, capture_output=True, text=True, timeout=500)
            print("$ echotrain", *words)
            print(result.stdout, result.stderr, sep="", flush=True)
            assert result.returncode == 0, words
        answer = result.stdout.splitlines()[-1]
        assert re.match(r"photo.jpg: ring [\d.]+ %, ", answer), answer
        accuracy = subprocess.run([PROGRAM.absolute(), "eval", "job.json"], cwd=root, capture_output=True, text=True, check=True)
        print(accuracy.stdout)
        assert float(re.search(r"accuracy ([\d.]+) %", accuracy.stdout)[1]) >= 85


if __name__ == "__main__":
    main()
