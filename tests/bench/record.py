"""Keeps what a benchmark measured as a file for docs/measurements, from which tests/docs/measurements.py makes a table of
docs/performance.md."""

import datetime
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def add_option(parser):
    parser.add_argument("--record", metavar="FILE", help="also writes the table as a file for docs/measurements")


def machine():
    found = re.search(r"^model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{len(os.sched_getaffinity(0))} cores of {found.group(1) if found else platform.machine()}"


def driver_of(echotrain):
    """Of the first device that the command lists."""
    said = subprocess.run([echotrain, "devices"], capture_output=True, text=True, check=True).stdout
    return re.search(r"driver (.*)", said).group(1)


def text_of(measurement):
    """JSON with a line for each key and each row."""
    rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in measurement["rows"])
    lines = [f" {json.dumps(key)}: " + (f"[\n{rows}\n ]" if key == "rows" else json.dumps(value, ensure_ascii=False))
             for key, value in measurement.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write(path, columns, rows, note, driver="", echotrain=None):
    """Does nothing without a path, which --record gives. The driver is `driver`, or that which the command `echotrain` uses."""
    if not path:
        return
    program = pathlib.Path(sys.argv[0]).resolve().relative_to(ROOT)
    words = [word for before, word in zip([""] + sys.argv[1:], sys.argv[1:])
             if "--record" not in (before, word) and not word.startswith("--record=")]
    measurement = {"benchmark": str(program), "command": shlex.join(["python3", str(program), *words]),
                   "date": datetime.date.today().isoformat(), "machine": machine(),
                   "driver": driver_of(echotrain) if echotrain else driver, "columns": columns,
                   "rows": [[str(cell) for cell in row] for row in rows], "note": note}
    pathlib.Path(path).write_text(text_of(measurement), encoding="utf-8")
    print(f"wrote {path}")
