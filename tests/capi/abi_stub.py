"""Turns echotrain.h into C functions with empty bodies, for abidw: the C ABI without what is inside.

    abi_stub.py HEADER > stub.c
"""

import re
import sys

text = open(sys.argv[1], encoding="utf-8").read()
text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
print('#include "echotrain/echotrain.h"')
for declaration in re.findall(r"ETR_API\s+([^;]+);", text):
    declaration = " ".join(declaration.split())
    result = declaration.split("(")[0].rsplit(" ", 1)[0]
    body = "" if result == "void" else " return 0; "
    print(f"{declaration} {{{body}}}")
