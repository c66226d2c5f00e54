#!/usr/bin/env python3
"""Products, convolutions, attention and memory traffic beside PyTorch on the same GPU, in turns in one run.

    python3 tests/bench/kernel_bench.py --program build/tests/bench/side_bench [--out FILE.json] [--cpu] [--tiny] [PART ...]

EchoTrain's kernels are recorded commands; PyTorch's are captured in a CUDA graph of as many calls, so that neither side is
measured by its launches. Both work on random multiples of 1/128. Products in fp32 stand beside torch.matmul without and with
TF32, those in bf16 and fp16 beside torch.matmul on such tensors (EchoTrain's operands lie in memory as fp32). Elements of
EchoTrain's results are compared with sums in double precision on the host; an error above 1e-5 of the terms' magnitudes is
reported as wrong.

Parts: product, memory, convolution, attention. --cpu lets PyTorch run on the processor, --tiny shrinks all sizes: for trying the
program itself.
"""

import argparse
import sys

from sides import Failed, Ours, Results, Theirs, in_turn
from torch_side import Torch, exact_values, torch

CALLS = 10  # in a CUDA graph
WRONG = 1e-5
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def requests(tiny):
    """What is asked of side_bench, the most telling first."""
    sizes = (32, 48) if tiny else (4096, 8192, 1024, 256, 512, 2048)
    out = [{"case": "product", "m": n, "n": n, "k": n, "precision": p} for n in sizes for p in ("fp32", "bf16", "fp16")]
    rows, columns = (64, 32) if tiny else (65536, 1024)
    out += [{"case": "memory", "part": part, "rows": rows, "columns": columns} for part in ("copy", "relu", "add", "sum_columns")]
    shapes = [(2, 8, 8, 8, 3, 1)] if tiny else [(64, 56, 64, 64, 3, 1), (64, 28, 128, 128, 3, 1), (64, 14, 256, 256, 3, 1),
                                               (64, 7, 512, 512, 3, 1), (64, 56, 64, 256, 1, 1), (64, 28, 256, 512, 1, 2),
                                               (64, 224, 3, 64, 7, 2), (128, 32, 16, 16, 3, 1)]
    for shape in shapes:
        named = dict(zip(("batch", "size", "channels", "filters", "kernel", "stride"), shape))
        out += [{"case": "convolution", "part": part, **named, "precision": p} for part in ("forward", "by_input", "by_weight")
                for p in (("fp32",) if tiny else ("fp32", "bf16"))]
    heads = [(2, 9, 32, 4)] if tiny else [(32, 256, 512, 8), (8, 1024, 512, 8), (4, 2048, 1024, 8)]
    for batch, positions, width, count in heads:
        out += [{"case": "attention", "part": part, "batch": batch, "positions": positions, "width": width, "heads": count,
                 "causal": True} for part in ("forward", "backward")]
    return out


def name_of(request):
    what = {key: value for key, value in request.items() if key not in ("case", "part", "precision")}
    return " ".join([request["case"], request.get("part", ""), *(f"{key}={value}" for key, value in what.items()),
                     request.get("precision", "")]).replace("  ", " ").strip()


def product(r, device, dtype):
    a, b = (exact_values(shape, device, seed).to(dtype) for seed, shape in ((1, (r["m"], r["k"])), (2, (r["k"], r["n"]))))
    c = torch.empty(r["m"], r["n"], device=device, dtype=dtype)
    return lambda: torch.matmul(a, b, out=c)


def memory(r, device, dtype):
    shape = (r["rows"], r["columns"])
    x, other = exact_values(shape, device, 1), exact_values(shape, device, 2)
    y, sums = torch.empty_like(x), torch.empty(r["columns"], device=device)
    return {"copy": lambda: y.copy_(x), "relu": lambda: torch.clamp(x, min=0, out=y), "add": lambda: torch.add(x, other, out=y),
            "sum_columns": lambda: torch.sum(x, 0, out=sums)}[r["part"]]


