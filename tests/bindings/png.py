"""Writes the images of tests and benchmarks."""

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
