"""Formats by hand, for files that lie (bombs.py)."""

import gzip
import struct
import zlib

MEGABYTE = 1 << 20


def tar_header(name, size, kind=b"0", sparse=b""):
    number = b"%011o\0" % size if size < 8 ** 11 else b"\x80" + size.to_bytes(11, "big")
    head = bytearray(name.ljust(100, b"\0") + b"0000644\0" * 3 + number + b"0" * 12 + b" " * 8 + kind + bytes(100) + b"ustar  \0" + bytes(247))
    if sparse:
        head[345:345 + 41], head[386:386 + len(sparse)] = bytes(41), sparse
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head[:512])


def gnu_number(value):
    return b"%011o\0" % value if value < 8 ** 11 else b"\x80" + value.to_bytes(11, "big")


def pax(**records):
    body = b""
    for key, value in records.items():
        line = f" {key.replace('_', '.')}={value}\n".encode()
        size = len(line)
        while len(str(size)) + len(line) != size:
            size = len(str(size)) + len(line)
        body += str(size).encode() + line
    return tar_header(b"pax", len(body), b"x") + body.ljust(-(-len(body) // 512) * 512, b"\0")


def zeros(megabytes):
    """A gzip file of zeros: a member of a megabyte, again and again."""
    return gzip.compress(bytes(MEGABYTE), 9, mtime=0) * megabytes


def zstd_zeros(megabytes):
    """A zstd file of zeros: frames of 128 blocks of 128 kB, each a byte that is repeated."""
    last = struct.pack("<I", 1 | 1 << 1 | 128 * 1024 << 3)[:3] + b"\0"
    block = struct.pack("<I", 1 << 1 | 128 * 1024 << 3)[:3] + b"\0"
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + block * 127 + last
    return frame * (megabytes // 16)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, *chunks, bits=8, colour=6, interlaced=0):
    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(chunks) + chunk(b"IEND", b"")


def jpeg(width, height):
    """A progressive JPEG with a scan of a few bytes."""
    quantities = b"\xff\xdb\x00\x43\x00" + b"\x01" * 64
    frame = b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + b"\x03\x01\x22\x00\x02\x22\x00\x03\x22\x00"
    codes = b"\xff\xc4\x00\x14\x00\x01" + bytes(15) + b"\x00"
    scan = b"\xff\xda\x00\x0c\x03\x01\x00\x02\x00\x03\x00\x00\x00\x00few"
    return b"\xff\xd8\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0" + quantities + frame + codes + scan + b"\xff\xd9"


def crc32c_table():
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    return table


TABLE = crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked_crc(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# ONNX ------------------------------------------------------------------------------------------------


def varint(value):
    out = b""
    value &= (1 << 64) - 1
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def tensor(name, dims, data, kind=1):
    """1: float32, 7: int64."""
    return b"".join(number(1, dim) for dim in dims) + number(2, kind) + message(8, name) + message(9, data)


def node(operator, inputs, output):
    return b"".join(message(1, name) for name in inputs) + message(2, output) + message(3, output) + message(4, operator)


def onnx(nodes, tensors, features=4):
    """A network with the input x [N, features] and the output y."""
    def value(name, *dims):
        shape = b"".join(message(1, dim) for dim in dims)
        return message(1, name) + message(2, message(1, number(1, 1) + message(2, shape)))
    graph = b"".join(message(1, n) for n in nodes) + message(2, "g") + b"".join(message(5, t) for t in tensors)
    graph += message(11, value("x", message(2, "N"), number(1, features))) + message(12, value("y", message(2, "N"), number(1, 4)))
    return number(1, 8) + message(7, graph) + message(8, number(2, 17))
