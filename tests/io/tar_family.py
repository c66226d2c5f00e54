#!/usr/bin/env python3
"""Archives of many kinds, and what Python's tarfile reads from them.

    tar_family.py FOLDER

For each NAME.tar there is NAME.expected: a line for each regular file with its name in hexadecimal and its content's length and
CRC-32, "refused NAME" for a hard link, those of unknown types among the files, or "error" where tarfile cannot open the archive.
"""

import io
import os
import pathlib
import random
import subprocess
import sys
import tarfile
import zlib


def checksum(header):
    blank = header[:148] + b" " * 8 + header[156:]
    return header[:148] + b"%06o\0 " % sum(blank) + header[156:]


def expected_of(path):
    try:
        archive = tarfile.open(path, "r:", encoding="utf-8", errors="surrogateescape")
    except tarfile.ReadError:
        return ["error"]
    lines = []
    for member in archive:
        name = member.name.encode("utf-8", "surrogateescape").hex()
        unknown = member.type not in tarfile.SUPPORTED_TYPES and member.type not in (b"V", b"D")
        if member.isreg() or unknown:  # which tarfile and GNU tar extract alike
            if member.size > 1 << 40:
                return ["error"]
            content = archive.extractfile(member).read()
            lines.append(f"{name} {len(content)} {zlib.crc32(content)}")
        elif member.islnk():
            lines.append(f"refused {name}")
    return lines


def random_archive(rng, path):
    """Members of all kinds, in one of tarfile's formats."""
    form = rng.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    # tarfile itself applies the path of a global header to all members; it is refused here, and not among these.
    pax = {"comment": "x" * rng.randrange(2000)} if form == tarfile.PAX_FORMAT and rng.random() < 0.5 else {}
    kinds = [tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE,
             tarfile.FIFOTYPE, tarfile.CHRTYPE]
    with tarfile.open(path, "w", format=form, pax_headers=pax, encoding="utf-8", errors="surrogateescape") as archive:
        for i in range(rng.randrange(12)):
            kind = rng.choice(kinds + [tarfile.REGTYPE] * 8)
            longest = 250 if form != tarfile.USTAR_FORMAT else 150
            folder = "/".join("d" * rng.randrange(1, 60) for _ in range(rng.randrange(3)))
            name = f"{folder}/{i}." if folder else f"{i}."
            name += rng.choice(["png", "cls", "\u00e9\u20ac", "n" * 90])
            if len(name.encode()) > longest or (form == tarfile.USTAR_FORMAT and len(name.split("/")[-1].encode()) > 99):
                name = f"{i}.png"
            info = tarfile.TarInfo(name)
            info.type = kind
            info.mtime = rng.choice([0, 1.5, 1e9, -3 if form == tarfile.PAX_FORMAT else 3])
            info.uid = rng.choice([0, 1000, 1 << 30 if form != tarfile.USTAR_FORMAT else 1])
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = rng.choice(["0.png", "l" * 90, "l" * 200 if form != tarfile.USTAR_FORMAT else "l"])
            content = rng.randbytes(rng.choice([0, 1, 511, 512, 513, rng.randrange(5000)]))
            if form == tarfile.PAX_FORMAT and rng.random() < 0.2:
                info.pax_headers = {"size": str(len(content)), "SCHILY.xattr.user.x": "v" * rng.randrange(3000)}
            if info.isreg():
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                archive.addfile(info)


def member(name, content, type=b"0", size=None):
    info = tarfile.TarInfo(name)
    info.type = type
    info.size = len(content)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT)[-512:])
    if size is not None:
        header[124:136] = size
    return checksum(bytes(header)) + content + bytes(-len(content) % 512)


def pax(records, type=b"x"):
    text = b""
    for key, value in records:
        body = b" " + key.encode() + b"=" + value + b"\n"
        length = len(body)
        while length != len(str(length)) + len(body):
            length = len(str(length)) + len(body)
        text += str(length).encode() + body
    return member("pax", text, type=type)


END = bytes(1024)


