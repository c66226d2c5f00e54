"""Models as the scaling model sees them: for each layer its parameters and what an example costs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    name: str
    parameters: int
    flops: float  # of an example's forward pass; the backward pass takes twice as many
    output: int  # numbers of an example that the next layer reads
    kept: int  # numbers of an example that the backward pass needs


@dataclass(frozen=True)
class Workload:
    name: str
    example: str
    layers: tuple
    splits: int  # machines that a layer can be split over (attention heads); 1: it cannot

    @property
    def parameters(self):
        return sum(layer.parameters for layer in self.layers)

    @property
    def flops(self):  # of an example's forward and backward pass
        return 3 * sum(layer.flops for layer in self.layers)


def convolution(name, kernel, inputs, outputs, side):
    """With the batch normalisation behind it, whose input and output are kept, too."""
    size = outputs * side * side
    weights = kernel * kernel * inputs * outputs
    return Layer(name, weights + 2 * outputs, 2.0 * weights * side * side, size, 3 * size)


def resnet50():
    """He et al. 2015, with the stride in the 3x3 convolution; 224x224 images."""
    layers = [convolution("conv1", 7, 3, 64, 112)]
    inputs = 64
    for stage, (blocks, width, side) in enumerate(((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)), 2):
        for block in range(blocks):
            name = f"conv{stage}_{block + 1}"
            before = side * 2 if block == 0 and stage > 2 else side
            if block == 0:
                layers.append(convolution(name + "_shortcut", 1, inputs, 4 * width, side))
            layers += [convolution(name + "_1", 1, inputs, width, before),
                       convolution(name + "_2", 3, width, width, side),
                       convolution(name + "_3", 1, width, 4 * width, side)]
            inputs = 4 * width
    layers.append(Layer("fc", 2048 * 1000 + 1000, 2.0 * 2048 * 1000, 1000, 2048))
    return Workload("ResNet-50", "image", tuple(layers), splits=1)


def transformer(depth=18, width=2048, tokens=2048, vocabulary=50257, heads=16):
    """A decoder whose output shares the weights of its embedding. By default a billion parameters.

    A block keeps 17 numbers for each token and feature where attention is fused (Korthikanti et al. 2022, whose 34 bytes are
    of 16-bit numbers)."""
    state = tokens * width
    weights = 12 * width * width
    block = Layer("block", weights + 13 * width, tokens * (2.0 * weights + 4.0 * tokens * width), state, 17 * state)
    table = vocabulary * width
    layers = [Layer("embedding", tokens * width, 0.0, state, state), *[block] * depth,
              Layer("output", table + 2 * width, 2.0 * tokens * table, tokens, 2 * tokens * vocabulary)]
    billions = sum(layer.parameters for layer in layers) / 1e9
    return Workload(f"Transformer, {billions:.2g} billion parameters", f"sequence of {tokens:,} tokens", tuple(layers), heads)
