"""Keeps what a benchmark measured as a file for docs/measurements, from which tests/docs/measurements.py makes a table of
docs/performance.md or one of its companion pages."""

import argparse
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
VARIABLES = ("PYTHONPATH", "OPENBLAS_CORETYPE", "LP_NUM_THREADS")


def add_option(parser):
    parser.add_argument("--record", metavar="FILE", type=new_file, help="also writes the table as a file for docs/measurements")


def new_file(name):
    """Checks a file's name before hours of measuring."""
    if not pathlib.Path(name).parent.is_dir() or not name.endswith(".json"):
        raise argparse.ArgumentTypeError(f"'{name}': a file NAME.json in an existing folder is wanted")
    return name


def machine():
    found = re.search(r"^model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{len(os.sched_getaffinity(0))} cores of {found.group(1) if found else platform.machine()}"


def driver_of(echotrain):
    """Of the first device that the command lists."""
    said = subprocess.run([echotrain, "devices"], capture_output=True, text=True).stdout
    found = re.search(r"driver (.*)", said)
    return found.group(1) if found else "unknown driver"


def command():
    """As it was called, with the variables that matter; files below the repository as they are named there."""
    program = pathlib.Path(sys.argv[0]).resolve()
    name = str(program.relative_to(ROOT) if program.is_relative_to(ROOT) else program.name)
    variables = [f"{key}={shlex.quote(os.environ[key].replace(f'{ROOT}/', ''))}" for key in VARIABLES if os.environ.get(key)]
    words = [word for before, word in zip([""] + sys.argv[1:], sys.argv[1:])
             if "--record" not in (before, word) and not word.startswith("--record=")]
    return name, " ".join([*variables, shlex.join(["python3", name, *words])])


def markdown(columns, rows):
    """The table as the benchmarks print it."""
    return "".join("| " + " | ".join(row) + " |\n" for row in (columns, ["---"] * len(columns), *rows))


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
    benchmark, called = command()
    measurement = {"benchmark": benchmark, "command": called,
                   "date": datetime.date.today().isoformat(), "machine": machine(),
                   "driver": driver_of(echotrain) if echotrain else driver, "columns": columns,
                   "rows": [[str(cell) for cell in row] for row in rows], "note": note}
    try:
        pathlib.Path(path).write_text(text_of(measurement), encoding="utf-8")
    except OSError as error:
        sys.exit(f"{text_of(measurement)}{path} cannot be written ({error.strerror}); above is what it would hold")
    print(f"wrote {path}")