def crafted():
    """Archives that no writer makes by itself, or few."""
    inner = member("inner.txt", b"not a member of the outer archive")
    base256 = bytes([0x80]) + (700).to_bytes(11, "big")
    yield "base256", member("a", b"x" * 700, size=base256) + member("b", b"y") + END
    yield "base256_too_large", member("a", b"", size=bytes([0x80, 1]) + bytes(10)) + END
    yield "blank_size", member("a", b"", size=b" " * 12) + member("b", b"y") + END
    yield "leading_blanks", member("a", b"12345", size=b"          5\0") + END
    yield "pax_size", pax([("size", b"%d" % len(inner))]) + member("a", inner, size=b"%011o\0" % 0) + member("b", b"z") + END
    yield "pax_last_wins", pax([("path", b"first"), ("path", b"second")]) + member("a", b"1") + END
    yield "pax_twice", pax([("path", b"outer")]) + pax([("path", b"inner")]) + member("a", b"1") + END
    yield "pax_then_long", pax([("path", b"pax")]) + member("././@LongLink", b"long\0", type=b"L") + member("a", b"1") + END
    yield "long_then_pax", member("././@LongLink", b"long\0", type=b"L") + pax([("path", b"pax")]) + member("a", b"1") + END
    yield "pax_raw_bytes", pax([("hdrcharset", b"BINARY"), ("path", b"caf\xe9")]) + member("a", b"1") + END
    yield "solaris_pax", pax([("path", b"solaris")], type=b"X") + member("a", b"1") + END
    yield "global_comment", pax([("comment", b"of a commit")], type=b"g") + member("a", b"1") + END
    yield "contiguous", member("a", b"1234", type=b"7") + END
    yield "unknown_type", member("a", b"hidden", type=b"Q") + member("b", b"1") + END
    yield "volume_label", member("label", b"", type=b"V") + member("b", b"1") + END
    yield "folder_with_size", member("d/", b"", type=b"5", size=b"00000001000\0") + member("b", b"1") + END
    yield "link_with_size", member("s", b"", type=b"2", size=b"00000001000\0") + member("b", b"1") + END
    yield "old_folder", member("d/", b"", type=b"\0") + member("b", b"1") + END
    yield "signed_checksum", signed(member("caf\u00e9", b"1")) + END
    yield "no_end", member("a", b"1") + member("b", b"2")
    yield "one_zero_record", member("a", b"1") + bytes(512) + member("b", b"2") + END
    yield "only_end", END
    yield "joined", member("a", b"1") + END + member("b", b"2") + END
    yield "zeros", bytes(1 << 21)
    yield "garbage_behind", member("a", b"1") + END + b"garbage"
    yield "empty", b""


def signed(archive):
    header = archive[:512]
    blank = header[:148] + b" " * 8 + header[156:]
    total = sum(b - 256 if b > 127 else b for b in blank)
    return header[:148] + b"%06o\0 " % total + header[156:] + archive[512:]


def sparse(rng, folder):
    """By GNU tar, in each of its notations."""
    files = folder / "sparse_files"
    files.mkdir()
    shapes = {"holes": [(0, 5), (70000, 3000), (200000, 1)], "hole_at_end": [(4096, 100)], "all_hole": [],
              "many": [(i * 8192, 700) for i in range(60)], "plain": [(0, 900)]}
    for name, parts in shapes.items():
        with open(files / f"{name}.bin", "wb") as out:
            for offset, size in parts:
                out.seek(offset)
                out.write(rng.randbytes(size))
            out.truncate(max([o + s for o, s in parts] + [300000]))
    for name, options in {"gnu": ["--format=gnu"], "pax00": ["--format=pax", "--sparse-version=0.0"],
                          "pax01": ["--format=pax", "--sparse-version=0.1"],
                          "pax10": ["--format=pax", "--sparse-version=1.0"]}.items():
        subprocess.run(["tar", "-C", files, "--sparse", "--hole-detection=raw", "--sort=name", *options, "-cf",
                        folder / f"sparse_{name}.tar"] + sorted(os.listdir(files)), check=True)


def main():
    folder = pathlib.Path(sys.argv[1])
    rng = random.Random(7)
    for i in range(80):
        random_archive(rng, folder / f"random{i:02}.tar")
    for name, data in crafted():
        (folder / f"{name}.tar").write_bytes(data)
    sparse(rng, folder)
    for path in sorted(folder.glob("*.tar")):
        path.with_suffix(".expected").write_text("".join(line + "\n" for line in expected_of(path)))


if __name__ == "__main__":
    main()
