#!/usr/bin/env python3
"""Every layer, every ready-made model and every optimizer beside PyTorch, from the same weights.

    PYTHONPATH=build-test/bindings/python python3 tests/golden/golden.py [--table FILE.md] [NAME ...]

For each case: the forward pass, the gradient of every parameter, and ten steps of an optimizer, against PyTorch in double
precision. Prints the largest differences, ours and those of PyTorch in single precision, relative to the largest value of
a tensor (or to a thousandth of the largest of all, where a tensor is nothing but rounding: the gradient of a bias that a
normalisation takes away again). Fails where ours is above a limit and above four times PyTorch's; for a ready-made model,
whose ReLUs may be at their kinks, only if that is so with other inputs too. Needs PyTorch (Debian's
python3-torch 1.13, or `pip install torch --index-url https://download.pytorch.org/whl/cpu` in a virtual environment).
"""

import argparse
import json
import sys
from pathlib import Path

import echotrain as et
import numpy as np
import torch

from torch_model import PRELU, TorchModel

LAYERS, MODELS = et.layers, et.models
RNG = np.random.default_rng(7)


# Cases --------------------------------------------------------------------------------------------


def reseed(seed):
    global RNG
    RNG = np.random.default_rng(seed)


def floats(*shape):
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def integers(high, *shape, low=0):
    return RNG.integers(low, high, shape).astype(np.int32)


def layer_case(layers, sample, dtype="f32", high=0):
    """Layers on a field "image"; the loss is the squared error against a target of the output's shape."""
    image = integers(high, 4, *sample) if dtype == "i32" else floats(4, *sample)
    return {"spec": {"layers": layers, "loss": {"loss": "mse"}}, "fields": {"image": image}}


def boxes(samples, most, classes):
    """Boxes [samples, most, 5]; as many of a sample as its number, then the label -1."""
    corner, size = RNG.uniform(0, 0.6, (samples, most, 2)), RNG.uniform(0.15, 0.4, (samples, most, 2))
    label = RNG.integers(0, classes, (samples, most, 1))
    label[np.arange(most) >= np.arange(samples)[:, None]] = -1
    return np.concatenate([label, corner, corner + size], -1).astype(np.float32)


def L(kind, **options):
    return {"layer": kind, **options}


