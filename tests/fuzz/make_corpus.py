#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: one or a few small, good files of each kind, from which fuzzing starts.

    PYTHONPATH=build-test/bindings/python python3 tests/fuzz/make_corpus.py
"""

import gzip
import io
import json
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile
import zlib

import numpy as np
from PIL import Image

import echotrain as et

HERE = pathlib.Path(__file__).parent


def put(target, name, data):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def tar(format):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name in ("a/1.cls", "a/1.txt", "a/" + "long" * 40 + ".txt"):
            info = tarfile.TarInfo(name)
            info.size = 3
            archive.addfile(info, io.BytesIO(b"abc"))
    return out.getvalue()


def tar_family():
    """A few archives of tests/io/tar_family.py: sparse files in each notation, extended headers, links."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, HERE.parent / "io/tar_family.py", folder], check=True)
        for name in ("pax_size", "pax_then_long", "base256", "global_comment", "folder_with_size", "random05"):
            put("tar", name, (pathlib.Path(folder) / f"{name}.tar").read_bytes())
        # The map and the parts of one file are enough of these.
        files = pathlib.Path(folder) / "few"
        files.mkdir()
        with open(files / "f", "wb") as out:
            for at in range(0, 60000, 8192):
                out.seek(at)
                out.write(b"part")
            out.truncate(70000)
        for name, options in (("gnu", ["--format=gnu"]), ("pax00", ["--sparse-version=0.0"]),
                              ("pax01", ["--sparse-version=0.1"]), ("pax10", ["--sparse-version=1.0"])):
            subprocess.run(["tar", "-C", files, "--sparse", "--hole-detection=raw", "--format=pax", *options, "-cf",
                            f"{folder}/sparse.tar", "f"], check=True)
            data = (pathlib.Path(folder) / "sparse.tar").read_bytes()
            put("tar", f"sparse_{name}", data.rstrip(b"\0") + bytes(512))


