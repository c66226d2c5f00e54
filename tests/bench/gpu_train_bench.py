#!/usr/bin/env python3
"""Training steps beside PyTorch on the same GPU: eager, torch.compile and CUDA graphs, in turns in one run.

    python3 tests/bench/gpu_train_bench.py --program build/tests/bench/side_bench [--out FILE.json] [--cpu] [--tiny] CASE:PRECISION ...

The same network from the same weights, the same batch in device memory, the same optimizer, the same precision: fp32 beside
PyTorch without TF32 (with it as well, for information), bf16 beside torch.autocast in bfloat16. PyTorch gets the memory format
in which its eager steps are faster, fused optimizers, and its fused attention. Warm-up is what each side needs before its steps
are steady: its first steps, compilation, capture. Losses of the first steps are compared, so that both do the same work.

Cases: resnet20 (batch 128), resnet50 (batch 64, 224 x 224), transformer (30 million parameters, 32 x 256 positions), mlp
(784-512-512-10, batch 128). --cpu lets PyTorch run on the processor, --tiny shrinks all sizes: for trying the program itself.
"""

import argparse
import copy
import pathlib
import sys
import tempfile
import time

from arrays import write_safetensors
from sides import Failed, Ours, Results, Theirs, in_turn
from torch_side import Torch, as_safetensors, torch

SGD = {"optimizer": "sgd", "momentum": 0.9, "nesterov": True}
ADAM = {"optimizer": "adamw", "weight_decay": 0.01}
LOSSES = 5  # steps whose losses are compared


def images(batch, size, channels, classes):
    generator = torch.Generator().manual_seed(1)
    return {"image": torch.randn(batch, size, size, channels, generator=generator),
            "label": torch.randint(0, classes, (batch,), generator=generator, dtype=torch.int32)}


def text(batch, positions, symbols):
    generator = torch.Generator().manual_seed(1)
    draw = lambda: torch.randint(0, symbols, (batch, positions), generator=generator, dtype=torch.int32)
    return {"input": draw(), "target": draw()}


def cases(tiny):
    """name -> (EchoTrain's model, a function that makes PyTorch's, the batch, the optimizer, its rate)."""
    import torch_models as models
    depth, size, batch = (18, 32, 4) if tiny else (50, 224, 64)
    small = (2, 8) if tiny else (128, 32)
    symbols, positions, width, heads, blocks, sequences = (11, 8, 32, 4, 2, 2) if tiny else (8192, 256, 512, 8, 8, 32)
    cifar = 8 if tiny else 20
    return {
        "resnet20": ({"model": "cifar_resnet", "depth": cifar}, lambda: models.cifar_resnet(cifar),
                     lambda: images(*small, 3, 10), SGD, 0.001),
        "resnet50": ({"model": "resnet", "depth": depth}, lambda: models.resnet(depth),
                     lambda: images(batch, size, 3, 1000), SGD, 0.001),
        "transformer": ({"model": "transformer_decoder", "vocab_size": symbols, "blocks": blocks, "width": width, "heads": heads,
                         "dropout": 0}, lambda: models.Decoder(symbols, positions, width, heads, blocks),
                        lambda: text(sequences, positions, symbols), ADAM, 0.0003),
        "mlp": ({"model": "mlp", "hidden": [512, 512]}, models.mlp, lambda: images(2 if tiny else 128, 28, 1, 10), SGD, 0.01),
    }


