#!/usr/bin/env python3
"""Networks that PyTorch exports as ONNX files, in models of ours: the same outputs, and fine-tuning begins there.

    PYTHONPATH=build-test/bindings/python python3 tests/golden/onnx_import_check.py

Each network is exported with a free and with a fixed batch, with and without folded normalisation, by PyTorch's older exporter
and, where onnxscript is installed, by the newer one; some also with free lengths, and then run with other lengths. Fails where an
output differs by more than 1e-6 of the largest.
"""

import importlib.util
import inspect
import logging
import sys
import tempfile
import warnings
from pathlib import Path

import echotrain as et
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from import_check import ResNet18

LIMIT = 1e-6
L, RNG = et.layers, np.random.default_rng(3)


def narrow(network, by):
    """The network with fewer channels: those of every convolution and what follows it."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Conv2d):
                channels = child.in_channels if child.in_channels == 3 else child.in_channels // by
                setattr(module, name, nn.Conv2d(channels, child.out_channels // by, child.kernel_size, child.stride, child.padding,
                                                bias=child.bias is not None))
            elif isinstance(child, nn.BatchNorm2d):
                setattr(module, name, nn.BatchNorm2d(child.num_features // by))
            elif isinstance(child, nn.Linear):
                setattr(module, name, nn.Linear(child.in_features // by, child.out_features))
    return network


class ResNet(nn.Module):
    """As torchvision's: [N, C, H, W], average pooling, flatten."""

    def __init__(self):
        super().__init__()
        self.body, self.avgpool = narrow(ResNet18(10), 8), nn.AdaptiveAvgPool2d((1, 1))

    def forward(self, x):
        body = self.body
        x = functional.max_pool2d(functional.relu(body.bn1(body.conv1(x))), 3, 2, 1)
        x = body.layer4(body.layer3(body.layer2(body.layer1(x))))
        return body.fc(torch.flatten(self.avgpool(x), 1))


class Convolutions(nn.Module):
    """Depthwise convolutions, gates by channel, group norm, clipping, and a flattened image."""

    def __init__(self):
        super().__init__()
        self.expand, self.depthwise = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.squeeze, self.excite = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.norm, self.up, self.head = nn.GroupNorm(2, 8), nn.ConvTranspose2d(8, 5, 2, 2), nn.Linear(5 * 8 * 6, 7)

    def forward(self, x):
        x = functional.relu6(self.depthwise(functional.silu(self.expand(x))))
        gate = functional.relu(self.squeeze(x.mean((2, 3), keepdim=True)))
        x = self.norm(x * torch.sigmoid(self.excite(gate)))
        x = torch.cat([self.up(functional.avg_pool2d(x, 2)), x[:, :2]], 1)[:, 1:6]
        return self.head(functional.hardtanh(x).flatten(1))


class Encoder(nn.Module):
    def __init__(self, batch_first=True, norm_first=False, positions=12):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(50, 16), nn.Parameter(torch.randn(1, positions, 16))
        layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=batch_first, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False) if "enable_nested_tensor" in inspect.signature(
            nn.TransformerEncoder).parameters else nn.TransformerEncoder(layer, 2)
        self.norm, self.head, self.batch_first = nn.LayerNorm(16), nn.Linear(16, 5), batch_first

    def forward(self, ids):
        x = self.tokens(ids) + self.positions
        x = self.encoder(x) if self.batch_first else self.encoder(x.transpose(0, 1)).transpose(0, 1)
        return self.head(self.norm(x).mean(1))


