"""Fails if a line is longer than its language allows (CONTRIBUTING.md, Style). Lines with an address, or with a string that makes them
too long, are excused, and so are tables, images and code in documents.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("bindings", "capi", "docs", "packaging", "runtime", "samples", "shaders", "tests", "tools")
C = 100
SHADER = 120
SCRIPT = 140
LIMITS = {".h": C, ".hpp": C, ".c": C, ".cpp": C, ".inc": C, ".i": C, ".comp": SHADER, ".glsl": SHADER,
          ".py": SCRIPT, ".pyi": SCRIPT, ".java": SCRIPT, ".cs": SCRIPT, ".md": 160}
ADDRESS = re.compile(r"\w+://")
LINK = re.compile(r"\]\([^)]*\)")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
RAW_STRING = re.compile(r'R"(\w*)\(.*?\)\1"', re.DOTALL)


def lines_of(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".h", ".hpp", ".cpp"):
        text = RAW_STRING.sub(lambda found: re.sub(r"[^\n]+", "", found.group()), text)
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if path.suffix == ".md":
            is_code ^= line.lstrip().startswith("```")
            if is_code or line.lstrip().startswith(("|", "![")):
                continue
            line = LINK.sub("]()", line)
        yield number, line


def files():
    yield from ROOT.glob("*.md")
    for folder in FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in LIMITS and path.is_file())


def main():
    wrong, known = [], 0
    for path in sorted(files()):
        known += 1
        limit = LIMITS[path.suffix]
        for number, line in lines_of(path):
            if len(line) > limit and not ADDRESS.search(line) and len(STRING.sub('""', line)) > limit:
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {len(line)} columns, more than {limit}")
    print(f"{known} files, {len(wrong)} lines too long", *wrong, sep="\n")
    assert known > 500, "almost no files were found"
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