def layer_cases():
    reseed(7)
    image, sequence, row = (9, 7, 6), (11, 8), (13,)
    two = [L("dense", units=13, name="a")]
    cases = {
        "dense": layer_case([L("dense", units=5, activation="relu")], sequence),
        "dense, tied": layer_case([L("embedding", entries=9, width=4, name="e"),
                                   L("dense", units=9, tied_to="e")], (5,), "i32", 9),
        "conv2d": layer_case([L("conv2d", filters=5, stride=2)], image),
        "conv2d, dilated": layer_case([L("conv2d", filters=5, dilation=2, activation="relu")], image),
        "conv2d, groups": layer_case([L("conv2d", filters=4, groups=2, kernel=5)], image),
        "conv2d, depthwise": layer_case([L("conv2d", filters=6, groups=6)], image),
        "conv2d_transpose": layer_case([L("conv2d_transpose", filters=5, kernel=4, stride=2)], image),
        "conv1d": layer_case([L("conv1d", filters=5, kernel=5, stride=2)], sequence),
        "embedding": layer_case([L("embedding", entries=7, width=5)], (11,), "i32", 7),
        "position_embedding": layer_case([L("position_embedding")], sequence),
        "attention": layer_case([L("attention", heads=2)], sequence),
        "attention, causal": layer_case([L("attention", heads=2, causal=True)], sequence),
        "attention, memory": layer_case([L("dense", units=8, name="m"),
                                         L("attention", heads=1, input=["image", "m"])], sequence),
        "lstm": layer_case([L("lstm", units=5)], sequence),
        "lstm, reverse, last": layer_case([L("lstm", units=5, reverse=True, output="last")], sequence),
        "gru": layer_case([L("gru", units=5), L("gru", units=4)], sequence),
        "gru, reverse, last": layer_case([L("gru", units=5, reverse=True, output="last")], sequence),
        "gather": layer_case([L("embedding", entries=7, width=5, name="e"), L("gather", input=["e", "image"])], (7,), "i32", 7),
        "glsl": layer_case([L("dense", units=13, name="a"), L("glsl", source=PRELU, weight=[13])], row),
        "batch_norm": layer_case([L("batch_norm", activation="relu")], image),
        "layer_norm": layer_case([L("layer_norm")], sequence),
        "rms_norm": layer_case([L("rms_norm")], sequence),
        "group_norm": layer_case([L("group_norm", groups=3)], image),
        "bias": layer_case([L("bias")], row),
        "box_head": layer_case([L("box_head", classes=3, scale=0.3, next_scale=0.5)], image),
        "max_pool": layer_case([L("conv2d", filters=3), L("max_pool", window=3, stride=2, pad=1)], image),
        "avg_pool": layer_case([L("conv2d", filters=3), L("avg_pool", window=3, stride=2, pad=1)], image),
        "adaptive_avg_pool": layer_case([L("conv2d", filters=3), L("adaptive_avg_pool", output_size=4)], image),
        "global_avg_pool": layer_case([L("conv2d", filters=3), L("global_avg_pool")], image),
        "softmax": layer_case(two + [L("softmax")], row),
        "log_softmax": layer_case(two + [L("log_softmax")], row),
        "reduce": layer_case([L("dense", units=5), L("reduce", axes=[1])], sequence),
        "reduce, max": layer_case([L("dense", units=5), L("reduce", axes=[-1], function="max", keep_dims=True)], sequence),
        "flatten": layer_case([L("conv2d", filters=3), L("flatten")], image),
        "reshape": layer_case([L("dense", units=12), L("reshape", shape=[-1, 3])], sequence),
        "parameter": layer_case([L("parameter", shape=[8], value=0.5, name="p"), L("multiply", input=["image", "p"])], sequence),
        "permute": layer_case([L("dense", units=5), L("permute", axes=[0, 2, 1])], sequence),
        "concat": layer_case(two + [L("concat", input=["image", "a"])], row),
        "slice": layer_case(two + [L("slice", begin=-5, length=3)], row),
        "residual": layer_case([L("residual", layers=[L("dense", units=8)], shortcut=[L("dense", units=8, bias=False)],
                                  activation="relu")], sequence),
        "repeat": layer_case([L("repeat", times=2, layers=[L("dense", units=8, activation="tanh")])], sequence),
        "relu": layer_case(two + [L("relu")], row),
    }
    for function in ("leaky_relu", "elu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "softplus", "exp", "square",
                     "abs", "negate"):
        alpha = {"alpha": 0.01} if function in ("leaky_relu", "elu") else {}
        cases["activation, " + function] = layer_case(two + [L("activation", function=function, **alpha)], row)
    for function in ("add", "subtract", "multiply", "maximum", "minimum"):
        cases[function] = layer_case(two + [L(function, input=["a", "image"])], row)
    cases["divide"] = layer_case(two + [L("activation", function="exp", name="e"), L("divide", input=["image", "e"])], row)
    for loss, options in (("binary_cross_entropy", {}), ("l1", {}), ("huber", {"delta": 0.5})):
        case = layer_case(two, row)
        case["spec"]["loss"] = {"loss": loss, **options}
        cases["loss, " + loss] = case
    for name, options in (("softmax_cross_entropy", {}), ("smoothed", {"label_smoothing": 0.1}),
                          ("ignored labels", {"ignore_index": 2}),
                          ("class weights", {"class_weights": [0.5] * 6 + [2.0] * 7})):
        case = layer_case(two, row)
        case["spec"]["loss"] = options
        case["fields"]["label"] = integers(13, 4)
        cases["loss, " + name] = case
    cases["loss, ignored labels"]["fields"]["label"] = np.array([2, 5, 2, 1], np.int32)
    reseed(9)
    case = layer_case([L("box_head", classes=3, scale=0.3, next_scale=0.5)], image)
    case["spec"]["loss"] = {"loss": "multibox", "max_boxes": 4, "iou_threshold": 0.3}
    case["fields"]["boxes"] = boxes(4, 4, 3)
    cases["loss, multibox"] = case
    reseed(10)
    wide = (11, 16)
    cases["attention, grouped"] = layer_case([L("attention", heads=4, kv_heads=2, causal=True)], wide)
    cases["attention, rotary"] = layer_case([L("attention", heads=2, kv_heads=1, head_dim=12, separate=True, rotary_base=100,
                                               rotary_scaling=[8, 1, 4, 16], causal=True)], wide)
    case = layer_case([L("attention", heads=4, kv_heads=2, rotary_base=10000, name="a"), L("dense", units=5, activation="relu"),
                       L("dense", units=3, name="head")], wide)
    case["spec"]["lora"] = {"layers": ["a.qkv", "a.output", "dense_*"], "rank": 2, "alpha": 3, "train": "head.*"}
    cases["low-rank adapters"] = case
    return cases


