"""Arrays as files, with nothing but Python: the machines that benchmarks run on may not have NumPy."""

import json
import random
import struct


def write_npy(path, shape, kind, data):
    """`kind` as NumPy writes it: "|u1", "<i4" or "<f4"; `data` are the bytes, or parts of them one after the other."""
    header = repr({"descr": kind, "fortran_order": False, "shape": tuple(shape)})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        for part in [data] if isinstance(data, bytes) else data:
            file.write(part)


def random_images(path, count, size, channels=3, seed=1):
    rng = random.Random(seed)
    write_npy(path, (count, size, size, channels), "|u1", (rng.randbytes(size * size * channels) for _ in range(count)))


def random_labels(path, count, classes=10, seed=2):
    rng = random.Random(seed)
    write_npy(path, (count,), "<i4", struct.pack(f"<{count}i", *(rng.randrange(classes) for _ in range(count))))


def write_safetensors(path, tensors):
    """`tensors`: name -> (dtype as "F32" or "I32", shape, bytes)."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)
