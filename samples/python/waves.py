"""The data set of the samples: gray images of ten kinds of waves, drawn with NumPy."""

import struct
import zlib

import numpy as np

CLASSES, SIZE = 10, 24


def png(pixels):
    """An 8-bit gray PNG."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def draw(folder, count, seed):
    """count/CLASSES images a class: waves of the class's direction and length, anywhere, in noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:SIZE, :SIZE]
    for label in range(CLASSES):
        (folder / str(label)).mkdir(parents=True)
    for i in range(count):
        label = i % CLASSES
        angle = np.pi * (label % 5) / 5 + rng.normal(0, 0.08)
        length = (4.5 if label < 5 else 8) * rng.uniform(0.9, 1.1)
        phase = rng.uniform(0, 2 * np.pi)
        wave = np.sin(2 * np.pi * (x * np.cos(angle) + y * np.sin(angle)) / length + phase)
        image = 128 + 45 * wave + rng.normal(0, 45, wave.shape)
        (folder / str(label) / f"{i:05}.png").write_bytes(png(image.clip(0, 255).astype(np.uint8)))