def model_cases(seed=8):
    reseed(seed)  # of their own: a new layer changes nothing for them

    def case(model, fields, **beside):
        spec = et.Model(model).json
        return {"spec": {**spec, **beside}, "fields": fields}

    images, labels = floats(8, 32, 32, 3), integers(10, 8)
    text = {"input": integers(17, 4, 12), "target": integers(17, 4, 12)}
    pairs = {"source": integers(17, 4, 9), "source_length": integers(10, 4, low=3), "input": integers(17, 4, 12),
             "target": integers(17, 4, 12)}
    return {
        "mlp": case(MODELS.mlp(hidden=[32, 16], activation="gelu"), {"image": floats(8, 7, 5, 1), "label": labels}),
        "simple_cnn": case(MODELS.simple_cnn(), {"image": floats(4, 28, 28, 1), "label": integers(10, 4)}),
        "cifar_resnet, depth 8": case(MODELS.cifar_resnet(depth=8), {"image": images, "label": labels}),
        "cifar_resnet, depth 8, no norm": case(MODELS.cifar_resnet(depth=8, norm="none"), {"image": images, "label": labels}),
        "cifar_resnet, depth 20": case(MODELS.cifar_resnet(depth=20), {"image": images, "label": labels}),
        "resnet, depth 18": case(MODELS.resnet(depth=18, classes=10), {"image": floats(4, 64, 64, 3), "label": integers(10, 4)}),
        "resnet, depth 50": case(MODELS.resnet(depth=50, classes=10), {"image": floats(8, 96, 96, 3), "label": integers(10, 8)}),
        "ssd": case(MODELS.ssd(classes=3, width=8, levels=3, first_level=2),
                    {"image": floats(4, 32, 32, 3), "boxes": boxes(4, 32, 3)}),
        "transformer_decoder": case(MODELS.transformer_decoder(vocab_size=17, blocks=2, width=32, dropout=0), text),
        "llama": case(MODELS.llama(vocab_size=17, blocks=2, width=32, heads=4, kv_heads=2, ffn_width=48), text),
        "transformer": case(MODELS.transformer(vocab_size=17, blocks=1, width=32, heads=4, dropout=0), pairs),
    }


def torch_optimizer(spec, rate, model, decayed):
    name, o = spec["optimizer"], spec
    decay = o.get("weight_decay", 0)
    trained = {n: p for n, p in model.parameters.items() if p.requires_grad}
    groups = [{"params": [p for n, p in trained.items() if n in decayed], "weight_decay": decay},
              {"params": [p for n, p in trained.items() if n not in decayed], "weight_decay": 0}]
    if name == "sgd":
        return torch.optim.SGD(groups, rate, o.get("momentum", 0), nesterov=o.get("nesterov", False))
    if name == "adagrad":
        return torch.optim.Adagrad(groups, rate, initial_accumulator_value=o.get("initial_accumulator", 0))
    if name == "rmsprop":
        return torch.optim.RMSprop(groups, rate, o.get("decay", 0.99), momentum=o.get("momentum", 0))
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    return kind(groups, rate, (o.get("beta1", 0.9), o.get("beta2", 0.999)))