def convolution(r, device, dtype):
    stride, pad = [r["stride"]] * 2, [(r["kernel"] - 1) // 2] * 2
    like = lambda shape, seed: exact_values(shape, device, seed).to(dtype).to(memory_format=torch.channels_last)
    x = like((r["batch"], r["channels"], r["size"], r["size"]), 1)
    w = like((r["filters"], r["channels"], r["kernel"], r["kernel"]), 2)
    run = lambda: torch.nn.functional.conv2d(x, w, None, stride, pad)
    if r["part"] == "forward":
        return run
    dy = like(run().shape, 3)
    mask = [r["part"] == "by_input", r["part"] == "by_weight", False]
    return lambda: torch.ops.aten.convolution_backward(dy, x, w, None, stride, pad, [1, 1], False, [0, 0], 1, mask)


def attention(r, device, dtype):
    from torch_models import attend
    shape = (r["batch"], r["heads"], r["positions"], r["width"] // r["heads"])
    q, k, v, dy = (exact_values(shape, device, seed).to(dtype) for seed in (1, 2, 3, 4))
    if r["part"] == "forward":
        def forward():
            with torch.no_grad():
                return attend(q, k, v, r["causal"])
        return forward
    inputs = [of.requires_grad_() for of in (q, k, v)]
    output = attend(*inputs, r["causal"])
    return lambda: torch.autograd.grad(output, inputs, dy, retain_graph=True)


MAKERS = {"product": product, "memory": memory, "convolution": convolution, "attention": attention}


class TorchKernel:
    """PyTorch's call, in a CUDA graph where it can be captured."""

    def __init__(self, side, request, precision, tf32):
        self.side, self.tf32, self.reason = side, tf32, None
        side.set_tf32(tf32)
        try:
            with side.on_stream():
                self.body = MAKERS[request["case"]](request, side.device, getattr(torch, DTYPES[precision]))
                self.body()
            side.synchronize()
            self._capture()
        finally:
            side.set_tf32(False)

    def _capture(self):
        self.graph = None
        if not self.side.cuda:
            self.reason = "no graph: CUDA graphs need CUDA"
            return
        try:
            self.graph = self.side.captured(self._calls)
        except RuntimeError as error:
            self.reason = f"no graph: {str(error)[:300]}"
            torch.cuda.synchronize()

    def _calls(self):
        for _ in range(CALLS):
            self.body()

    def run(self, count):
        self.side.set_tf32(self.tf32)
        try:
            if self.graph is None:
                return Theirs(self.body, self.side.synchronize).run(count)
            replays = -(-count // CALLS)
            seconds = Theirs(self.graph, self.side.synchronize).run(replays)["seconds"]
            return {"seconds": seconds * count / (replays * CALLS)}
        finally:
            self.side.set_tf32(False)


def torch_variants(request):
    """name -> (precision, TF32)."""
    precision = request.get("precision", "fp32")
    if request["case"] == "attention":
        return {"torch fp32": ("fp32", False), "torch bf16": ("bf16", False)}
    if request["case"] == "memory" or precision != "fp32":
        return {f"torch {precision}": (precision, False)}
    return {"torch fp32": ("fp32", False), "torch TF32": ("fp32", True)}


def measure(request, side, ours, arguments):
    row = {"name": name_of(request), "request": request, "sides": {}}
    sides = {}
    try:
        row["about"] = ours.ask(request)
        sides["EchoTrain"] = ours
        row["wrong"] = not (row["about"]["error"] is not None and row["about"]["error"] <= WRONG)
    except Failed as error:
        row["error"] = str(error)
    for name, (precision, tf32) in ({} if side.why_not else torch_variants(request)).items():
        row["sides"][name] = {"reason": None}
        try:
            sides[name] = TorchKernel(side, request, precision, tf32)
            row["sides"][name]["reason"] = sides[name].reason
        except Exception as error:  # this driver or PyTorch lacks it
            row["sides"][name]["reason"] = f"{type(error).__name__}: {str(error)[:300]}"
    try:
        measured = in_turn(sides, rounds=2 if arguments.tiny else 5, seconds=0.005 if arguments.tiny else 0.1)
    except Failed as error:
        row["error"], measured = str(error), {}
    for name, figures in measured.items():
        row["sides"].setdefault(name, {}).update(figures)
    return row


def say(row):
    if "error" in row:
        print(f"{row['name']}: {row['error']}", flush=True)
        return
    about = row["about"]
    work, unit = (about["flops"], "TFLOP/s") if about["flops"] else (about["bytes"], "TB/s")
    rates = ", ".join(f"{name} {work / of['seconds'] * 1e-12:.4g}" for name, of in row["sides"].items() if "seconds" in of)
    wrong = f"; WRONG: an error of {about['error']}" if row["wrong"] else ""
    print(f"{row['name']}: {unit}: {rates}; {', '.join(about['kernels'])}{wrong}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--device", default="")
    parser.add_argument("--out", default="kernel_bench.json")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("parts", nargs="*", choices=[[], *MAKERS], metavar="PART")
    arguments = parser.parse_args()
    side = Torch(arguments.cpu)
    if torch is not None:
        side.set_tf32(False)
    ours = Ours(arguments.program, *(["--device", arguments.device] if arguments.device else []))
    results = Results(arguments.out, {"benchmark": "kernel_bench", "rehearsal": arguments.cpu or arguments.tiny,
                                      "torch": side.describe(), "device": ours.ask({"case": "devices"}),
                                      "roof": ours.ask({"case": "roof"})})
    for request in requests(arguments.tiny):
        if (arguments.parts and request["case"] not in arguments.parts) or results.has(name_of(request)):
            continue
        results.put(measure(request, side, ours, arguments))
        say(results.data["rows"][-1])
        if side.cuda:
            torch.cuda.empty_cache()
    ours.close()
    bad = [row["name"] for row in results.data["rows"] if "error" in row or row.get("wrong")]
    if bad:
        print("failed or wrong: " + "; ".join(bad), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
