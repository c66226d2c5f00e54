"""Says what a Mach-O file for macOS is, as one line of JSON: its processor, oldest system, own name, libraries, search paths and
signature, and the functions that it exports.

    mach_o.py FILE
"""

import json
import pathlib
import struct
import sys

ARM64 = 0x0100000C
SYMTAB, LOAD, ID, SIGNATURE, BUILD_VERSION = 0x2, 0xC, 0xD, 0x1D, 0x32
LOAD_WEAK, RPATH, REEXPORT, LOAD_UPWARD = 0x80000018, 0x8000001C, 0x8000001F, 0x80000023
STAB, TYPE, SECTION, EXTERNAL, PRIVATE = 0xE0, 0x0E, 0x0E, 0x01, 0x10  # parts of a symbol's type


def text_at(data, at):
    return data[at : data.index(b"\0", at)].decode()


def exports_of(data, at):
    symbols, count, strings = struct.unpack_from("<3I", data, at + 8)
    for i in range(count):
        name, kind = struct.unpack_from("<IB", data, symbols + 16 * i)
        if not kind & (STAB | PRIVATE) and kind & EXTERNAL and kind & TYPE == SECTION:
            yield text_at(data, strings + name)


def read(data):
    magic, processor, _, _, commands = struct.unpack_from("<5I", data)
    if magic != 0xFEEDFACF:
        sys.exit("not a Mach-O file of 64 bits")
    out = {"processor": "arm64" if processor == ARM64 else hex(processor), "system": None, "name": None, "libraries": [],
           "search": [], "signed": False, "exports": []}
    at = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", data, at)
        field = struct.unpack_from("<I", data, at + 8)[0]
        if command in (LOAD, LOAD_WEAK, REEXPORT, LOAD_UPWARD):
            out["libraries"].append(text_at(data, at + field))
        elif command == ID:
            out["name"] = text_at(data, at + field)
        elif command == RPATH:
            out["search"].append(text_at(data, at + field))
        elif command == BUILD_VERSION:
            oldest = struct.unpack_from("<I", data, at + 12)[0]
            out["system"] = f"{'macOS' if field == 1 else field} {oldest >> 16}.{oldest >> 8 & 255}"
        elif command == SYMTAB:
            out["exports"] = sorted(exports_of(data, at))
        elif command == SIGNATURE:
            out["signed"] = True
        at += size
    return out


print(json.dumps(read(pathlib.Path(sys.argv[1]).read_bytes())))
