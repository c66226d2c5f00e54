"""What the way from C to Python, Java and C# costs: the same pipelines read in each language, in turns.

    python3 tests/bench/boundary_bench.py build-test [images|ready] [--record FILE]

Prints images/s over batches of 32 images of 224 x 224, and the time to take one small batch that is
ready, look at a field of it, and give it back. A language that is not built is skipped, loudly.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import numpy as np

import record

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "bindings"))
from png import png  # noqa: E402

TURNS = 7


def make(root, count, size):
    rng = np.random.default_rng(1)
    (root / "0").mkdir(parents=True)
    for i in range(count):
        smooth = rng.integers(0, 255, (size // 8, size // 8, 3)).repeat(8, axis=0).repeat(8, axis=1)
        noisy = smooth + rng.integers(0, 12, (size, size, 3))
        (root / "0" / f"{i:04}.png").write_bytes(png(noisy.clip(0, 255).astype(np.uint8)))


def programs(build):
    bench, bindings = build / "tests/bench", build / "bindings"
    jars = f"{bindings}/java/echotrain.jar:{bindings}/java/echotrain-natives.jar"
    everything = {
        "C": (bench / "boundary_c", [bench / "boundary_c"]),
        "Python": (bindings / "python", [sys.executable, HERE / "boundary/boundary.py"]),
        "Java": (bindings / "java/echotrain.jar",
                 ["java", f"-Dechotrain.cache.dir={bench}/java-cache", "-cp", jars, HERE / "boundary/Boundary.java"]),
        "C#": (bench / "Boundary.exe", ["mono", bench / "Boundary.exe"]),
    }
    found = {}
    for language, (needed, command) in everything.items():
        if needed.exists() and shutil.which(str(command[0])):
            found[language] = [str(word) for word in command]
        else:
            print(f"SKIPPED: {language}, for want of {needed} or {command[0]}")
    return found


def measure(commands, mode, root, environment):
    values = {language: [] for language in commands}
    for turn in range(TURNS + 1):
        for language, command in commands.items():
            out = subprocess.run(command + [mode, str(root)], check=True, env=environment,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
            if turn > 0:  # the first warms the page cache
                values[language].append(float(out))
    return {language: statistics.median(of) for language, of in values.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("parts", nargs="*", help="images, ready")
    record.add_option(parser)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    bindings = build / "bindings"
    environment = dict(os.environ, PYTHONPATH=str(bindings / "python"),
                       MONO_PATH=str(bindings / "csharp/mono"))
    commands = programs(build)
    with tempfile.TemporaryDirectory() as folder:
        images, tiny = pathlib.Path(folder) / "images", pathlib.Path(folder) / "tiny"
        make(images, 200, 224)
        make(tiny, 64, 8)
        parts, rows = arguments.parts or ["images", "ready"], []
        if "images" in parts:
            rates = measure(commands, "images", images, environment)
            print("224 x 224 x 3 u8, batches of 32, images/s: " + ", ".join(
                f"{language} {rate:.0f} ({100 * rate / rates['C']:.1f} % of C)" for language, rate in rates.items()))
            rows.append(["224 × 224 × 3 u8 from PNG, batches of 32, images/s", *(
                f"{rate:,.0f} ({100 * rate / rates['C']:.1f} % of C)" for rate in rates.values())])
        if "ready" in parts:
            us = measure(commands, "ready", tiny, environment)
            print("a batch that is ready, us: " + ", ".join(
                f"{language} {t:.2f} (adds {t - us['C']:.2f})" for language, t in us.items()))
            rows.append(["a small batch that is ready, µs", *(f"{t:.2f} (adds {t - us['C']:.2f})" for t in us.values())])
        record.write(arguments.record, ["", *commands], rows, f"Medians of {TURNS} in turns.")


if __name__ == "__main__":
    main()
