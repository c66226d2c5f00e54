"""Writes the images of tests and benchmarks."""

import pathlib
import struct
import zlib


def png(pixels):
    """An 8-bit PNG of an array of u8: gray [H, W], or RGB [H, W, 3]."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    color = 2 if pixels.ndim == 3 else 0
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, color, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def write_classes(folder, count):
    """Writes `count` images of noise into the folders 0 and 1 of `folder`; those of class 1 are brighter."""
    import numpy
    random = numpy.random.default_rng(1)
    for i in range(count):
        place = pathlib.Path(folder, str(i % 2))
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{i}.png").write_bytes(png(random.integers(100 * (i % 2), 100 * (i % 2) + 155, (28, 28), "u1")))