SGD = ({"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}, 0.01)
OPTIMIZERS = {
    "sgd": ({"optimizer": "sgd"}, 0.05),
    "sgd, Nesterov": SGD,
    "adam": ({"optimizer": "adam", "weight_decay": 0.01}, 0.002),
    "adamw": ({"optimizer": "adamw", "weight_decay": 0.1}, 0.002),
    "adagrad": ({"optimizer": "adagrad", "initial_accumulator": 0.1}, 0.02),
    "rmsprop": ({"optimizer": "rmsprop", "momentum": 0.5}, 0.0005),
    "adamw, clipped": ({"optimizer": "adamw", "clip_norm": 0.1}, 0.002),
}


LIMITS = (1e-5, 5e-5, 1e-4)  # of the forward pass, gradients, weights after ten steps


# Both sides ---------------------------------------------------------------------------------------


def trainer_of(case, optimizer, rate):
    options = {key: value for key, value in optimizer.items() if key != "optimizer"}
    model = et.Model.from_json(case["spec"])
    return et.Trainer(model, getattr(et.optimizers, optimizer["optimizer"])(**options), rate, seed=5)


def weights_of(trainer):
    return trainer.weights()


def with_target(case, output):
    """The case with a target of the output's shape where it has none."""
    target = case["spec"].get("loss", {}).get("target", "label")
    if target not in case["fields"]:
        rng = np.random.default_rng(3)
        case["fields"][target] = rng.uniform(0, 1, output.shape).astype(np.float32)
    return case


def difference(ours, truth):
    """The largest difference of two dicts of arrays, relative to the largest value of each array."""
    largest = max(float(np.max(np.abs(value))) for value in truth.values())
    return max(float(np.max(np.abs(ours[name] - truth[name]))) /
               max(float(np.max(np.abs(truth[name]))), 1e-3 * largest, 1e-30) for name in truth)


def run_torch(case, start, optimizer, rate, dtype):
    """What PyTorch gives in this precision: output, gradients, weights after ten steps."""
    model = TorchModel(case["spec"], start, dtype)
    model.training = False
    with torch.no_grad():
        output = model(case["fields"]).numpy()
    with_target(case, output)
    model.training = True
    model.loss(model(case["fields"]), case["fields"]).backward()
    gradients = {name: p.grad.numpy() for name, p in model.parameters.items() if p.requires_grad}
    decayed, model = model.decayed, TorchModel(case["spec"], start, dtype)
    steps = torch_optimizer(optimizer, rate, model, decayed)
    for _ in range(10):
        steps.zero_grad()
        model.loss(model(case["fields"]), case["fields"]).backward()
        if optimizer.get("clip_norm"):
            torch.nn.utils.clip_grad_norm_(list(model.parameters.values()), optimizer["clip_norm"])
        steps.step()
    return {"output": output}, gradients, model.weights()


def compare(case, optimizer, rate):
    """Pairs (ours, PyTorch's in single precision) of the differences from PyTorch in double precision."""
    inputs = case["spec"].get("inputs", ["image"])
    inputs = [inputs] if isinstance(inputs, str) else inputs
    steep = 1000.0  # a rate at which weights are all gradient: w0 - w1 is not lost in w0
    probe = trainer_of(case, {"optimizer": "sgd"}, steep)
    output = probe.predict(et.Batch({name: case["fields"][name] for name in inputs}))
    start = weights_of(probe)
    truth = run_torch(case, start, optimizer, rate, torch.float64)
    single = run_torch(case, start, optimizer, rate, torch.float32)
    probe.step(case["fields"])
    after = weights_of(probe)
    trainer = trainer_of(case, optimizer, rate)
    for _ in range(10):
        trainer.step(case["fields"])
    ours = ({"output": output}, {name: (start[name] - after[name]) / steep for name in truth[1]}, weights_of(trainer))
    return [(difference(mine, true), difference(theirs, true)) for mine, theirs, true in zip(ours, single, truth)]


def is_bad(found):
    return any(not ours <= max(limit, 4 * theirs) for (ours, theirs), limit in zip(found, LIMITS))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", help="write the table as Markdown")
    parser.add_argument("--quick", action="store_true", help="leave out the large models")
    parser.add_argument("names", nargs="*", help="cases, by a part of their names")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    et.prefer_wide_cpu_vectors()
    cases = [("layer", name, case, *SGD) for name, case in layer_cases().items()]
    cases += [("model", name, case, *SGD) for name, case in model_cases().items()
              if not (arguments.quick and name.startswith(("resnet", "cifar_resnet, depth 20")))]
    small = next(case for kind, name, case, *_ in cases if name == "transformer_decoder")
    cases += [("optimizer", name, small, *optimizer) for name, optimizer in OPTIMIZERS.items()]
    lines, failed = [], []
    print(f"{'':42} {'forward':>17} {'gradients':>17} {'10 steps':>17}\n{'':42}" + f" {'ours':>8} {'PyTorch':>8}" * 3)
    for kind, name, case, optimizer, rate in cases:
        if arguments.names and not any(part in name for part in arguments.names):
            continue
        found = compare(case, optimizer, rate)
        bad = is_bad(found)
        if bad and kind == "model":
            print(f"model {name}: gradients {found[1][0]:.0e}; again with other inputs, because a ReLU may be at its kink")
            found = compare(model_cases(seed=28)[name], optimizer, rate)
            bad = is_bad(found)
        line = "".join(f" {ours:8.0e} {theirs:8.0e}" for ours, theirs in found)
        print(f"{kind + ' ' + name:42}" + line + ("  ABOVE ITS LIMIT" if bad else ""), flush=True)
        lines.append(f"| {kind} | {name} | " + " | ".join(f"{ours:.0e} ({theirs:.0e})" for ours, theirs in found) + " |")
        if bad:
            failed.append(name)
    covered = {layer["name"] for layer in et._schema.load("layers")} - {"dropout"}  # its random numbers are our own
    text = json.dumps([case["spec"] for _, _, case, _, _ in cases])
    missing = sorted(name for name in covered if f'"layer": "{name}"' not in text)
    if missing:
        failed.append("no case for the layers " + ", ".join(missing))
    if arguments.table:
        head = "| | case | forward | gradients | weights after 10 steps |\n|---|---|---|---|---|\n"
        Path(arguments.table).write_text(head + "\n".join(lines) + "\n")
    if failed:
        sys.exit("golden.py: " + "; ".join(failed))


if __name__ == "__main__":
    main()
