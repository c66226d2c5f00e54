"""The command `echotrain`, which wheels contain as a program: `echotrain demo`, or `python -m echotrain demo`."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

PROGRAM: str = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "echotrain")


def main() -> NoReturn:
    if not os.path.exists(PROGRAM):
        sys.exit(f"echotrain: the command is part of wheels only, and '{PROGRAM}' does not exist; "
                 "in a build folder it is tools/echotrain/echotrain")
    os.execv(PROGRAM, [PROGRAM, *sys.argv[1:]])


if __name__ == "__main__":
    main()
