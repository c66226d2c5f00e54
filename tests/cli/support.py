"""What the tests of the command line share."""

import struct
import subprocess
import zlib


def runner(program):
    """A function that runs `program` with words and returns its status and output."""

    def run(*words, **options):
        return subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=300, **options)

    return run


def png(rows, channels=1):
    """An image of rows of bytes: gray with one channel, colour with three."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", len(rows[0]) // channels, len(rows), 8, 2 if channels == 3 else 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
            chunk(b"IDAT", zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))) + chunk(b"IEND", b""))
