"""The ready-made models in PyTorch's own layers. Parameters have the names that EchoTrain's have, or torchvision's, so that
weights load by name."""

import collections
import math

import torch
from torch import nn
from torch.nn import functional as F


def _conv(channels, filters, kernel, stride, norm):
    return nn.Conv2d(channels, filters, kernel, stride, (kernel - 1) // 2, bias=not norm)


class Block(nn.Module):
    """A residual block of two convolutions, or a bottleneck of three."""

    def __init__(self, channels, filters, stride, norm=True, bottleneck=False):
        super().__init__()
        make = nn.BatchNorm2d if norm else lambda _: nn.Identity()
        widths = [(filters, 1, 1), (filters, 3, stride), (4 * filters, 1, 1)] if bottleneck else [(filters, 3, stride), (filters, 3, 1)]
        out, self.steps = channels, len(widths)
        for i, (width, kernel, step) in enumerate(widths, 1):
            setattr(self, f"conv{i}", _conv(out, width, kernel, step, norm))
            setattr(self, f"bn{i}", make(width))
            out = width
        if channels != out or stride != 1:
            self.downsample = nn.Sequential(_conv(channels, out, 1, stride, norm), make(out))
        else:
            self.downsample = nn.Identity()

    def forward(self, x):
        y = x
        for i in range(1, self.steps + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.steps:
                y = torch.relu(y)
        return torch.relu(y + self.downsample(x))


def _stages(blocks, channels, filters, norm, bottleneck):
    out = collections.OrderedDict()
    for s, count in enumerate(blocks, 1):
        stage = []
        for b in range(count):
            stage.append(Block(channels, filters, 2 if s > 1 and b == 0 else 1, norm, bottleneck))
            channels = 4 * filters if bottleneck else filters
        out[f"layer{s}"] = nn.Sequential(*stage)
        filters *= 2
    return out, channels


def cifar_resnet(depth, norm=True, classes=10):
    """He et al. 2016, section 4.2."""
    stem = [("conv1", _conv(3, 16, 3, 1, norm))] + ([("bn1", nn.BatchNorm2d(16))] if norm else []) + [("relu", nn.ReLU(True))]
    stages, channels = _stages([depth // 6] * 3, 16, 16, norm, False)
    return nn.Sequential(collections.OrderedDict(
        [*stem, *stages.items(), ("pool", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten()), ("fc", nn.Linear(channels, classes))]))


def resnet(depth, classes=1000):
    """He et al. 2016, table 1, with torchvision's names and stride in the 3 x 3 convolution."""
    blocks = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}[depth]
    stages, channels = _stages(blocks, 64, 64, True, depth >= 50)
    return nn.Sequential(collections.OrderedDict(
        [("conv1", nn.Conv2d(3, 64, 7, 2, 3, bias=False)), ("bn1", nn.BatchNorm2d(64)), ("relu", nn.ReLU(True)),
         ("maxpool", nn.MaxPool2d(3, 2, 1)), *stages.items(), ("pool", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten()),
         ("fc", nn.Linear(channels, classes))]))


def simple_cnn():
    return nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(True), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2),
                         nn.ReLU(True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3136, 1024), nn.ReLU(True),
                         nn.Linear(1024, 10))


def mlp(inputs=784, hidden=(512, 512), classes=10):
    layers, width = [("flatten_1", nn.Flatten())], inputs
    for i, units in enumerate(hidden, 2):
        layers += [(f"dense_{i}", nn.Linear(width, units)), (f"relu_{i}", nn.ReLU(True))]
        width = units
    return nn.Sequential(collections.OrderedDict([*layers, (f"dense_{len(hidden) + 2}", nn.Linear(width, classes))]))


def attend(q, k, v, causal):
    """[N, heads, positions, head]; PyTorch's fused attention where it has one."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1), -math.inf)
    return scores.softmax(-1) @ v


class _Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.output = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        n, positions, width = x.shape
        q, k, v = self.qkv(x).view(n, positions, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return self.output(attend(q, k, v, True).transpose(1, 2).reshape(n, positions, width))


class _Part(nn.Module):
    """x + f(norm(x)), with the names of EchoTrain's residual parts."""

    def __init__(self, width, **inside):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        for name, module in inside.items():
            setattr(self, name, module)
        self.inside = list(inside)

    def forward(self, x):
        y = self.norm(x)
        for name in self.inside:
            y = getattr(self, name)(y)
            if name == "up":
                y = F.gelu(y)
        return x + y


class Decoder(nn.Module):
    """EchoTrain's transformer_decoder without dropout."""

    def __init__(self, symbols, positions, width, heads, blocks):
        super().__init__()
        self.embedding, self.embedding_position = nn.Embedding(symbols, width), nn.Embedding(positions, width)
        nn.init.normal_(self.embedding.weight, std=width ** -0.5)
        nn.init.normal_(self.embedding_position.weight, std=width ** -0.5)
        self.count = blocks
        for b in range(1, blocks + 1):
            block = nn.Module()
            block.attend = _Part(width, attention=_Attention(width, heads))
            block.feed = _Part(width, up=nn.Linear(width, 4 * width), down=nn.Linear(4 * width, width))
            setattr(self, f"block{b}", block)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        x = self.embedding(x) + self.embedding_position.weight
        for b in range(1, self.count + 1):
            block = getattr(self, f"block{b}")
            x = block.feed(block.attend(x))
        return self.norm(x) @ self.embedding.weight.T
