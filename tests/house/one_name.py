"""Fails if two files that a unity build compiles together have functions or types of one name in their anonymous namespaces: where
the parameters differ, this is no error, and a call may silently mean the other file's function. one_name.py BUILD"""

import collections
import pathlib
import re
import sys

ANONYMOUS = re.compile(r"^namespace \{\n(.*?)^\}  // namespace\n", re.MULTILINE | re.DOTALL)
NO_RETURN_TYPE = r"(?!return|else|if|for|while|switch|TEST|INSTANTIATE|EXPECT|ASSERT|using|static_assert)"
FUNCTION = re.compile(rf"^{NO_RETURN_TYPE}[A-Za-z_][\w:<>,&*\s]*?[ *&](\w+)\(", re.MULTILINE)
TYPE = re.compile(r"^(?:struct|class|enum class) (\w+)", re.MULTILINE)


def names_of(path):
    for body in ANONYMOUS.findall(path.read_text()):
        yield from FUNCTION.findall(body)
        yield from TYPE.findall(body)


def main():
    # Not those of other builds, which tests make in folders of their own.
    groups = [path for path in sorted(pathlib.Path(sys.argv[1]).glob("**/Unity/unity_*_cxx.cxx")) if "-work/" not in str(path)]
    if not groups:
        print("one_name: this build compiles every file alone")
        return 77
    twice, known = [], 0
    for group in groups:
        files = collections.defaultdict(set)
        for name in re.findall(r'#include "([^"]+)"', group.read_text()):
            for found in names_of(pathlib.Path(name)):
                files[found].add(name)
        known += len(files)
        twice += [f"'{name}' is defined by {' and '.join(sorted(where))}" for name, where in files.items() if len(where) > 1]
    print(f"{len(groups)} groups of files, {known} names")
    assert known > 100, "almost no names were found: does this script still know how they are written?"
    if twice:
        print("give one of them another name:", *twice, sep="\n")
    return bool(twice)


sys.exit(main())
