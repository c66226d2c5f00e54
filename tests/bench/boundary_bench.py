"""What the way from C to Python costs: the same pipeline read by a C program and by Python, in turns.

    PYTHONPATH=build-test/bindings/python python3 tests/bench/boundary_bench.py build-test/tests/bench/boundary_bench_c
"""

import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import echotrain as et

sys.path.append(str(pathlib.Path(__file__).parent.parent / "bindings"))
from png import png  # noqa: E402

ROUNDS = 7


def make(root, count, size):
    rng = np.random.default_rng(1)
    (root / "0").mkdir(parents=True)
    for i in range(count):
        smooth = rng.integers(0, 255, (size // 8, size // 8, 3)).repeat(8, axis=0).repeat(8, axis=1)
        noisy = smooth + rng.integers(0, 12, (size, size, 3))
        (root / "0" / f"{i:04}.png").write_bytes(png(noisy.clip(0, 255).astype(np.uint8)))


def in_python(root, passes, batch, decode):
    stages = [et.stages.folder(root), et.stages.repeat(passes)]
    stages += [et.stages.decode()] if decode else []
    stages += [et.stages.batch(batch)]
    batches, total, field = 0, 0, "image" if decode else "png"
    with et.Pipeline(stages, threads=2, epochs=1) as p:
        begin = time.perf_counter()
        for b in p:
            total += int(b[field].flat[0])
            batches += 1
        return batches, time.perf_counter() - begin


def in_c(program, root, passes, batch, decode):
    out = subprocess.run([program, root, str(passes), str(batch), str(int(decode))], check=True,
                         capture_output=True, text=True).stdout.split()
    return int(out[0]), float(out[1])


def compare(program, root, passes, batch, decode):
    seconds = {"c": [], "python": []}
    for turn in range(ROUNDS + 1):
        batches, c = in_c(program, root, passes, batch, decode)
        same, python = in_python(root, passes, batch, decode)
        assert same == batches
        if turn > 0:  # the first warms the page cache
            seconds["c"].append(c)
            seconds["python"].append(python)
    return batches, statistics.median(seconds["c"]), statistics.median(seconds["python"])


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        images, tiny = pathlib.Path(folder) / "images", pathlib.Path(folder) / "tiny"
        make(images, 200, 224)
        batches, c, python = compare(program, str(images), 10, 32, True)
        rate = 32 * batches / c
        print(f"224 x 224 x 3 u8, batches of 32: C {rate:.0f} images/s, Python {32 * batches / python:.0f} images/s, "
              f"ratio {100 * c / python:.1f} %")
        make(tiny, 64, 8)
        batches, c, python = compare(program, str(tiny), 500, 1, False)
        print(f"batches of one record, not decoded: C {1e6 * c / batches:.2f} us, Python {1e6 * python / batches:.2f} us "
              f"a batch: Python adds {1e6 * (python - c) / batches:.2f} us")


if __name__ == "__main__":
    main()
