"""EchoTrain and other input loaders on the same files and the same work, in turns.

    python3 tests/bench/loaders/loaders.py build-test [--photos FOLDER] [--only LOADER,...] [--turns N] [--record FILE] [CASE ...]

Each run is a process of its own: the first epoch warms up what a loader keeps (worker processes, compiled code), the second is
measured. Medians of the turns. A loader whose package is missing, or that fails, is left out, loudly. The images are drawn;
with --photos they are cut from the PNGs and JPEGs of a folder. How to install the others, best in an environment that sees
the system's packages (python3 -m venv --system-site-packages):
"""

import argparse
import io
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile

import work

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import record  # noqa: E402

CASES = {  # size, kind, files, in tar shards
    "png224-tar": (224, "png", 1024, True),
    "png224": (224, "png", 1024, False),
    "jpeg224": (224, "jpg", 2048, False),
    "png32": (32, "png", 12800, False),
    "jpeg32": (32, "jpg", 25600, False),
}


def drawn(size, count):
    import numpy as np
    from PIL import Image
    rng = np.random.default_rng(1)
    for _ in range(count):
        coarse = rng.integers(0, 255, (max(size // 8, 2), max(size // 8, 2), 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize((size, size), Image.BICUBIC), np.int16)
        yield Image.fromarray((smooth + rng.integers(-6, 7, smooth.shape)).clip(0, 255).astype(np.uint8))


def cut(folder, size, count):
    import random
    from PIL import Image
    draw = random.Random(1)
    photos = [Image.open(path).convert("RGB") for path in sorted(pathlib.Path(folder).rglob("*.*"))
              if path.suffix.lower() in (".png", ".jpg", ".jpeg")]
    photos = [photo for photo in photos if min(photo.size) >= size]
    if not photos:
        sys.exit(f"--photos {folder}: no PNG or JPEG of at least {size} x {size} there")
    for i in range(count):
        photo = photos[i % len(photos)]
        x, y = draw.randint(0, photo.width - size), draw.randint(0, photo.height - size)
        yield photo.crop((x, y, x + size, y + size))


def make(root, images, kind, tar):
    for label in range(10):
        (root / "files" / str(label)).mkdir(parents=True)
    (root / "shards").mkdir()
    members = [[] for _ in range(work.SHARDS)]
    for i, image in enumerate(images):
        path = root / "files" / str(i % 10) / f"{i:05}.{kind}"
        image.save(path, quality=90)
        members[i % work.SHARDS].append((f"{i:05}", path, i % 10))
    for number, of in enumerate(members if tar else []):
        shard = root / "shards" / f"{number:04}.tar"
        with tarfile.open(shard, "w") as out, open(f"{shard}.idx", "w") as index:  # the index is DALI's
            index.write(f"v1.2 {len(of)}\n")
            for name, path, label in of:
                places = []
                for suffix, data in ((kind, path.read_bytes()), ("cls", str(label).encode())):
                    member = tarfile.TarInfo(f"{name}.{suffix}")
                    member.size = len(data)
                    places.append(f"{suffix} {out.offset + 512} {len(data)} {name}.{suffix}")
                    out.addfile(member, io.BytesIO(data))
                index.write(" ".join(places) + "\n")


def present(names, environment):
    for name in names:
        loader = work.LOADERS[name]
        done = subprocess.run([sys.executable, "-c", f"import {', '.join(loader.modules)}"], env=environment, capture_output=True)
        if done.returncode == 0:
            yield name
        else:
            print(f"SKIPPED: {name}: {done.stderr.decode().strip().splitlines()[-1]} ({loader.install})")


def measure(name, case, environment):
    done = subprocess.run([sys.executable, HERE / "one.py", name, case.root, str(case.size), "tar" if case.tar else "files", case.kind],
                          env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        print(f"SKIPPED: {name} failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
        return None
    return json.loads(done.stdout.splitlines()[-1])


def table(files, title, runs):
    """Prints a case, and gives its rows for a record."""
    middle = {name: {key: statistics.median(run[key] for run in of) for key in of[0]} for name, of in runs.items() if of}
    print(f"\n{title}\n{'':12} {'images/s':>10} {'CPU ms/image':>13} {'first batch':>12} {'peak MB':>8} {'echotrain is':>14} {'at CPU':>8}")
    ours, rows = middle["echotrain"], []
    for name, m in sorted(middle.items(), key=lambda entry: -entry[1]["rate"]):
        than = "" if name == "echotrain" else f"{ours['rate'] / m['rate']:12.2f} x {ours['cpu_ms'] / m['cpu_ms']:6.2f} x"
        print(f"{name:12} {m['rate']:10.0f} {m['cpu_ms']:13.3f} {m['first_ms']:9.0f} ms {m['peak_mb']:8.0f} {than}")
        rows.append([files, name, f"{m['rate']:,.0f}", "" if name == "echotrain" else f"{ours['rate'] / m['rate']:.2f} ×",
                     f"{m['cpu_ms']:.3f} ms", f"{m['first_ms']:,.0f} ms", f"{m['peak_mb']:,.0f} MB"])
    sys.stdout.flush()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__ + "\n".join(
        f"    {name:12} {loader.install}" for name, loader in work.LOADERS.items() if loader.install),
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="of " + ", ".join(CASES))
    parser.add_argument("--photos")
    parser.add_argument("--only", default=",".join(work.LOADERS))
    parser.add_argument("--turns", type=int, default=5)
    record.add_option(parser)
    asked = parser.parse_intermixed_args()
    rows = []
    environment = dict(os.environ, PYTHONPATH=str(asked.build.resolve() / "bindings/python"), TF_CPP_MIN_LOG_LEVEL="3")
    names = list(present(asked.only.split(","), environment))
    for case_name in asked.cases or CASES:
        size, kind, count, tar = CASES[case_name]
        with tempfile.TemporaryDirectory() as folder:
            case = work.Case(folder, size, tar, kind)
            make(pathlib.Path(folder), cut(asked.photos, size, count) if asked.photos else drawn(size, count), kind, tar)
            runs = {name: [] for name in names if work.LOADERS[name].reads(case)}
            for name in runs:
                if work.LOADERS[name].prepare:
                    work.LOADERS[name].prepare(case)
            failed = set()
            for _ in range(asked.turns):
                for name in [name for name in runs if name not in failed]:
                    run = measure(name, case, environment)
                    if run is None:
                        failed.add(name)
                    else:
                        runs[name].append(run)
            files = (f"{count} {'photographs' if asked.photos else 'drawn images'} of {size} x {size}, {kind}"
                     f"{' in tar shards' if tar else ''}")
            rows += table(files, f"{case_name}: {files}; medians of {asked.turns}", runs)
    columns = ["files", "loader", "images/s", "EchoTrain is", "processor time per image", "first batch", "peak memory"]
    record.write(asked.record, columns, rows, f"Medians of {asked.turns} runs in turns.")


if __name__ == "__main__":
    main()
