#!/usr/bin/env python3
"""Runs the pages of docs/tutorials and docs/migration, block by block: tutorials.py [--full] [--run-by TEST] BUILD WORK PAGE.md...

Each page has a folder of its own, with the links `build`, `docs` and `samples`, and one shell for all of its blocks, in order:

    ```sh                 is run; a command that fails, fails the page
    ```text               after such a block: lines of its output, in order. A number stands for any number, a bar of progress for
                          any bar, and '...' for any lines
    ```python and others  begin with a comment that names a file ('# feed.py', '// app.cpp'), into which the block is written

A comment in front of a block (<!-- ... -->) changes that:

    not run: WHY          the block is not run
    run by: TEST          another test runs the block, which reads it from the page, or calls this program with --run-by TEST
    exact                 numbers in a block of text stand for themselves
    test: OLD => NEW      the test runs the block with NEW in the place of OLD, with less data or fewer steps; there may be several

--full runs the blocks as they are printed, and prints their outputs, to be copied into the page.

A page that needs a Python module, a program, a binding, Gloo or MPI says so by <!-- needs: NAME -->, and is skipped where there is
none. Code in the text and in tables is looked up: `et.NAME(...)` is evaluated, `etr_NAME` has to be in the C header, options of
`echotrain COMMAND` in its help, and {"stage": ...} is made into a stage.
"""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = [ROOT / "capi/include/echotrain" / name for name in ("echotrain.h", "echotrain.hpp", "engine.h")]
FENCE = re.compile(r"((?:^<!-- [^\n]* -->\n+)*)^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?:> )?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
UNIT = re.compile(r"\b[kMGT]B\b")
BUILT = {"gloo": "capi/echotrain/echotrain-gloo", "java": "bindings/java/echotrain.jar", "csharp": "bindings/csharp/mono/EchoTrain.dll"}
DURATION = re.compile(r"(?:\d+ (?:h|min) )+(?=\d+ s)")
BAR = re.compile(r"\[[#.]+\]")
MARK = "=== block %d of the page ==="


class Fault(Exception):
    pass


class Block:
    MARKS = ("not run: ", "run by: ", "exact", "test: ", "needs: ")

    def __init__(self, page, match, full):
        comments, self.language, self.text = match.groups()
        self.line = page.count("\n", 0, match.start(2)) + 1
        self.printed = self.text
        self.marks = re.findall(r"^<!-- (.*?) -->$", comments, re.MULTILINE)
        for mark in self.marks:
            if not mark.startswith(self.MARKS):
                raise Fault(f"line {self.line}: what is '<!-- {mark} -->'? Known are {self.MARKS}")
            if mark.startswith("test: "):
                old, arrow, new = mark[len("test: "):].partition(" => ")
                if not arrow or old not in self.text:
                    raise Fault(f"line {self.line}: the block has no '{old}' to replace")
                self.text = self.text if full else self.text.replace(old, new)
        self.file = self.named_file()

    def marked(self, word):
        return any(mark.startswith(word) for mark in self.marks)

    def value(self, mark):
        """What follows the mark; "" without one."""
        return next((found[len(mark):] for found in self.marks if found.startswith(mark)), "")

    def left_to(self, path):
        """The test that runs the block instead; "" if there is none."""
        test = self.value("run by: ")
        if test and (not (ROOT / test).is_file() or str(path.relative_to(ROOT)) not in (ROOT / test).read_text()):
            raise Fault(f"line {self.line}: {test} reads no block of {path.name}")
        return test

    def named_file(self):
        found = re.match(r"(?:#|//|/\*) ([\w./-]+\.\w+)(?: \*/)?(?:$|:|,)", self.text.split("\n", 1)[0])
        return found.group(1) if found and self.language not in ("sh", "text") else None


def parse(page, full=False, kind=Block):
    blocks = [kind(page, match, full) for match in FENCE.finditer(page)]
    if len(blocks) * 2 != len(re.findall(r"^ *(?:```|~~~)", page, re.MULTILINE)):
        raise Fault("a block is not closed, or is indented")
    return blocks


def blocks_of(path, full, test):
    """The page's blocks. Their `runs` says whether they are run here, or compared; `test` is the argument of --run-by."""
    blocks = parse(path.read_text(encoding="utf-8"), full)
    before = None
    for block in blocks:
        block.runs = not block.marked("not run: ") and block.left_to(path) in ("", test)
        if block.marked("not run: "):
            pass
        elif block.language == "text":
            if before is None or before.language != "sh" or before.marked("not run: "):
                raise Fault(f"line {block.line}: output of no block that is run")
            block.runs = before.runs
        elif block.language != "sh" and not block.file:
            raise Fault(f"line {block.line}: a block of '{block.language}' that is neither run, nor names its file in its first "
                        "line, nor is marked '<!-- not run: WHY -->'")
        before = block
    return blocks


def script_of(blocks):
    lines = ["set -euo pipefail", "exec 2>&1"]
    for number, block in enumerate(blocks):
        if not block.runs or block.language == "text":
            continue
        lines.append(f"printf '\\n%s %s\\n' '{MARK % number}' \"$EPOCHREALTIME\"")
        if block.file:
            folder = os.path.dirname(block.file)
            lines += [f"mkdir -p {folder}"] if folder else []
            lines += [f"cat > {block.file} <<'END OF THE FILE'", block.text + "END OF THE FILE"]
        else:
            lines.append(block.text)
    return "\n".join(lines) + f"\nprintf '\\n%s %s\\n' '{MARK % len(blocks)}' \"$EPOCHREALTIME\"\n"


def outputs_of(text):
    """{number of a block: (its output, seconds)}"""
    parts = re.split("^" + (MARK % 0).replace("0", r"(\d+)") + r" ([\d.]+)\n", text, flags=re.MULTILINE)
    rows = list(zip(map(int, parts[1::3]), map(float, parts[2::3]), parts[3::3]))
    ends = [begin for _, begin, _ in rows[1:]] + [None]
    return {number: (output, end - begin if end else None) for (number, begin, output), end in zip(rows, ends)}


def shape(line, exact):
    line = " ".join(line.split())
    if line.startswith("device: "):
        return "device: any"  # distributions number its driver in ways of their own
    return line if exact else re.sub(r" ?[-+]?" + NUMBER.pattern, " 0", UNIT.sub("B", DURATION.sub("", BAR.sub("[]", line)))).strip()


def compare(block, output):
    exact = block.marked("exact")
    rest = iter([shape(line, exact) for line in output.replace("\r", "\n").splitlines()])
    for line in block.text.splitlines():
        wanted = shape(line, exact)
        if wanted in ("", "..."):
            continue
        head, ellipsis, tail = wanted.partition("...")
        if not any(said == wanted or (ellipsis and said.startswith(head.strip()) and said.endswith(tail.strip())) for said in rest):
            raise Fault(f"line {block.line}: the output has no further line like\n  {line}\nit is\n{output}")


def environment(build, work):
    tools = work / "bin"
    tools.mkdir(parents=True)
    for name in ("python", "python3"):  # this one, which may be that of a virtual environment
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (tools / name).chmod(0o755)
    variables = dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}", PYTHONPATH=f"{build}/bindings/python", MPLBACKEND="Agg")
    variables.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", "2")
    return variables


