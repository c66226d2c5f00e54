#!/usr/bin/env python3
"""Fills tables of docs/performance.md, docs/performance_gpu.md and docs/performance_history.md from docs/measurements: what stands
between <!-- measurement: NAME --> and <!-- end --> becomes the table of NAME.json, with a line that says where, when and how it was
measured.

    python3 tests/docs/measurements.py [--check]

--check changes nothing, and fails if a page is not up to date. A file that is incomplete or that no page shows is an error in any
case.
"""

import datetime
import json
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = tuple(ROOT / f"docs/performance{part}.md" for part in ("", "_gpu", "_history"))
FOLDER = ROOT / "docs/measurements"
KEYS = ("benchmark", "command", "date", "machine", "driver", "columns", "rows", "note")
OPEN, CLOSE = "<!-- measurement: ", "<!-- end -->"
BLOCK = re.compile(rf"^{OPEN}([\w-]+) -->\n.*?^{CLOSE}$", re.DOTALL | re.MULTILINE)


def is_date(text):
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except (TypeError, ValueError):
        return False


def faults_of(measurement):
    lacking = [key for key in KEYS if key not in measurement]
    if lacking:
        yield f"lacks {', '.join(lacking)}"
        return
    yield from (f"has an unknown key '{key}'" for key in measurement if key not in KEYS)
    if not is_date(measurement["date"]):
        yield f"has the date '{measurement['date']}'; one day is wanted, as in 2026-11-25"
    if not (ROOT / measurement["benchmark"]).is_file() and measurement["command"]:
        yield f"names the benchmark '{measurement['benchmark']}', which does not exist"
    for number, row in enumerate([measurement["columns"], *measurement["rows"]]):
        yield from (f"has {cell!r} in row {number}; a cell is a text without '|'"
                    for cell in row if not isinstance(cell, str) or "|" in cell)
    width = len(measurement["columns"])
    yield from (f"has {len(row)} cells in row {number}, and {width} columns"
                for number, row in enumerate(measurement["rows"], 1) if len(row) != width)


def caption(measurement):
    where = ", ".join(filter(None, (measurement["machine"], measurement["driver"], measurement["date"])))
    how = f"; [`{measurement['command']}`](../{measurement['benchmark']})" if measurement["command"] else ""
    whole = re.sub("`.*?`", lambda code: code.group().replace(" ", "\0"), f"{where[0].upper()}{where[1:]}{how}. {measurement['note']}")
    return textwrap.fill(whole, 160, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def block(name, measurement):
    lines = ["| " + " | ".join(row) + " |" for row in (measurement["columns"], *measurement["rows"])]
    lines.insert(1, "|" + "---|" * len(measurement["columns"]))
    return f"{OPEN}{name} -->\n\n" + "\n".join(lines) + f"\n\n{caption(measurement)}\n\n{CLOSE}"


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
    wrong = [f"docs/measurements/{name}.json {fault}" for name, measurement in found.items() for fault in faults_of(measurement)]
    pages = {path: path.read_text(encoding="utf-8") for path in PAGES}
    shown = {path: [match.group(1) for match in BLOCK.finditer(page)] for path, page in pages.items()}
    for path, page in pages.items():
        if any(len(shown[path]) != len(re.findall(f"^{marker}", page, re.MULTILINE)) for marker in (OPEN, CLOSE)):
            wrong.append(f"{path.name}: a table lacks its '{OPEN}NAME -->' or its '{CLOSE}'")
        wrong += [f"{path.name}: there is no docs/measurements/{name}.json" for name in shown[path] if name not in found]
    wrong += [f"docs/measurements/{name}.json: no page shows it" for name in found if all(name not in names for names in shown.values())]
    for path, page in pages.items() if not wrong else ():
        filled = BLOCK.sub(lambda match: block(match.group(1), found[match.group(1)]), page)
        if not check:
            path.write_text(filled, encoding="utf-8")
        elif filled != page:
            old, new = ([match.group(0) for match in BLOCK.finditer(text)] for text in (page, filled))
            wrong += [f"{path.name}: the table '{name}' differs from docs/measurements/{name}.json; `python3 tests/docs/measurements.py` "
                      "mends it" for name, before, after in zip(shown[path], old, new) if before != after]
    for message in wrong:
        print(message)
    print(f"{len(found)} measurements, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
