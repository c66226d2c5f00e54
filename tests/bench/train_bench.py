#!/usr/bin/env python3
"""Training steps beside PyTorch on the same processor's cores, in turns in one run; or single predictions.

    PYTHONPATH=build/bindings/python python3 tests/bench/train_bench.py [--predict] [--record FILE] [NAME ...]

The same networks, batch sizes and optimizer on random data that lies ready; both sides in single precision on all cores
that this process may use, PyTorch in the memory format that is faster for it. Medians of nine rounds. Needs PyTorch (Debian's
python3-torch, or its CPU wheel in a virtual environment) and a CPU Vulkan device: on a GPU it would compare machines.
"""

import argparse
import os
import statistics
import time

import echotrain as et
import numpy as np
import torch
from torch import nn

import record
from torch_models import cifar_resnet, mlp, simple_cnn

SGD = dict(momentum=0.9, nesterov=True)


class Decoder(nn.Module):
    def __init__(self, symbols, positions, width, heads, blocks):
        super().__init__()
        self.embedding, self.position = nn.Embedding(symbols, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("mask", torch.full((positions, positions), float("-inf")).triu(1))

    def forward(self, x):
        x = self.embedding(x) + self.position.weight
        for block in self.blocks:
            x = block(x, self.mask)
        return self.norm(x) @ self.embedding.weight.T


def images(batch, *sample):
    rng = np.random.default_rng(1)
    return {"image": rng.normal(size=(batch, *sample)).astype(np.float32), "label": rng.integers(0, 10, batch).astype(np.int32)}


def text(batch, positions, symbols):
    rng = np.random.default_rng(1)
    return {name: rng.integers(0, symbols, (batch, positions)).astype(np.int32) for name in ("input", "target")}


M = et.models
CASES = {
    "ResNet-8 without norm, batch 64": (M.cifar_resnet(depth=8, norm="none"), lambda: cifar_resnet(8, False), images(64, 32, 32, 3)),
    "ResNet-8, batch 64": (M.cifar_resnet(depth=8), lambda: cifar_resnet(8, True), images(64, 32, 32, 3)),
    "ResNet-20, batch 64": (M.cifar_resnet(depth=20), lambda: cifar_resnet(20, True), images(64, 32, 32, 3)),
    "simple CNN, batch 64": (M.simple_cnn(), simple_cnn, images(64, 28, 28, 1)),
    "MLP 784-512-512-10, batch 128": (M.mlp(hidden=[512, 512]), mlp, images(128, 28, 28, 1)),
    "Transformer 0.8 M, 32 x 64": (M.transformer_decoder(vocab_size=65, blocks=4, width=128, dropout=0),
                                   lambda: Decoder(65, 64, 128, 4, 4), text(32, 64, 65)),
}


def torch_side(make, fields, channels_last, predict=False):
    torch.manual_seed(1)
    model = make()
    sequence = "input" in fields
    x = torch.from_numpy(fields["input"]).long() if sequence else torch.from_numpy(fields["image"]).permute(0, 3, 1, 2).contiguous()
    target = torch.from_numpy(fields["target" if sequence else "label"]).long()
    if channels_last and not sequence:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, **SGD)

    def predictions(count):
        with torch.inference_mode():
            for _ in range(count):
                model(x)

    if predict:
        model.eval()
        return predictions

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            output = model(x)
            loss = nn.functional.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))
            loss.backward()
            optimizer.step()
        return float(loss)
    return steps


def our_side(spec, fields, predict=False):
    trainer = et.Trainer(et.Model(spec), et.optimizers.sgd(**SGD), 0.01, seed=1)
    batch = et.Batch(fields)

    def predictions(count):
        for _ in range(count):
            trainer.predict(batch)

    if predict:
        return trainer, predictions

    def steps(count):
        for _ in range(count):
            trainer.step(batch)
        return list(trainer.results(wait=True))[-1].loss
    return trainer, steps


def timed(steps, count):
    begin = time.perf_counter()
    steps(count)
    return (time.perf_counter() - begin) / count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--predict", action="store_true", help="the time of one prediction, one sample at a time")
    parser.add_argument("names", nargs="*", help="cases, by a part of their names")
    record.add_option(parser)
    arguments = parser.parse_args()
    et.prefer_wide_cpu_vectors()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.set_flush_denormal(True)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads; {et.devices()[0].name}")
    table = []
    for name, (spec, make, fields) in CASES.items():
        if arguments.names and not any(part in name for part in arguments.names):
            continue
        if arguments.predict:
            fields, name = {field: values[:1] for field, values in fields.items()}, name.split(",")[0]
        trainer, ours = our_side(spec, fields, arguments.predict)
        sides = {"EchoTrain": ours, "PyTorch": torch_side(make, fields, False, arguments.predict)}
        if "image" in fields and fields["image"].ndim == 4:
            sides["PyTorch, channels last"] = torch_side(make, fields, True, arguments.predict)
        rows = len(next(iter(fields.values())))
        count = 1
        for steps in sides.values():
            steps(2)  # compiles, allocates
        count = max(1, int(0.7 / max(timed(steps, 1) for steps in sides.values())))
        times = {side: [] for side in sides}
        for _ in range(9):
            for side, steps in sides.items():
                times[side].append(timed(steps, count))
        medians = {side: statistics.median(values) for side, values in times.items()}
        best = min(medians[side] for side in sides if side != "EchoTrain")
        ratio = f"{100 * best / medians['EchoTrain']:.1f} %"
        if arguments.predict:
            table.append([name, *(f"{1e3 * seconds:.2f}" for seconds in (medians["EchoTrain"], best)), ratio])
            rates = ", ".join(f"{side} {1e3 * seconds:.2f} ms" for side, seconds in medians.items())
            print(f"{name}: {rates}; PyTorch / EchoTrain = {ratio}", flush=True)
            continue
        table.append([name, *(f"{rows / seconds:,.0f}" for seconds in (medians["EchoTrain"], best)), ratio])
        rates = ", ".join(f"{side} {rows / seconds:.0f}" for side, seconds in medians.items())
        print(f"{name}: examples/s: {rates}; EchoTrain / PyTorch = {ratio}", flush=True)
    columns = (["network", "EchoTrain, ms", "PyTorch, ms", "PyTorch / EchoTrain"] if arguments.predict else
               ["network", "EchoTrain, examples/s", "PyTorch, examples/s", "EchoTrain / PyTorch"])
    record.write(arguments.record, columns, table, f"Medians of nine rounds in turns; PyTorch {torch.__version__}.", et.devices()[0].driver)


if __name__ == "__main__":
    main()
