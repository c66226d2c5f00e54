"""Turns the headers' plain comments into those that Doxygen reads: the file's own, those before a declaration, and
those behind a member."""

import re
import sys

out = []
for line in open(sys.argv[1], encoding="utf-8"):
    line = line.rstrip("\n")
    code, slash, comment = line.partition("// ") if sys.argv[1].endswith(".hpp") else (line, "", "")
    if slash:
        line = code + ("///< " if code.strip() else "/// ") + comment
    elif re.match(r"^\s*/\*(?!\*| ----)", line):
        line = line.replace("/*", "/**", 1)
    elif re.search(r"\S.*/\* ", line):
        line = line.replace("/* ", "/**< ", 1)
    if not out:
        line = line.replace("/** ", "/** @file\n * ", 1).replace("/// ", "/// @file\n/// ", 1)
    out.append(line)
print("\n".join(out))