def image(mode, kind, **options):
    out = io.BytesIO()
    pixels = np.arange(7 * 9 * 4, dtype=np.uint8).reshape(7, 9, 4)
    Image.fromarray(pixels, "RGBA").convert(mode).save(out, kind, **options)
    return out.getvalue()


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(bits, colour, interlaced=False, before=b"", after=b""):
    """A PNG of 9 x 7 pixels of the kinds that Pillow does not write; `before` and `after` are chunks around its pixels."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows = b""
    for x, y, dx, dy in passes if interlaced else [(0, 0, 1, 1)]:
        width = len(range(x, 9, dx))
        row = bytes(0x11 * (i % 8) for i in range((width * samples * bits + 7) // 8))
        rows += b"".join(b"\0" + row for _ in range(y, 7, dy) if width)
    header = struct.pack(">IIBBBBB", 9, 7, bits, colour, 0, 0, interlaced)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", zlib.compress(rows)) + after +
            chunk(b"IEND", b""))


def exif(orientation, order="<"):
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    return head + struct.pack(order + "HHHIHHI", 1, 0x0112, 3, 1, orientation, 0, 0)


def put_images():
    for mode in ("L", "RGB", "RGBA", "P", "1"):
        put("image", f"{mode}.png", image(mode, "PNG"))
    put("image", "compressed.png", image("RGB", "PNG", compress_level=9))
    for mode in ("L", "RGB", "CMYK"):
        put("image", f"{mode}.jpg", image(mode, "JPEG"))
    put("image", "deep.png", png(16, 2))
    put("image", "deep_interlaced.png", png(16, 6, True))
    put("image", "gray4_interlaced.png", png(4, 0, True, chunk(b"gAMA", struct.pack(">I", 100000))))
    put("image", "transparent.png", png(8, 2, before=chunk(b"tRNS", bytes(6)), after=chunk(b"eXIf", exif(6))))
    palette = chunk(b"PLTE", bytes(range(24))) + chunk(b"tRNS", b"\x40\x80")
    put("image", "palette4.png", png(4, 3, before=palette))
    put("image", "turned.png", png(8, 0, before=chunk(b"eXIf", exif(7, ">"))))
    for name, order, orientation in (("left", "<", 8), ("right", ">", 6)):
        put("image", f"{name}.jpg", image("RGB", "JPEG", exif=b"Exif\0\0" + exif(orientation, order)))
    put("image", "progressive.jpg", image("RGB", "JPEG", progressive=True))
    half = image("RGB", "JPEG", subsampling=2)
    put("image", "410.jpg", half.replace(b"\x01\x22\x00", b"\x01\x42\x00"))
    put("image", "no_end.jpg", half[:-2])


def put_answers():
    """Of servers; the first byte says which part of a file was asked for."""
    head = b"\r\nContent-Type: text/plain\r\nETag: \"1\"\r\nLast-Modified: Mon, 30 Nov 2026 10:00:00 GMT\r\n"
    for name, data in (("part", b"\0HTTP/1.1 206 Partial Content" + head + b"Content-Range: bytes 0-3/10\r\n\r\nabcd"),
                       ("last", b"\2HTTP/2 206 " + head + b"content-range: bytes 8-9/*\r\nContent-Range: bytes 8-9/10\r\n\r\nij"),
                       ("whole", b"\0HTTP/1.1 200 OK" + head + b"Content-Length: 2\r\nContent-Encoding: gzip\r\n\r\nab"),
                       ("chunked", b"\0HTTP/1.0 200 OK" + head + b"Transfer-Encoding: chunked\r\n\r\nab"),
                       ("only_length", b"\0HTTP/1.1 200 OK" + head + b"Content-Length: 12345\r\n\r\n"),
                       ("empty", b"\0HTTP/1.1 416 Range Not Satisfiable" + head + b"Content-Range: bytes */0\r\n\r\n"),
                       ("no_total", b"\0HTTP/1.1 416 Range Not Satisfiable" + head + b"Content-Range: bytes */\r\n\r\n"),
                       ("vast", b"\0HTTP/1.1 416 Range Not Satisfiable" + head + b"Content-Range: bytes */" + b"9" * 30 + b"\r\n\r\n"),
                       ("redirect", b"\0HTTP/1.1 302 Found\r\nLocation: /b\r\nRetry-After: 3\r\n\r\n"),
                       ("busy", b"\0HTTP/1.1 503 Busy\r\nRetry-After: 1e999\r\nRetry-After: -1\r\n\r\nwait")):
        put("http", name, data)
    contents = b"".join(b"<Contents><Key>%s</Key><Size>1</Size></Contents>" % key for key in
                        (b"a/1.tar", b"a&amp;b&lt;&gt;&quot;&apos;", b"it&#39;s &#x20AC;&#128512;&#0;&#xD800;&nbsp;&", b""))
    page = b"<?xml version='1.0'?><ListBucketResult><IsTruncated>%s</IsTruncated>%s</ListBucketResult>"
    put("s3_list", "last", page % (b"false", contents))
    put("s3_list", "more", page % (b"true", contents + b"<NextContinuationToken>1/+=&#34;</NextContinuationToken>"))
    put("s3_list", "no_token", page % (b"true", contents))


def protobuf(field, data):
    return bytes([field << 3 | 2, len(data)]) + data


def tf_record():
    def feature(name, kind, payload):
        return protobuf(1, protobuf(1, name) + protobuf(2, protobuf(kind, payload)))
    example = protobuf(1, feature(b"x", 2, protobuf(1, struct.pack("<f", 2.5))) +
                       feature(b"n", 3, protobuf(1, b"\x07")) + feature(b"b", 1, protobuf(1, b"bytes")))
    return example


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def main():
    put("tar", "gnu", tar(tarfile.GNU_FORMAT))
    put("tar", "pax", tar(tarfile.PAX_FORMAT))
    tar_family()
    put("cifar", "record", gzip.compress(bytes(3073), mtime=0))
    put("text", "lines", b"one\r\n\n" + b"long " * 20 + b"\nlast")
    put("npy", "axes", b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '|u1', 'fortran_order': False, 'shape': "
        b"(1, 1, 1, 1, 1, 1, 1, 1), }".ljust(117) + b"\nx")
    text = b"some text, some text, some text\n" * 20
    put("gzip", "two", gzip.compress(text, mtime=0) + gzip.compress(b"more", mtime=0))
    put("zstd", "frame", subprocess.run(["zstd", "-q", "-c"], input=text, stdout=subprocess.PIPE, check=True).stdout)
    put_images()
    length = struct.pack("<Q", len(tf_record()))
    put("tfrecord", "example", length + crc32c(length) + tf_record() + crc32c(tf_record()))
    put_answers()
    put("idx", "images", struct.pack(">4B3I", 0, 0, 8, 3, 2, 3, 3) + bytes(range(18)))
    for name, array in (("f32", np.zeros((3, 2), np.float32)), ("i64", np.arange(3))):
        out = io.BytesIO()
        np.save(out, array)
        put("npy", name, out.getvalue())
    put("csv", "quoted", b'\xef\xbb\xbf"a","b","c"\r\n1e38,+-1,"x\r\ny"\r\n1e400,2,"open\n')
    put("csv", "rows", b'a,b,c\n1.5,2,"a ""quoted"" text"\n-3e2,4,plain\n')
    put("csv", "blank", b'a,b,c\n""\n  \n\n1\r,2,3\n"4"x,"5""",6\r\r\n')
    put("csv_text", "rows", b'""\n\n" "\n"x",1\n"y\n')
    put("text_windows", "characters", b"\0h\xc3\xa9llo \xe2\x82\xac \xf0\x9f\x98\x80 hello")
    put("text_windows", "alphabet", b"\2abcabcabcabc")
    put("text_windows", "not_utf8", b"\0ab\xc0\x80\xed\xa0\x80\xff")
    for name, descr in (("big_endian", "'>i4'"), ("u2", "'<u2'"), ("structured", "[('a', '<f4'), ('b', '<i4')]")):
        header = (f"{{'descr': {descr}, 'fortran_order': False, 'shape': (1,), }}").encode().ljust(117) + b"\n"
        put("npy", name, b"\x93NUMPY\x01\x00\x76\x00" + header + bytes(8))
    floats = protobuf(1, protobuf(1, protobuf(1, b"x") + protobuf(2, protobuf(2, protobuf(1, bytes(5))))))
    length = struct.pack("<Q", len(floats))
    put("tfrecord", "five_bytes", length + crc32c(length) + floats + crc32c(floats))
    put("jsonl", "nulls", b'{"a": null, "c": {"d": 1}, "t": "x"}\n{"a": 1, "c": {"d": 1}, "t": null}\n')
    put("jsonl", "rows", b'{"a": 1.5, "c": {"d": 2}, "t": "text"}\n{"a": [1, 2], "c": {"d": 3}, "t": ""}\n')
    put("json", "text", b'{"a": [1, {"b": null}], "c": "\\u00e9", "a": 2} // a comment\n')
    put("json", "deep", bytes([9] * 16 + [7] + [10] * 16))  # numbers of pieces, see data.cpp
    # Choices, see target.h. These two were read out of bounds and converted out of range.
    put("layers", "norm_of_number", b"oF_D\0m`\0\0.vD\0v>")
    put("metrics", "vast_accuracy", b"s\x03}\x07s")
    put("model", "nested", bytes([0, 3, 1, 2, 5, 4, 5]))
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                         "b": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [8, 12]},
                         "__metadata__": {"by": "hand"}}).encode()
    put("safetensors", "two", struct.pack("<Q", len(header)) + header + bytes(12))
    put("safetensors_header", "two", bytes([16, 1, 0, 1, 1, 0, 1]))
    put("safetensors_header", "wraps", bytes([0, 1, 1, 3, 1, 6, 0, 0]))
    for path in (HERE.parents[1] / "samples/jobs").glob("*.json"):
        put("job", path.name, path.read_bytes())
    put("job", "nested.json", json.dumps({"pipeline": {"stages": [
        {"stage": "mix", "weights": [1, 2], "sources": [{"stage": "text_lines", "pattern": "a"},
                                                        [{"stage": "folder", "root": "b"}, {"stage": "label"}]]},
        {"stage": "echo", "factor": 2}, {"stage": "batch", "size": 4}]},
        "model": {"layers": [{"layer": "dense", "units": 2}]}, "optimizer": {"optimizer": "sgd"},
        "schedule": {"schedule": "constant", "learning_rate": 0.1}}).encode())
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "images/0").mkdir(parents=True)
        for i, mode in enumerate(("L", "RGB")):
            (root / f"images/0/{i}.png").write_bytes(image(mode, "PNG"))
        (root / "images/0/2.jpg").write_bytes(image("RGB", "JPEG"))
        et.pack_folder(root / "images", root / "shard", format="fast")
        shard = (root / "shard-000000.ets").read_bytes()
        put("fast_shard", "three", shard)
        # The first planar frame by itself.
        magic = bytes.fromhex("28b52ffd")
        second = shard.find(magic, 4)
        put("image", "planar", shard[:second])


if __name__ == "__main__":
    sys.exit(main())
