"""The command `echotrain`, which wheels contain as a program: `echotrain demo`, or `python -m echotrain demo`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import NoReturn

_HERE: str = os.path.dirname(os.path.abspath(__file__))
# On Windows beside its library, where it finds it.
PROGRAM: str = os.path.join(_HERE, "echotrain.exe") if os.name == "nt" else os.path.join(_HERE, "bin", "echotrain")


def main() -> NoReturn:
    if not os.path.exists(PROGRAM):
        sys.exit(f"echotrain: the command is part of wheels only, and '{PROGRAM}' does not exist; "
                 "in a build folder it is tools/echotrain/echotrain")
    if os.name == "nt":  # has no exec: the shell would go on while the command still runs
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command
        sys.exit(subprocess.call([PROGRAM, *sys.argv[1:]]))
    os.execv(PROGRAM, [PROGRAM, *sys.argv[1:]])


if __name__ == "__main__":
    main()