class Attention(nn.Module):
    """Attention as BERT has it: three products, heads apart, scores divided. `causal` None: no mask, any number of positions."""

    def __init__(self, causal):
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(16, 16) for _ in range(4))
        self.register_buffer("mask", None if causal is None else torch.triu(torch.full((9, 9), float("-inf")), 1) if causal else torch.zeros(9, 9))

    def forward(self, x):
        def heads(y):
            return y.view(y.size(0), y.size(1), 4, 4).permute(0, 2, 1, 3)
        scores = heads(self.query(x)) @ heads(self.key(x)).transpose(-1, -2) / 2
        scores = scores if self.mask is None else scores + self.mask
        mixed = (torch.softmax(scores, -1) @ heads(self.value(x))).permute(0, 2, 1, 3).contiguous()
        return x + self.dense(mixed.view(x.size(0), x.size(1), 16))


class Llama(nn.Module):
    """A block as Transformers has it: rotary positions from a buffer of frequencies, grouped queries, a mask, SwiGLU."""

    def __init__(self, base=500000, kept=None, fused=False):
        super().__init__()
        self.fused = fused
        frequencies = 1 / base ** (torch.arange(0, 8, 2).float() / 8)
        self.register_buffer("frequencies", frequencies if kept is None else frequencies * (kept + (1 - kept) / 8))
        self.tokens, self.norm, self.out = nn.Embedding(50, 32), nn.Parameter(torch.rand(32) + 0.5), nn.Linear(32, 5, bias=False)
        self.q_proj, self.o_proj = nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False)
        self.k_proj, self.v_proj = nn.Linear(32, 16, bias=False), nn.Linear(32, 16, bias=False)
        self.gate, self.up, self.down = nn.Linear(32, 48, bias=False), nn.Linear(32, 48, bias=False), nn.Linear(48, 32, bias=False)

    def rotated(self, x, cos, sin):
        a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2:]
        return x * cos + torch.cat((-b, a), -1) * sin

    def forward(self, ids):
        x = self.tokens(ids)
        positions = torch.arange(x.shape[1]).unsqueeze(0)
        angles = (self.frequencies[None, :, None].expand(positions.shape[0], -1, 1) @ positions[:, None, :].float()).transpose(1, 2)
        angles = torch.cat((angles, angles), -1)
        cos, sin = (angles.cos() * 1.0).unsqueeze(1), (angles.sin() * 1.0).unsqueeze(1)
        y = self.norm * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

        def heads(projection):
            return projection(y).view(*x.shape[:2], -1, 8).transpose(1, 2)

        def repeated(z):
            return z[:, :, None].expand(z.shape[0], 2, 2, z.shape[2], 8).reshape(z.shape[0], 4, z.shape[2], 8)
        q, k = self.rotated(heads(self.q_proj), cos, sin), self.rotated(heads(self.k_proj), cos, sin)
        k, v, later = repeated(k), repeated(heads(self.v_proj)), torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v, ~later)
        else:
            mixed = torch.softmax(q @ k.transpose(2, 3) * 8 ** -0.5 + torch.finfo(torch.float32).min * later, -1) @ v
        x = x + self.o_proj(mixed.transpose(1, 2).reshape(*x.shape[:2], -1).contiguous())
        return self.out(x + self.down(functional.silu(self.gate(x)) * self.up(x)))


class Patches(nn.Module):
    """A vision transformer: patches, a class token, attention, its first position."""

    def __init__(self):
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.randn(1, 1, 16))
        self.position = nn.Parameter(torch.randn(1, 9, 16))
        self.attention, self.head = Attention(False), nn.Linear(16, 4)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.size(0), -1, -1), x], 1) + self.position
        return self.head(self.attention(x)[:, 0])


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.lstm, self.gru = nn.Embedding(50, 6), nn.LSTM(6, 5, batch_first=True), nn.GRU(5, 4, batch_first=True)
        self.filter, self.out = nn.Conv1d(4, 7, 3, padding=1), nn.Linear(7, 3)

    def forward(self, ids):
        x = self.gru(self.lstm(self.tokens(ids))[0])[0]
        return self.out(functional.elu(self.filter(x.transpose(1, 2))).amax(2))


