#!/usr/bin/env python3
"""Checks that each function and each type of the C headers has a comment of its own directly above it."""

import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "capi/include/echotrain"
HEADERS = ("echotrain.h", "engine.h")
DECLARATION = re.compile(r"ETR_API |typedef |enum |struct ")


def without_comment(lines):
    """The numbers and lines of the declarations that begin without a comment above them."""
    above = ""
    for number, line in enumerate(lines, 1):
        if DECLARATION.match(line) and not (above.endswith("*/") and not above.startswith("/* ----")):
            yield number, line
        if not line.startswith("ETR_DEPRECATED("):  # it belongs to the declaration below
            above = line


def main():
    wrong, declarations = [], 0
    for name in HEADERS:
        lines = (FOLDER / name).read_text().splitlines()
        declarations += sum(1 for line in lines if DECLARATION.match(line))
        wrong += [f"{name}:{number}: '{line}' has no comment above it" for number, line in without_comment(lines)]
    for message in wrong:
        print(message)
    print(f"{declarations} functions and types; {len(wrong)} wrong")
    return 1 if wrong or declarations < 150 else 0


if __name__ == "__main__":
    sys.exit(main())
