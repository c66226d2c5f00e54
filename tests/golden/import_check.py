#!/usr/bin/env python3
"""A state_dict of PyTorch, as a safetensors file, in a model of ours: the same outputs.

    PYTHONPATH=build-test/bindings/python python3 tests/golden/import_check.py

A residual network with torchvision's names, and a text classifier with names of its own, an LSTM and half precision.
"""

import json
import struct
import sys
import tempfile
from pathlib import Path

import echotrain as et
import numpy as np
import torch
from torch import nn

L, RNG = et.layers, np.random.default_rng(3)


class BasicBlock(nn.Module):
    def __init__(self, channels, filters, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, filters, 3, stride, 1, bias=False), nn.BatchNorm2d(filters)
        self.conv2, self.bn2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False), nn.BatchNorm2d(filters)
        self.downsample = nn.Sequential(nn.Conv2d(channels, filters, 1, stride, bias=False),
                                        nn.BatchNorm2d(filters)) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.downsample(x))


class ResNet18(nn.Module):
    """With the names of torchvision's."""

    def __init__(self, classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        channels = 64
        for stage, filters in enumerate((64, 128, 256, 512)):
            blocks = [BasicBlock(channels, filters, 2 if stage else 1), BasicBlock(filters, filters, 1)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
            channels = filters
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.bn1(self.conv1(x.permute(0, 3, 1, 2)))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.rnn, self.norm = nn.Embedding(11, 6), nn.LSTM(6, 5, batch_first=True), nn.LayerNorm(5)
        self.filter = nn.Conv1d(5, 7, 3, padding=1)
        self.out = nn.Linear(7, 4)

    def forward(self, ids):
        x = self.norm(self.rnn(self.tokens(ids.long()))[0])
        return self.out(self.filter(x.transpose(1, 2)).transpose(1, 2).mean(1))


class Flattening(nn.Module):
    """Flattens an image, normalises what comes of it, and joins it with another flattened image."""

    def __init__(self):
        super().__init__()
        self.conv, self.narrow = nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(5, 2, 1)
        self.norm, self.hidden, self.head = nn.BatchNorm1d(5 * 4 * 3), nn.Linear(5 * 4 * 3, 9), nn.Linear(9 + 2 * 4 * 3, 4)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.conv(x.permute(0, 3, 1, 2))), 2)
        hidden = torch.relu(self.hidden(torch.tanh(self.norm(x.flatten(1)))))
        return self.head(torch.cat([hidden, self.narrow(x).flatten(1)], 1))


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.filter, self.out = nn.Conv1d(6, 7, 3, padding=1), nn.Linear(7 * 9, 4)

    def forward(self, x):
        return self.out(torch.relu(self.filter(x.transpose(1, 2))).flatten(1))


class Plain(nn.Module):
    """An image as PyTorch's users have it, flattened at once."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(3 * 8 * 6, 11), nn.Linear(11, 4)

    def forward(self, x):
        return self.head(torch.relu(self.first(x.permute(0, 3, 1, 2).flatten(1))))


class Moved(nn.Module):
    """Shuffles an image's channels as ShuffleNet does, and exchanges its height and width."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 6, 3, padding=1), nn.Linear(6 * 8 * 6, 4)

    def forward(self, x):
        x = self.conv(x.permute(0, 3, 1, 2))
        x = x.view(-1, 2, 3, 8, 6).transpose(1, 2).reshape(-1, 6, 8, 6)
        return self.head(x.transpose(2, 3).flatten(1))


