"""What the tests of the command line share."""

import pathlib
import random
import socket
import struct
import subprocess
import tempfile
import zlib


def runner(program):
    """A function that runs `program` with words and returns its status and output."""

    def run(*words, **options):
        return subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=300, **options)

    return run


def free_port():
    """Below those from which the kernel gives other sockets theirs."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def packed_digits(run, painter, train, test):
    """A temporary folder with so many drawn digits to train and to test on, packed below data/."""
    folder = tempfile.TemporaryDirectory()
    root = pathlib.Path(folder.name)
    for part, count, seed in (("train", train, 1), ("test", test, 2)):
        subprocess.run([painter, root / "png" / part, str(count), str(seed)], check=True)
        packed = run("pack", root / "png" / part, root / "data" / part)
        assert packed.returncode == 0, packed.stderr
    return folder


def png(rows, channels=1):
    """An image of rows of bytes: gray with one channel, colour with three."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", len(rows[0]) // channels, len(rows), 8, 2 if channels == 3 else 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
            chunk(b"IDAT", zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))) + chunk(b"IEND", b""))
