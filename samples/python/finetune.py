"""Fine-tunes a network to new classes: an ONNX file that another framework trained gets a new last layer.

    pip install . && python samples/python/finetune.py     # from the repository, in a virtual environment

A small residual network learns to tell six drawings apart, in PyTorch if that is installed (`pip install torch onnx`), else in
EchoTrain, and is written as an ONNX file. Then there are four new kinds of drawings and few examples of each. The network of
the file, cut in front of its last layer, learns them with its weights frozen, and then all of it is trained a little; the same
network without the file's weights is trained beside it. With `--onnx FILE --until VALUE` the network comes from a file of yours that
takes images [N, 3, 24, 24].
"""

import argparse
import importlib.util
import pathlib
import tempfile

import numpy as np

import echotrain as et

SIDE = 24
OLD = ("circle", "square", "triangle", "plus", "ring", "stripes")
NEW = ("diamond", "frame", "arch", "chessboard")


def drawing(kind, rng):
    """Returns one drawing, float32 [SIDE, SIDE, 3], of random place, size and colours, with noise."""
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
    size = rng.uniform(5, 9)
    x, y = x - rng.uniform(size, SIDE - size), y - rng.uniform(size, SIDE - size)
    far, near, cell = np.hypot(x, y), np.maximum(abs(x), abs(y)), size / 2
    inside = {
        "circle": far < size, "square": near < 0.85 * size, "triangle": (y < 0.8 * size) & (y > 2 * abs(x) - size),
        "plus": (near < size) & (np.minimum(abs(x), abs(y)) < size / 4), "ring": (far < size) & (far > 0.6 * size),
        "stripes": (near < size) & (np.floor(y / cell) % 2 == 0), "diamond": abs(x) + abs(y) < size,
        "frame": (near < size) & (near > 0.6 * size), "arch": (far < size) & (far > 0.6 * size) & (y < 0),
        "chessboard": (near < size) & ((np.floor(x / cell) + np.floor(y / cell)) % 2 == 0),
    }[kind]
    paper, ink = rng.uniform(-1, 1, 3), rng.uniform(-1, 1, 3)
    while np.abs(paper - ink).max() < 0.6:
        ink = rng.uniform(-1, 1, 3)
    return (np.where(inside[..., None], ink, paper) + rng.normal(0, 0.1, (SIDE, SIDE, 3))).astype(np.float32)


def drawings(kinds, count, seed):
    rng = np.random.default_rng(seed)
    labels = np.arange(count, dtype=np.int32) % len(kinds)
    return np.stack([drawing(kinds[label], rng) for label in labels]), labels


def batches(images, labels, steps, seed, size=32):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        chosen = rng.choice(len(labels), min(size, len(labels)), replace=False)
        yield images[chosen], labels[chosen]


def base_by_pytorch(path, steps):
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, channels, filters):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(channels, filters, 3, 2, 1), nn.Conv2d(filters, filters, 3, 1, 1)
            self.shortcut = nn.Conv2d(channels, filters, 1, 2)

        def forward(self, x):
            return torch.relu(self.conv2(torch.relu(self.conv1(x))) + self.shortcut(x))

    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), nn.ReLU(), Block(16, 32), Block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(64, len(OLD)))
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for images, labels in batches(*drawings(OLD, 3000, 1), steps, 1):
        loss = nn.functional.cross_entropy(model(torch.tensor(images).permute(0, 3, 1, 2)), torch.tensor(labels).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    sample = torch.zeros(1, 3, SIDE, SIDE)
    options = {"dynamo": False} if torch.__version__ >= "2" else {}
    torch.onnx.export(model.eval(), sample, path, input_names=["image"], output_names=["logits"],
                      dynamic_axes={"image": {0: "N"}, "logits": {0: "N"}}, **options)
    return "PyTorch " + torch.__version__


def base_by_echotrain(path, steps, device):
    L = et.layers

    def block(filters):
        return L.residual([L.conv2d(filters, stride=2, activation="relu"), L.conv2d(filters)],
                          shortcut=[L.conv2d(filters, kernel=1, stride=2)], activation="relu")

    model = et.Model([L.conv2d(16, activation="relu"), block(32), block(64), L.global_avg_pool(), L.dense(len(OLD))])
    trainer = et.Trainer(model, et.optimizers.adam(), 2e-3, seed=1, device=device)
    train(trainer, batches(*drawings(OLD, 3000, 1), steps, 1))
    trainer.export_onnx(path)
    return "EchoTrain (PyTorch is not installed)"


def train(trainer, data):
    for images, labels in data:
        trainer.step({"image": images, "label": labels})
        list(trainer.results())  # raises if a loss is not finite
    list(trainer.results(wait=True))


def accuracy(trainer, images, labels):
    return float(np.mean(trainer.predict(images).argmax(-1) == labels))


def last_input(path, until):
    """Returns the name behind which the file's network is cut: all but its last layer."""
    return until or et.Model.from_onnx(path).json["layers"][-2]["name"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600, help="of the base; each fine-tuning makes half as many")
    parser.add_argument("--examples", type=int, default=10, help="of each new kind of drawing")
    parser.add_argument("--onnx", help="a network of yours")
    parser.add_argument("--until", default="", help="the value behind which it is cut; default: in front of its last layer")
    parser.add_argument("--device", default=None, help="the device's number or a part of its name")
    arguments = parser.parse_args()
    et.prefer_wide_cpu_vectors()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.onnx or str(pathlib.Path(folder) / "base.onnx")
        if not arguments.onnx:
            if importlib.util.find_spec("torch") and importlib.util.find_spec("onnx"):  # without which PyTorch 2 exports nothing
                by = base_by_pytorch(path, arguments.steps)
            else:
                by = base_by_echotrain(path, arguments.steps, arguments.device)
            print(f"the network, trained on {len(OLD)} kinds of drawings by {by}: {pathlib.Path(path).stat().st_size:,} bytes of ONNX")
        until = last_input(path, arguments.until)
        head = [et.layers.dense(len(NEW), name="head", init="glorot")]
        few, many = drawings(NEW, arguments.examples * len(NEW), 2), drawings(NEW, 400, 3)
        steps = max(1, arguments.steps // 2)
        print(f"{len(NEW)} new kinds, {arguments.examples} examples of each; accuracy on 400 others:")

        def tune(text, model, rate, weights=None):
            trainer = et.Trainer(model, et.optimizers.adam(), rate, seed=2, device=arguments.device)
            if weights:
                trainer.predict(few[0])  # makes the weights
                trainer.set_weights(weights)
            train(trainer, batches(*few, steps, 2))
            print(f"  {text:38} {100 * accuracy(trainer, *many):5.1f} %")
            return trainer.weights()

        whole = et.Model.from_onnx(path, head, until=until, inputs="image")
        body = [layer["name"] + "*" for layer in whole.json["layers"] if layer["layer"] in ("conv2d", "dense", "residual")
                and layer["name"] != "head"]
        tune("without the file's weights", et.Model.from_json(whole.json), 2e-3)
        part = et.Model.from_onnx(path, head, until=until, inputs="image", frozen=body)
        tuned = tune("a new last layer, the rest frozen", part, 1e-2)
        tune("and then all of it", whole, 2e-4, tuned)


if __name__ == "__main__":
    main()
