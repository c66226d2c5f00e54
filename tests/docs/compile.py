"""Runs the lines that compile programs of docs/c.md and of the samples' own headers, with warnings as errors, against an
installed prefix: compile.py PREFIX LIBDIR WORK. Leaves the programs in WORK."""

import pathlib
import re
import shutil
import subprocess
import sys

from examples import CPP, ROOT, ten_lines

PREFIX, LIBDIR, WORK = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
STRICT = """set -euo pipefail
cc() { command cc -Wall -Wextra -Wpedantic -Werror "$@"; }
c++() { command c++ -Wall -Wextra -Wpedantic -Wshadow -Werror "$@"; }
"""


def compile_lines():
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/c.md").read_text(encoding="utf-8"), re.DOTALL)
    pkg_config = next(block for block in blocks if "PKG_CONFIG_PATH" in block)
    lines = pkg_config.splitlines()
    for sample in sorted([*(ROOT / "samples/c").glob("*.c"), *(ROOT / "samples/cpp").glob("*.cpp")]):
        text = re.sub(r"\\\n(?: \*|//) +", "", sample.read_text(encoding="utf-8"))  # a command may take several lines
        own = re.findall(r"^(?: \*|//) +((?:cc|c\+\+) .*)$", text, re.MULTILINE)
        if not own:
            raise SystemExit(f"{sample.name} does not say how it is compiled")
        lines += [line.replace(sample.name, str(sample.relative_to(ROOT))) for line in own]
    return lines


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    (WORK / "samples").symlink_to(ROOT / "samples")
    shutil.copy(ROOT / "samples/c/train.c", WORK / "app.c")
    (WORK / "app.cpp").write_text(CPP % ten_lines("c.md", "cpp"))
    lines = [line.replace("/opt/echotrain/lib/", f"{PREFIX}/{LIBDIR}/") for line in compile_lines()]
    if sum(line.startswith(("cc ", "c++ ")) for line in lines) < 12:
        raise SystemExit("docs/c.md and the samples have fewer lines that compile than they had")
    script = STRICT + "\n".join(lines) + "\n"
    done = subprocess.run(["bash", "-c", script], cwd=WORK, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{script}\nfailed:\n{done.stdout}")


if __name__ == "__main__":
    main()
