"""Feeds a PyTorch model from its own DataLoader and from EchoTrain, and compares accuracy and speed.

    pip install . torch pillow                 # from the repository, in a virtual environment
    python samples/python/pytorch.py           # or: --data FOLDER, with FOLDER/train/CLASS/*.png and FOLDER/test

The swap is the three lines of `echotrain_batches`; model and training loop stay as they are. Batches come through
DLPack, without a copy.
"""

import argparse
import os
import pathlib
import tempfile
import time

import numpy as np
import PIL.Image
import torch
from torch import nn

import echotrain as et
from waves import CLASSES, draw

BATCH, MEAN, STD = 64, 0.5, 0.25


class Images(torch.utils.data.Dataset):
    """FOLDER/CLASS/NAME.png as PyTorch's users write it."""

    def __init__(self, folder):
        classes = sorted(p for p in folder.iterdir() if p.is_dir())
        self.files = [(path, label) for label, c in enumerate(classes) for path in sorted(c.iterdir())]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        pixels = np.asarray(PIL.Image.open(path).convert("L"), np.float32) / 255
        return torch.from_numpy((pixels - MEAN) / STD)[None], label


def torch_batches(folder):
    loader = torch.utils.data.DataLoader(Images(folder), BATCH, shuffle=True, drop_last=True,
                                         num_workers=os.cpu_count())
    return lambda: loader


def echotrain_batches(folder):
    s = et.stages
    pipeline = et.Pipeline([s.folder(folder), s.label(), s.decode(channels="gray"), s.batch(BATCH),
                            s.normalize(mean=[MEAN], std=[STD])])
    return lambda: ((torch.from_dlpack(b.tensor("image")).permute(0, 3, 1, 2),
                     torch.from_dlpack(b.tensor("label")).long()) for b in pipeline)


def make_model():
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
        nn.Flatten(), nn.Linear(32 * 4 * 4, CLASSES))


def train(batches, epochs):
    """Returns the model and the mean seconds of the epochs after the first."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    seconds = []
    for epoch in range(epochs):
        begin, losses = time.perf_counter(), []
        for image, label in batches():
            loss = nn.functional.cross_entropy(model(image), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
        print(f"  epoch {epoch + 1}: loss {np.mean(losses):.3f}, {seconds[-1]:.1f} s")
    return model, np.mean(seconds[1:] or seconds)


def accuracy(model, folder):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for image, label in torch.utils.data.DataLoader(Images(folder), 250):
            right += (model(image).argmax(1) == label).sum().item()
            total += len(label)
    return right / total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, help="a folder with train/CLASS/*.png and test/CLASS/*.png")
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = arguments.data or pathlib.Path(folder)
        if not arguments.data:
            draw(root / "train", 4000, 1)
            draw(root / "test", 1000, 2)
        rows = []
        for name, batches in (("DataLoader", torch_batches), ("EchoTrain", echotrain_batches)):
            print(name)
            model, seconds = train(batches(root / "train"), arguments.epochs)
            rows.append((name, seconds, accuracy(model, root / "test")))
    print(f"\n{'input':12} {'epoch':>8} {'accuracy':>9}")
    for name, seconds, share in rows:
        print(f"{name:12} {seconds:6.2f} s {100 * share:7.1f} %")


if __name__ == "__main__":
    main()
