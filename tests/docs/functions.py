#!/usr/bin/env python3
"""Compares docs/reference/functions.md with the C header, and with the sources of the four other languages: every function has a
row, and every name that the page gives for a language is there.
"""

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = ROOT / "capi/include/echotrain/echotrain.h"
PAGE = ROOT / "docs/reference/functions.md"
LANGUAGES = ("C++", "Python", "Java", "C#")


def functions_of_header():
    declarations = re.findall(r"(ETR_DEPRECATED\([^)]*\)\s*)?ETR_API\s[^;]*?\b(etr_\w+)\(", HEADER.read_text())
    return {name for deprecated, name in declarations
            if not deprecated and not re.search(r"_destroy$|^etr_string_free$|^etr_options_set_", name)}


def body_of(text, name):
    """The text between the braces of a class, struct or enum."""
    begin = re.search(rf"\b(?:class|struct|enum|interface)\s+{name}\b[^;{{]*\{{", text)
    if not begin:
        return None
    depth, at = 1, begin.end()
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return text[begin.end():at]


def has_braced(text, name):
    """Whether sources of C++, Java or C# define `name`, which may be that of a class, a function or a member of a class."""
    *classes, last = name.split(".")
    for scope in classes:
        text = body_of(text, scope)
        if text is None:
            return False
    if body_of(text, last) is not None:
        return True
    return bool(re.search(rf"(?:[\w>\]&*?]\s+|[*&]){last}\s*(?:<\w+>)?\s*(?:\(|=>|;|\{{|\n\s*\{{|$)", text, re.MULTILINE))


def python_names(node):
    for child in node.body:
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            yield child.name, child
        elif isinstance(child, ast.Assign):
            yield from ((target.id, child) for target in child.targets if isinstance(target, ast.Name))


def has_python(folder, name):
    module, _, rest = name.partition(".")
    if (folder / f"{module}.py").exists() and not any(module in dict(python_names(tree)) for tree in trees(folder)):
        return not rest or has_python_in([ast.parse((folder / f"{module}.py").read_text())], rest.split("."))
    return has_python_in(trees(folder), name.split("."))


def trees(folder):
    return [ast.parse(path.read_text()) for path in folder.glob("*.py")]


def has_python_in(nodes, parts):
    for node in nodes:
        found = dict(python_names(node)).get(parts[0])
        if found is None:
            continue
        bases = [base.id for base in getattr(found, "bases", ()) if isinstance(base, ast.Name)]
        if len(parts) == 1 or has_python_in([found], parts[1:]) or any(has_python_in(nodes, [base, *parts[1:]]) for base in bases):
            return True
    return False


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def main():
    def joined(folder, suffix):
        return "\n".join(without_comments(path.read_text()) for path in sorted((ROOT / folder).glob(f"*{suffix}")))

    sources = {"C++": joined("capi/include/echotrain", ".hpp"), "Java": joined("bindings/java/src/main/java/io/echotrain", ".java"),
               "C#": joined("bindings/csharp/EchoTrain", ".cs")}
    python = ROOT / "bindings/python/echotrain"
    wrong, seen = [], []
    for line in PAGE.read_text().splitlines():
        if not line.startswith("| `etr_"):
            continue
        c, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        seen += re.findall(r"`(\w+)`", c)
        if len(cells) == 2:  # of the last table, whose last column is the reason
            cells = cells[:1]
        for language, cell in zip(LANGUAGES, cells):
            names = re.findall(r"`([\w.]+)`", cell) if re.fullmatch(r"(`[\w.]+`(, )?)+", cell) else []
            for name in names:
                there = has_python(python, name) if language == "Python" else has_braced(sources[language], name)
                if not there:
                    wrong.append(f"{c}: {language} has no {name}")
            if not cell:
                wrong.append(f"{c}: nothing for {language}")
    functions = functions_of_header()
    wrong += [f"{name}: no row in {PAGE.name}" for name in sorted(functions - set(seen))]
    wrong += [f"{name}: a row, and no such function in {HEADER.name}" for name in sorted(set(seen) - functions)]
    wrong += [f"{name}: {seen.count(name)} rows" for name in sorted(set(seen)) if seen.count(name) > 1]
    for message in wrong:
        print(message)
    print(f"{len(functions)} functions, {len(wrong)} of them wrong")
    return 1 if wrong or len(functions) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