def has(name, build):
    if name in BUILT:
        return (build / BUILT[name]).exists()
    if name == "mpi":
        return shutil.which("mpirun") is not None and any((build / "capi/echotrain").glob("libechotrain-mpi-*.so"))
    imported = [sys.executable, "-c", f"import {name}"]
    return shutil.which(name) is not None or subprocess.run(imported, stderr=subprocess.DEVNULL, check=False).returncode == 0


def run_page(path, build, work, variables, full, test):
    page = path.read_text(encoding="utf-8")
    blocks = blocks_of(path, full, test)
    look_up(page, path, variables, build / "tools/echotrain/echotrain")
    folder = work / path.stem
    folder.mkdir()
    (folder / "build").symlink_to(build)
    for name in ("docs", "samples"):
        (folder / name).symlink_to(ROOT / name)
    script = folder / "blocks.sh"
    script.write_text(script_of(blocks), encoding="utf-8")
    done = subprocess.run(["bash", script], cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    outputs = outputs_of(done.stdout)
    for number, (output, seconds) in outputs.items() if full else ():
        if number < len(blocks):
            print(f"--- line {blocks[number].line}, {seconds or 0:.1f} s\n{blocks[number].text}>>>\n{output}")
    if done.returncode != 0:
        block = blocks[max(outputs)] if outputs else blocks[0]
        raise Fault(f"line {block.line}: the block\n{block.text}failed with status {done.returncode}:\n"
                    f"{outputs[max(outputs)][0] if outputs else done.stdout}")
    ran = compared = 0
    for number, (before, block) in enumerate(zip([None, *blocks], blocks)):
        if number in outputs and not block.file:
            ran += 1
            if outputs[number][1] >= 1 and not full:
                first = next(line for line in block.text.splitlines() if line and not line.startswith(("PATH", "mkdir", "cd ")))
                print(f"  {outputs[number][1]:6.1f} s  line {block.line}: {first[:100]}")
        if block.language == "text" and block.runs and not full:
            compare(block, outputs[number - 1][0])
            compared += 1
    unrun = sum(not block.runs for block in blocks)
    return f"{ran} blocks run, {compared} outputs compared, {sum(bool(b.file) for b in blocks)} files written, {unrun} not run here"


@functools.lru_cache(maxsize=None)
def help_of(echotrain, command):
    """The help of a command; "" if there is none."""
    done = subprocess.run([echotrain, command, "--help"], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def look_up(page, path, variables, echotrain):
    """Names of EchoTrain's in the page's inline code."""
    text = FENCE.sub("", page)
    spans = sorted(set(re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)))
    python, wrong = [], []
    header = "\n".join(file.read_text() for file in HEADERS)
    for span in spans:
        if re.match(r"et\.\w", span) and "..." not in span:
            python.append(re.sub(r"\.run\(\)$", ".run", span))  # which is looked up only
        elif span.startswith('{"stage":') and "..." not in span:
            stage = json.loads(span)
            name = stage.pop("stage")
            stage = ", ".join(f"{key}={value!r}" for key, value in stage.items())
            python.append(f"et.stages.{name}({stage})")
        wrong += [f"the C header has no {name}" for name in re.findall(r"\betr_\w+", span)
                  if not re.search(rf"\b{name}" + (r"\b" if name[-1] != "_" else ""), header)]  # `etr_options_set_*` are several
        command = re.match(r"echotrain ([a-z-]+)", span)
        if command:
            said = help_of(echotrain, command.group(1))
            if not said:
                wrong.append(f"there is no `{span}`")
            wrong += [f"`{span}`: no option {option}" for option in re.findall(r"(?<= )--?[a-z][\w-]*", span)
                      if not re.search(re.escape(option) + r"(?![\w-])", said)]
    if python:
        names = "import echotrain as et, numpy as np\nx = y = images = labels = samples = function = path = mean = std = []\na = b = et.stages.files('*')\n"
        checks = "".join(f"try: {span}\nexcept Exception as error: print({span!r}, 'is', repr(error))\n" for span in python)
        said = subprocess.run([sys.executable, "-c", names + checks], env=variables, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False).stdout
        wrong += said.splitlines()
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", re.sub(r"`[^`\n]+`", "", text)):
        if not (path.parent / target).exists():
            wrong.append(f"a link to '{target}', which is not there")
    if wrong:
        raise Fault("\n".join(wrong))


def main():
    arguments, test = sys.argv[1:], ""
    full = arguments[:1] == ["--full"]
    del arguments[:full]
    if arguments[:1] == ["--run-by"]:
        test = arguments[1]
        del arguments[:2]
    if len(arguments) < 3:
        raise SystemExit(__doc__)
    build, work, *pages = (pathlib.Path(a).resolve() for a in arguments)
    shutil.rmtree(work, ignore_errors=True)
    variables = environment(build, work)
    failed = []
    for path in pages:
        missing = [m for m in re.findall(r"^<!-- needs: (\w+) -->$", path.read_text(encoding="utf-8"), re.MULTILINE) if not has(m, build)]
        if missing:
            print(f"{path.stem} is SKIPPED: there is no {', '.join(missing)}", flush=True)
            continue
        began = time.monotonic()
        try:
            result = run_page(path, build, work, variables, full, test)
        except Fault as fault:
            failed.append(path.stem)
            result = f"FAILED\n{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}: {fault}"
        print(f"{path.stem}: {time.monotonic() - began:.1f} s, {result}", flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
