#!/usr/bin/env python3
"""What frozen weights of 8 or 4 bits cost and save: low-rank adapters of a Llama model, in turns in one run.

    python3 tests/bench/quantized_bench.py --program build/tests/bench/side_bench [--tiny] [--record FILE]

Trains adapters of rank 8 on all products of attention, with the frozen weights in 32, 8 and 4 bits. Prints the device memory that
a trainer takes, and the time of a step, for a batch of 1 and of 8 sequences. Medians of nine rounds.
"""

import argparse
import pathlib
import random
import struct
import tempfile

import record
from arrays import write_safetensors
from sides import Ours, in_turn

SYMBOLS, POSITIONS = 1024, 64


def request(bits, batch, tiny):
    width, blocks = (32, 1) if tiny else (512, 4)
    model = {"model": "llama", "vocab_size": SYMBOLS, "blocks": blocks, "width": width, "heads": 8, "kv_heads": 4,
             "ffn_width": 3 * width,
             "lora": {"layers": ["*.query", "*.key", "*.value", "*.output"], "rank": 8, "alpha": 16}}
    if bits < 32:
        model["quantize"] = bits
    return {"case": "training", "model": model, "optimizer": {"optimizer": "adamw"},
            "schedule": {"schedule": "constant", "learning_rate": 0.001}, "batch": str(batch)}


def write_batch(path, sequences):
    rng = random.Random(1)
    draw = lambda: struct.pack(f"<{sequences * POSITIONS}i", *(rng.randrange(SYMBOLS) for _ in range(sequences * POSITIONS)))
    write_safetensors(path, {name: ("I32", (sequences, POSITIONS), draw()) for name in ("input", "target")})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="the build's side_bench")
    parser.add_argument("--tiny", action="store_true", help="a small model, for trying the program itself")
    record.add_option(parser)
    arguments = parser.parse_args()
    rows = []
    sides = {bits: Ours(arguments.program) for bits in (32, 8, 4)}
    driver = sides[32].ask({"case": "devices"})["chosen"]["driver"]
    with tempfile.TemporaryDirectory() as folder:
        for sequences in (1, 8):
            batch = pathlib.Path(folder, f"batch{sequences}.safetensors")
            write_batch(batch, sequences)
            bytes_of = {bits: side.ask(request(bits, batch, arguments.tiny))["device_bytes"] for bits, side in sides.items()}
            times = in_turn(sides, rounds=9, seconds=1)
            for bits, time in times.items():
                rows.append([sequences, bits, f"{bytes_of[bits] * 1e-6:.1f} MB", f"{1e3 * time['seconds']:.1f} ms",
                             f"{time['seconds'] / times[32]['seconds']:.2f} ×"])
                print(f"{sequences} x {POSITIONS}: {bits:2d} bits, {rows[-1][2]} of device memory, {rows[-1][3]} a step "
                      f"({1e3 * time['least']:.1f} to {1e3 * time['most']:.1f}), {rows[-1][4]}")
    for side in sides.values():
        side.close()
    record.write(arguments.record, ["sequences of 64", "bits", "device memory", "a step", "time relative to 32 bits"], rows,
                 "Medians of nine rounds in turns.", driver)


if __name__ == "__main__":
    main()
