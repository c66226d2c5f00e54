"""What parallel_bench.py and its PyTorch processes train: the same models on the same batches."""

import array
import random

SGD = {"optimizer": "sgd", "momentum": 0.9, "nesterov": True}
RATE = 0.001


def images(rows, size, channels):
    def make(rank):
        rng = random.Random(rank)
        pixels = array.array("f", (rng.gauss(0, 1) for _ in range(rows * size * size * channels)))
        labels = array.array("i", (rng.randrange(10) for _ in range(rows)))
        return {"image": ("F32", (rows, size, size, channels), pixels.tobytes()), "label": ("I32", (rows,), labels.tobytes())}
    return make


def text(rows, positions, symbols):
    def make(rank):
        rng = random.Random(rank)
        draw = lambda: array.array("i", (rng.randrange(symbols) for _ in range(rows * positions))).tobytes()
        return {name: ("I32", (rows, positions), draw()) for name in ("input", "target")}
    return make


# name -> (EchoTrain's model, the class in torch_models.py and its arguments, the batch of a rank)
CASES = {
    "mlp": ({"model": "mlp", "hidden": [512, 512]}, ("mlp", ()), images(128, 28, 1)),
    "resnet8": ({"model": "cifar_resnet", "depth": 8}, ("cifar_resnet", (8,)), images(64, 32, 3)),
    "transformer": ({"model": "transformer_decoder", "vocab_size": 65, "blocks": 4, "width": 128, "heads": 4, "dropout": 0},
                    ("Decoder", (65, 64, 128, 4, 4)), text(32, 64, 65)),
}
