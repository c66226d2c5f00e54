#!/usr/bin/env python3
"""Every kernel that computes a product on this device, in turns: is the one that is tried first the fastest?

    python3 tests/bench/kernel_choices.py --program build/tests/bench/side_bench [--out FILE.json] [--tiny]

Measured as `echotrain tune-kernels` does it: the least of at least seven runs of a millisecond, with kernels that take twice the
time of the best dropped early. The constants of ops/gemm_kernels.cpp come from such runs.
"""

import argparse
import sys

from sides import Failed, Ours, Results


def plain(mode, m, n, k, precision):
    return {"mode": mode, "m": m, "n": n, "k": k, "precision": precision}


def convolution(mode, batch, size, channels, filters, kernel, precision):
    """The product of a convolution with a stride of 1, or of one of its gradients."""
    pixels, taps, pad = batch * size * size, kernel * kernel, (kernel - 1) // 2
    m, n, k, kc = {"conv": (pixels, filters, taps * channels, channels), "conv_dx": (pixels, channels, taps * filters, filters),
                   "conv_dw": (taps * channels, filters, pixels, channels)}[mode]
    return {**plain(mode, m, n, k, precision), "batch": batch, "h": size, "w": size, "oh": size, "ow": size, "c": channels, "kc": kc,
            "kh": kernel, "kw": kernel, "pad_y": pad, "pad_x": pad}


def requests(tiny):
    if tiny:
        return [plain("nn", 32, 32, 32, "fp32"), convolution("conv", 2, 8, 8, 8, 3, "fp32")]
    out = []
    for precision in ("fp32", "bf16"):
        for m, n, k in ((1024, 1024, 1024), (4096, 4096, 4096), (8192, 2048, 512), (8192, 512, 512)):
            out.append(plain("nn", m, n, k, precision))
        out.append(plain("tn", 512, 2048, 8192, precision))
        for shape in ((64, 56, 64, 64, 3), (64, 56, 256, 64, 1), (64, 28, 128, 128, 3), (64, 14, 256, 256, 3), (64, 14, 1024, 256, 1),
                      (64, 7, 512, 512, 3), (128, 32, 16, 16, 3)):
            out += [convolution(mode, *shape, precision) for mode in ("conv", "conv_dx", "conv_dw")]
    return out


def name_of(request):
    image = f" image {request['h']}x{request['w']}x{request['c']} kernel {request['kh']}" if "h" in request else ""
    return f"{request['mode']} {request['m']}x{request['n']}x{request['k']} {request['precision']}{image}"


def say(row):
    if "error" in row:
        print(f"{row['name']}: {row['error']}", flush=True)
        return
    rate = lambda kernel: row["flops"] / kernel["seconds"] * 1e-12
    first, best = row["kernels"][0], min(row["kernels"], key=lambda kernel: kernel["seconds"])
    print(f"{row['name']}: TFLOP/s: {rate(first):.4g} by {first['kernel']}, first of {len(row['kernels'])}; "
          f"{rate(best):.4g} by {best['kernel']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--device", default="")
    parser.add_argument("--out", default="kernel_choices.json")
    parser.add_argument("--cpu", action="store_true", help=argparse.SUPPRESS)  # as the benchmarks with PyTorch beside them
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    ours = Ours(arguments.program, *(["--device", arguments.device] if arguments.device else []))
    results = Results(arguments.out, {"benchmark": "kernel_choices", "rehearsal": arguments.tiny, "device": ours.ask({"case": "devices"})})
    for request in requests(arguments.tiny):
        row = {"name": name_of(request), "request": request, "sides": {}}
        if results.has(row["name"]):
            continue
        try:
            row.update(ours.ask({"case": "kernels", **request}))
        except Failed as error:
            row["error"] = str(error)
        results.put(row)
        say(row)
    ours.close()
    return 1 if any("error" in row for row in results.data["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
