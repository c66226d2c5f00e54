"""The data of every sample job and study, in little: the names that they read, with drawn digits and noise instead of data sets."""

import pathlib
import shutil
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench"))
import arrays  # noqa: E402


def write(echotrain, painter, work, count, images="images"):
    """Into the folder `work`: the folder data, `count` drawn images in `images`, and one of them as photo.jpg."""
    subprocess.run([painter, work / images, str(count), "1"], check=True)
    shutil.copy(next((work / images).glob("*/*.png")), work / "photo.jpg")  # what it is, its bytes say
    names = ["cifar10-train", "cifar10-test", "train", "test", "1/train", "test/test"]  # the last two as echo_network.py serves them
    for name in names:
        subprocess.run([echotrain, "pack", images, f"data/{name}"], cwd=work, check=True, stdout=subprocess.DEVNULL)
    (work / "data/input.txt").write_text("ROMEO:\nTo be, or not to be, that is the question.\n" * 60)
    subprocess.run([sys.executable, ROOT / "samples/python/pairs.py", work / "data", "--train", "64", "--test", "16"], check=True)
    for part in ("train", "test"):  # noise with a box in each: scenes.py needs NumPy
        arrays.random_images(work / f"data/scenes-{part}-image.npy", 32, 32)
        box = struct.pack("<5f", 1, 0.25, 0.25, 0.5, 0.75) + struct.pack("<5f", -1, 0, 0, 0, 0) * 7
        arrays.write_npy(work / f"data/scenes-{part}-boxes.npy", (32, 8, 5), "<f4", box * 32)