class Last(nn.Module):
    """What the last positions say, of any number."""

    def __init__(self):
        super().__init__()
        self.tokens, self.gru = nn.Embedding(50, 6), nn.GRU(6, 5)
        self.filter, self.out = nn.Conv1d(5, 4, 3, padding=1), nn.Linear(9, 3)

    def forward(self, ids):
        every, last = self.gru(self.tokens(ids).transpose(0, 1))
        return self.out(torch.cat([last[0], self.filter(every.permute(1, 2, 0))[:, :, -2:].mean(2)], 1))


class AnySize(nn.Module):
    """Images of any size."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Conv2d(8, 6, 3), nn.Linear(6, 4)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.norm(self.a(x))), 2)
        return self.head(functional.adaptive_avg_pool2d(self.b(x), 1).flatten(1))


class GeluTanh(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.a(x)
        x = 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x ** 3)))
        mean = x.mean(-1, keepdim=True)
        x = (x - mean) / torch.sqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5)
        return functional.log_softmax(self.b(x), -1)


def tokens(*shape):
    return torch.as_tensor(RNG.integers(0, 50, shape))


def image(*shape):
    return torch.as_tensor(RNG.uniform(-1, 1, shape).astype(np.float32))


CASES = {
    "resnet": (ResNet, image(3, 3, 32, 32)),
    "convolutions": (Convolutions, image(3, 3, 8, 6)),
    "encoder": (Encoder, torch.as_tensor(RNG.integers(0, 50, (3, 12)))),
    "encoder, norm first": (lambda: Encoder(norm_first=True), torch.as_tensor(RNG.integers(0, 50, (3, 12)))),
    "encoder, batch second": (lambda: Encoder(False), torch.as_tensor(RNG.integers(0, 50, (3, 12)))),
    "attention": (lambda: Attention(False), image(3, 9, 16)),
    "attention, causal": (lambda: Attention(True), image(3, 9, 16)),
    "llama": (Llama, tokens(3, 9)),
    "llama, scaled": (lambda: Llama(100, torch.tensor([1, 0.6, 0, 0])), tokens(3, 9)),
    "llama, fused": (lambda: Llama(fused=True), tokens(3, 9)),
    "patches": (Patches, image(3, 3, 8, 16)),
    "recurrent": (Recurrent, torch.as_tensor(RNG.integers(0, 50, (3, 9)))),
    "gelu_tanh": (GeluTanh, image(3, 6)),
}
# Files that leave other axes free as well: what is exported, those axes, and a batch of other lengths.
FREE = {
    "encoder": (lambda: Encoder(positions=1), tokens(3, 12), {1: "positions"}, tokens(2, 7)),
    "encoder, batch second": (lambda: Encoder(False, positions=1), tokens(3, 12), {1: "positions"}, tokens(2, 7)),
    "attention": (lambda: Attention(None), image(3, 9, 16), {1: "positions"}, image(2, 5, 16)),
    "last positions": (Last, tokens(3, 9), {1: "positions"}, tokens(2, 5)),
    "any size": (AnySize, image(3, 3, 20, 24), {2: "height", 3: "width"}, image(2, 3, 31, 18)),
}


def exports(others=None):
    older = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    free = {"dynamic_axes": {"x": {0: "batch"}, "y": {0: "batch"}}}
    if others:
        ways = {"free lengths": {**older, "dynamic_axes": {"x": {0: "batch", **others}, "y": {0: "batch"}}}}
        if importlib.util.find_spec("onnxscript"):
            ways["newer, free lengths"] = {"dynamo": True, "dynamic_shapes": ({0: "batch", **others},)}
        return ways
    unfolded = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    ways = {"free": {**older, **free}, "fixed": older, "unfolded": {**older, **free, **unfolded}}
    if importlib.util.find_spec("onnxscript"):
        ways["newer, fixed"] = {"dynamo": True}
        ways["newer, free"] = {"dynamo": True, "dynamic_shapes": ({0: "batch"},)}
    return ways


def ours(x):
    x = x.numpy()
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1) if x.ndim == 4 else x.astype(np.int32) if x.dtype == np.int64 else x)


def export(network, x, path, options):
    names = {"input_names": ["x"], "output_names": ["y"]}
    if not options.get("dynamo"):
        names["opset_version"] = 17 if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 0) else 16
    torch.onnx.export(network, (x,), str(path), **names, **options)


def prepared(make):
    torch.manual_seed(5)
    network = make()
    for module in network.modules():  # statistics that are not what they begin with
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 1.5)
        elif isinstance(module, (nn.LayerNorm, nn.GroupNorm)):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return network.eval()


def check(name, network, x, path):
    with torch.no_grad():
        expected = network(x).numpy()
    trainer = et.Trainer(et.Model.from_onnx(path, loss="mse"), et.optimizers.sgd(), 0.01)
    found = trainer.predict(et.Batch({"x": ours(x)}))
    off = np.abs(found - expected).max() / np.abs(expected).max() if found.shape == expected.shape else float("inf")
    trainer.step({"x": ours(x), "label": np.zeros_like(expected)})
    print(f"{name:40} {off:9.0e}", flush=True)
    return off <= LIMIT


def check_head(folder):
    """A new head on a network that is frozen but for its last stage."""
    network, path, x = prepared(ResNet), Path(folder) / "head.onnx", ours(CASES["resnet"][1])
    export(network, CASES["resnet"][1], path, {**exports()["unfolded"]})
    names = [layer["name"] for layer in et.Model.from_onnx(path).json["layers"]]
    assert "body.layer1.0.conv1" in names and "body.fc" in names, names
    model = et.Model.from_onnx(path, [L.dense(4, name="head")], until="/Flatten", inputs="image",
                               frozen=["body.conv1.*", "body.bn1.*", "body.layer1.*"])
    trainer = et.Trainer(model, et.optimizers.sgd(), 0.1)
    label = np.array([0, 1, 2], np.int32)
    assert trainer.predict(et.Batch({"image": x})).shape == (3, 4)
    trainer.step({"image": x, "label": label})
    kept = trainer.weights()
    first = network.state_dict()["body.conv1.weight"].numpy().transpose(2, 3, 1, 0)
    assert np.array_equal(kept["body.conv1.weight"], first), "a frozen weight has changed"
    changed = network.state_dict()["body.layer4.0.conv1.weight"].numpy().transpose(2, 3, 1, 0)
    assert not np.array_equal(kept["body.layer4.0.conv1.weight"], changed), "a trained weight has not changed"


def failures(name, make, x, ways, other, folder):
    """Checks the network as each of `ways` exports it with the batch x, with that batch or with `other`."""
    out = []
    for way, options in ways.items():
        path, network = Path(folder) / "model.onnx", prepared(make)
        try:
            export(network, x, path, options)
        except Exception as error:  # the exporter's own limits
            print(f"{name}, {way}: not exported: {type(error).__name__}", flush=True)
            continue
        try:
            if not check(f"{name}, {way}", network, x if other is None else other, path):
                out.append(f"{name}, {way}")
        except et.EchoTrainError as error:
            out.append(f"{name}, {way}: {error}")
    return out


def main():
    et.prefer_wide_cpu_vectors()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        cases = [(name, make, x, exports(), None) for name, (make, x) in CASES.items()]
        for name, (make, x, others, other) in FREE.items():
            ways = exports(others)
            if "encoder" in name:  # the older exporter writes the number of positions into the file
                del ways["free lengths"]
            cases.append((name, make, x, ways, other))
        for name, *case in cases:
            if not sys.argv[1:] or name in sys.argv[1:]:
                failed += failures(name, *case, folder)
        check_head(folder)
    if failed:
        sys.exit("onnx_import_check.py: " + "; ".join(failed))


if __name__ == "__main__":
    main()