def write(path, tensors):
    """The safetensors format, so that this test needs no package more."""
    kinds = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64"}
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor.contiguous()
        raw = raw.numpy().tobytes()
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def check(name, theirs, model, field, values, dtype=torch.float32, names=None):
    for module in theirs.modules():  # statistics that are not what they begin with
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 1.5)
    state = {key: value.to(dtype) if value.is_floating_point() else value for key, value in theirs.state_dict().items()}
    theirs.load_state_dict({key: value.float() if value.is_floating_point() else value for key, value in state.items()})
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/model.safetensors", state)
        trainer = et.Trainer(model, et.optimizers.sgd(), 0.1)
        trainer.load_pytorch(f"{folder}/model.safetensors", names)
        ours = trainer.predict(et.Batch({field: values}))
        with torch.no_grad():
            expected = theirs.eval()(torch.as_tensor(values)).numpy()
        off = np.abs(ours - expected).max() / np.abs(expected).max()
        print(f"{name:32} {off:9.0e}")
        if not off < 1e-4:
            sys.exit(f"{name}: off by {off}")
        wrong = et.Trainer(model, et.optimizers.sgd(), 0.1)
        state.pop(next(iter(state)))
        write(f"{folder}/model.safetensors", state)
        wrong.load_pytorch(f"{folder}/model.safetensors", names)
        try:
            wrong.predict(et.Batch({field: values}))
            sys.exit(f"{name}: a missing tensor went unnoticed")
        except et.errors.NotFoundError as error:
            assert "has no tensor" in str(error), error


def refused(name, theirs, model, field, values):
    """What a reshape has made of an image may be in any order in PyTorch."""
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/model.safetensors", theirs.state_dict())
        trainer = et.Trainer(model, et.optimizers.sgd(), 0.1)
        trainer.load_pytorch(f"{folder}/model.safetensors")
        try:
            trainer.predict(et.Batch({field: values}))
            sys.exit(f"{name}: loaded in an order that is not known")
        except et.errors.UnsupportedError as error:
            assert "layer 'head'" in str(error), error


def main():
    et.prefer_wide_cpu_vectors()
    torch.manual_seed(5)
    images = RNG.uniform(-1, 1, (2, 64, 64, 3)).astype(np.float32)
    check("resnet 18, torchvision's names", ResNet18(10), et.Model(et.models.resnet(depth=18, classes=10)), "image", images)
    text = et.Model([L.embedding(11, 6, name="tokens"), L.lstm(5, name="rnn"), L.layer_norm(name="norm"),
                     L.conv1d(7, name="convolution"), L.reduce([1]), L.dense(4, name="head")], inputs="ids")
    small = RNG.uniform(-1, 1, (3, 8, 6, 3)).astype(np.float32)
    flattening = et.Model([
        L.conv2d(5, name="conv", activation="relu"), L.max_pool(name="pool"), L.flatten(), L.batch_norm(name="norm"),
        L.activation("tanh"), L.dense(9, name="hidden", activation="relu"),
        L.conv2d(2, kernel=1, name="narrow", input="pool"), L.flatten(name="other"),
        L.concat(input=["hidden", "other"]), L.dense(4, name="head")])
    check("flattened convolutions", Flattening(), flattening, "image", small)
    check("a flattened image", Plain(), et.Model([L.flatten(), L.dense(11, name="first", activation="relu"),
                                                  L.dense(4, name="head")]), "image", small)
    check("a flattened sequence", Sequences(), et.Model([L.conv1d(7, name="filter", activation="relu"), L.flatten(),
                                                         L.dense(4, name="out")]),
          "image", RNG.uniform(-1, 1, (3, 9, 6)).astype(np.float32))
    check("moved axes", Moved(), et.Model([
        L.conv2d(6, name="conv"), L.reshape([8, 6, 2, 3]), L.permute([0, 1, 2, 4, 3]), L.reshape([8, 6, 6]),
        L.permute([0, 2, 1, 3]), L.flatten(), L.dense(4, name="head")]), "image", small)
    rows = nn.ModuleDict({"conv": nn.Conv2d(3, 6, 3), "head": nn.Linear(36, 4)})
    refused("an image's rows", rows, et.Model([
        L.conv2d(6, name="conv"), L.reshape([8, 36]), L.dense(4, name="head")]), "image", small)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        check(f"a text classifier, {dtype}", Classifier(), text, "ids", RNG.integers(0, 11, (3, 9)).astype(np.int32), dtype,
              {"convolution": "filter", "head": "out"})


if __name__ == "__main__":
    main()
