"""EchoTrain and other input loaders on the same files and the same work, in turns.

    python3 tests/bench/loaders/loaders.py build-test [CASE ...]

Work: read from a folder of class folders, decode to RGB, random resized crop, flip, normalise, batch 64, on two threads or
worker processes. Each run is a process of its own; the first epoch warms up what a loader keeps (worker processes), the
second is measured. Medians of five turns. A loader whose package is missing is skipped, loudly.

    PyTorch:    apt install python3-torch python3-torchvision       (or pip install torch torchvision)
    tf.data:    pip install tensorflow-cpu
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TURNS = 5
CASES = {  # size of the files, of the result, format, files
    "png224": (256, 224, "png", 600),
    "jpeg224": (256, 224, "jpeg", 1500),
    "png32": (32, 32, "png", 8000),
    "jpeg32": (32, 32, "jpeg", 16000),
}
LOADERS = {"echotrain": "echotrain", "pytorch": "torchvision", "tf.data": "tensorflow"}


def make(root, size, kind, count):
    import numpy as np
    from PIL import Image
    rng = np.random.default_rng(1)
    for label in range(10):
        (root / str(label)).mkdir(parents=True)
    for i in range(count):
        coarse = rng.integers(0, 255, (max(size // 8, 2), max(size // 8, 2), 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize((size, size), Image.BICUBIC), np.int16)
        pixels = (smooth + rng.integers(-6, 7, smooth.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(root / str(i % 10) / f"{i:05}.{kind}", quality=90)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    environment = dict(os.environ, PYTHONPATH=str(build / "bindings/python"))
    present = []
    for name, module in LOADERS.items():
        done = subprocess.run([sys.executable, "-c", f"import {module}"], env=environment, capture_output=True)
        if done.returncode == 0:
            present.append(name)
        else:
            print(f"SKIPPED: {name}: Python has no module {module}; the head of this file says how to install it")
    for case in sys.argv[2:] or CASES:
        size, result, kind, count = CASES[case]
        with tempfile.TemporaryDirectory() as folder:
            make(pathlib.Path(folder), size, kind, count)
            runs = {name: [] for name in present}
            for _ in range(TURNS):
                for name in present:
                    out = subprocess.run([sys.executable, HERE / "one.py", name, folder, str(result)], check=True,
                                         env=environment, stdout=subprocess.PIPE, text=True).stdout
                    runs[name].append(json.loads(out.splitlines()[-1]))
        print(f"\n{case}: {count} files of {size} x {size}")
        print(f"{'':12} {'images/s':>10} {'CPU ms/image':>13} {'first batch':>12} {'peak MB':>8}")
        middle = {name: {key: statistics.median(run[key] for run in of) for key in of[0]} for name, of in runs.items()}
        for name, m in middle.items():
            print(f"{name:12} {m['rate']:10.0f} {m['cpu_ms']:13.3f} {m['first_ms']:9.0f} ms {m['peak_mb']:8.0f}")
        for name in present[1:]:
            print(f"  echotrain : {name} = {middle['echotrain']['rate'] / middle[name]['rate']:.2f} x images/s, "
                  f"{middle['echotrain']['cpu_ms'] / middle[name]['cpu_ms']:.2f} x CPU time")


if __name__ == "__main__":
    main()