class TorchStep:
    """A model of its own from the given weights, and one training step of it."""

    def __init__(self, side, model, fields, optimizer, rate, precision, channels_last=False, compiled=False, graph=False):
        self.side, self.precision = side, precision
        self.model = copy.deepcopy(model).to(side.device).train()
        sequence = "input" in fields
        self.x = fields["input"].long() if sequence else fields["image"].permute(0, 3, 1, 2).contiguous()
        self.x, self.target = self.x.to(side.device), fields["target" if sequence else "label"].long().to(side.device)
        if channels_last:
            self.model, self.x = (of.to(memory_format=torch.channels_last) for of in (self.model, self.x))
        self.optimizer = self._optimizer(optimizer, rate, graph)
        self.loss_of = torch.compile(self._loss) if compiled else self._loss
        self.losses = []
        if graph:
            self.body = side.captured(self.step)
        else:
            self.body = self.step

    def _optimizer(self, spec, rate, graph):
        parameters = list(self.model.parameters())
        if spec is ADAM:
            capturable = {"capturable": True} if graph else {}
            make = lambda **fused: torch.optim.AdamW(parameters, rate, weight_decay=spec["weight_decay"], **capturable, **fused)
        else:
            make = lambda **fused: torch.optim.SGD(parameters, rate, momentum=0.9, nesterov=True, **fused)
        try:
            return make(**({"fused": True} if self.side.cuda else {}))
        except TypeError:  # before PyTorch 2.3
            return make()

    def _loss(self):
        with self.side.autocast(self.precision):
            output = self.model(self.x)
        return torch.nn.functional.cross_entropy(output.reshape(-1, output.shape[-1]).float(), self.target.reshape(-1))

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of()
        loss.backward()
        self.optimizer.step()
        return loss

    def first_losses(self):
        return [float(self.step()) for _ in range(LOSSES)]


class Tf32Step(TorchStep):
    """Turns TF32 on around what it runs, and off again."""

    def __init__(self, side, *arguments, **options):
        side.set_tf32(True)
        try:
            super().__init__(side, *arguments, **options)
        finally:
            side.set_tf32(False)

    def run(self, count):
        self.side.set_tf32(True)
        try:
            return Theirs(self.body, self.side.synchronize).run(count)
        finally:
            self.side.set_tf32(False)


def variants(precision, channels_last):
    """name -> (class, options): first all but what has to be compiled, which may take minutes, then that."""
    common = {"channels_last": channels_last}
    out = {"eager": (TorchStep, common), "CUDA graph": (TorchStep, {**common, "graph": True})}
    if precision == "fp32":
        out["eager, TF32"] = (Tf32Step, common)
        out["CUDA graph, TF32"] = (Tf32Step, {**common, "graph": True})
    return out, {"compile": (TorchStep, {**common, "compiled": True})}


def faster_format(side, make):
    """Whether PyTorch's eager steps are faster with channels last; None where there are no images."""
    times = {}
    for channels_last in (False, True):
        step = make(channels_last=channels_last)
        times[channels_last] = in_turn({"": Theirs(step.body, side.synchronize)}, rounds=3, seconds=0.1)[""]["seconds"]
    return times[True] < times[False]


def torch_sides(side, make, wanted, row):
    """Makes each variant; puts into `row` what the making took, or why there is none."""
    for name, (kind, options) in wanted.items():
        about = row["sides"][name] = {"reason": None}
        begin = time.perf_counter()
        try:
            if options.get("compiled") and not hasattr(torch, "compile"):
                raise RuntimeError(f"PyTorch {torch.__version__} has no torch.compile")
            step = make(kind, **options)
            if not options.get("graph"):
                about["losses"] = step.first_losses()
            side.synchronize()
            about["ready_after_seconds"] = time.perf_counter() - begin
            yield name, step if isinstance(step, Tf32Step) else Theirs(step.body, side.synchronize)
        except Exception as error:  # out of memory, no compiler, a capture that fails: the others are measured
            about["reason"] = f"{type(error).__name__}: {str(error)[:600]}"


def prepare_ours(ours, spec, precision, files, arguments):
    model, optimizer, rate = spec
    request = {"case": "training", "model": {**model, "precision": precision}, "optimizer": optimizer,
               "schedule": {"schedule": "constant", "learning_rate": rate}, **files}
    if arguments.tuning:
        request["tuning"] = arguments.tuning
    begin = time.perf_counter()
    about = ours.ask(request)
    about["losses"] = ours.run(LOSSES)["losses"]
    about["ready_after_seconds"] = time.perf_counter() - begin
    return about


def differences(row):
    """Relative, between our first losses and PyTorch's eager ones: step by step, the first before any update."""
    ours, theirs = row["sides"]["EchoTrain"].get("losses"), row["sides"].get("eager", {}).get("losses")
    if not ours or not theirs:
        return None
    return [abs(a - b) / max(abs(b), 1e-9) for a, b in zip(ours, theirs)]


def timed(row, sides, results, arguments):
    """Measures what is ready in turns; the row is kept as it stands before, in case this does not end."""
    results.put(row)
    rounds, seconds = (2, 0.02) if arguments.tiny else (7, 0.3)
    try:
        measured = in_turn(sides, rounds, seconds)
    except Failed as error:
        row["sides"]["EchoTrain"]["reason"] = str(error)
        del sides["EchoTrain"]
        measured = in_turn(sides, rounds, seconds)
    for name, figures in measured.items():
        row["sides"][name].update(figures, examples_per_second=row["batch"] / figures["seconds"])
    row["loss_differences"] = differences(row)
    results.put(row)


def measure(name, precision, side, ours, folder, results, arguments):
    model, make_torch, make_fields, optimizer, rate = cases(arguments.tiny)[name]
    fields, row = make_fields(), {"name": f"{name}:{precision}", "case": name, "precision": precision, "complete": False}
    row.update(batch=len(next(iter(fields.values()))), shapes={key: list(of.shape) for key, of in fields.items()}, sides={},
               optimizer=optimizer["optimizer"])
    torch.manual_seed(1)
    reference = make_torch()
    files = {"batch": str(folder / "batch.safetensors"), "weights": str(folder / "weights.safetensors")}
    write_safetensors(files["batch"], as_safetensors(fields))
    write_safetensors(files["weights"], as_safetensors(reference.state_dict()))
    row["parameters"] = sum(p.numel() for p in reference.parameters())
    sides = {}
    try:
        row["sides"]["EchoTrain"] = prepare_ours(ours, (model, optimizer, rate), precision, files, arguments)
        sides["EchoTrain"] = ours
    except Failed as error:
        row["sides"]["EchoTrain"] = {"reason": str(error)}
    make = lambda kind=TorchStep, **options: kind(side, reference, fields, optimizer, rate, precision, **options)
    if side.why_not:
        row["torch_reason"] = side.why_not
    else:
        channels_last = "image" in fields and faster_format(side, make)
        row["channels_last"] = channels_last
        quick, slow = variants(precision, channels_last)
        sides.update(torch_sides(side, make, quick, row))
        timed(row, sides, results, arguments)
        sides.update(torch_sides(side, make, slow, row))
    timed(row, sides, results, arguments)
    row["complete"] = True
    row.update({"error": row["sides"]["EchoTrain"]["reason"]} if "reason" in row["sides"]["EchoTrain"] else {})
    results.put(row)


def say(row):
    """Examples a second of each side, and EchoTrain's share of each of PyTorch's."""
    own = row["sides"]["EchoTrain"].get("examples_per_second")
    parts = [f"EchoTrain {own:.0f}" if own else f"EchoTrain: {row['sides']['EchoTrain'].get('reason', 'not measured')}"]
    for name, of in row["sides"].items():
        rate = of.get("examples_per_second")
        if name != "EchoTrain":
            parts.append(f"{name} {rate:.0f} ({100 * own / rate:.1f} %)" if rate and own else f"{name}: {of.get('reason')}")
    losses = ", ".join(f"{of:.1e}" for of in row["loss_differences"] or []) or "not compared"
    print(f"{row['name']}: examples/s: " + ", ".join(parts) + f"; relative differences of the first losses: {losses}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--device", default="")
    parser.add_argument("--out", default="gpu_train_bench.json")
    parser.add_argument("--tuning", help="a file of 'echotrain tune-kernels --out'")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("cases", nargs="+", metavar="CASE:PRECISION")
    arguments = parser.parse_args()
    if torch is None:
        sys.exit("both sides are drawn by PyTorch, and " + Torch(arguments.cpu).why_not)
    side = Torch(arguments.cpu)
    side.set_tf32(False)
    ours = Ours(arguments.program, *(["--device", arguments.device] if arguments.device else []))
    results = Results(arguments.out, {"benchmark": "gpu_train_bench", "rehearsal": arguments.cpu or arguments.tiny,
                                      "torch": side.describe(), "device": ours.ask({"case": "devices"})})
    failed = False
    for what in arguments.cases:
        name, _, precision = what.partition(":")
        if results.has(what):
            print(f"{what}: is there already", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            measure(name, precision or "fp32", side, ours, pathlib.Path(folder), results, arguments)
        say(results.data["rows"][-1])
        failed = failed or "error" in results.data["rows"][-1]
    ours.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
