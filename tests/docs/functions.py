#!/usr/bin/env python3
"""Compares docs/reference/functions.md with the C header, and with the sources of the four other languages: every function has a
row, and every name that the page gives for a language is there: `Class.member`, a function, an argument (`Class(argument)`), or a
string in quotation marks. A class alone stands for its constructor only. So do the structs that functions fill in or take: each of
their fields is in each language.
"""

import ast
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = ROOT / "capi/include/echotrain/echotrain.h"
PAGE = ROOT / "docs/reference/functions.md"
LANGUAGES = ("C++", "Python", "Java", "C#")

# Functions that make an object, for which a language may have a constructor.
CONSTRUCTOR = re.compile(r"_create(_from_\w+|_shared)?$|_load$|_parse$|_start(_with_engine)?$")
# Functions for which a language may have a type instead of a function.
GIVEN_BY_TYPES = {
    "etr_last_error": "exceptions carry the message",
    "etr_log_subject": "C++ passes the subject to the log function",
}
# Cells that name nothing to look for.
WORDS = {"an exception", "keyword arguments", "the logger's name"}
NAME = r"[\w.]+(?:\[\])?(?:\(\w+\))?"

# Structs that the program fills in. Their fields are members of a struct in C++, arguments in Python, setters in Java and properties
# that can be set in C#.
TAKEN = {"etr_runtime_options"}
# Structs without a row.
NOT_COMPARED = {
    "etr_vulkan_device": "only in C and C++, which has the struct itself",
    "etr_vulkan_buffer": "only in C and C++, which has the struct itself",
    "etr_tensor": "a view of memory, for which each language has types of its own",
}
# Fields that a language does not have on purpose. The page says so, too.
NO_VULKAN = "programs of this language do not use Vulkan themselves"
MISSING = {
    ("etr_device_info", "api_major", "Python"): NO_VULKAN,
    ("etr_device_info", "api_major", "Java"): NO_VULKAN,
    ("etr_device_info", "api_major", "C#"): NO_VULKAN,
    ("etr_device_info", "api_minor", "Python"): NO_VULKAN,
    ("etr_device_info", "api_minor", "Java"): NO_VULKAN,
    ("etr_device_info", "api_minor", "C#"): NO_VULKAN,
    ("etr_device_info", "subgroup_size", "Python"): NO_VULKAN,
    ("etr_device_info", "subgroup_size", "Java"): NO_VULKAN,
    ("etr_device_info", "subgroup_size", "C#"): NO_VULKAN,
    ("etr_batch_info", "fields", "Python"): "it is len(batch): a batch is a mapping",
    ("etr_eval_result", "samples", "Python"): "evaluate() returns a dict of metrics",
    ("etr_runtime_options", "device", "Java"): "it is the first argument of Device",
    ("etr_runtime_options", "device", "C#"): "it is the first argument of Device",
}
# Fields with another name.
RENAMED = {
    ("etr_step_result", "step", "C#"): "Number",  # C# allows no member with the name of its class
}


def functions_of_header():
    declarations = re.findall(r"(ETR_DEPRECATED\([^)]*\)\s*)?ETR_API\s[^;]*?\b(etr_\w+)\(", HEADER.read_text())
    return {name for deprecated, name in declarations
            if not deprecated and not re.search(r"_destroy$|^etr_string_free$|^etr_options_set_", name)}


def structs_of_header():
    """The structs of the header, unless they are opaque, with the names of their fields; none for NOT_COMPARED."""
    structs = {}
    for name, body in re.findall(r"typedef struct (etr_\w+) \{(.*?)\n\}", without_comments(HEADER.read_text()), re.DOTALL):
        declarators = [] if name in NOT_COMPARED else re.split("[;,]", body)
        fields = [re.search(r"(\w+)(\[\w+\])?$", declarator.strip()).group(1) for declarator in declarators if declarator.strip()]
        structs[name] = [field for field in fields if field not in ("struct_size", "reserved")]
    return structs


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
    name, _, argument = name.rstrip(")").partition("(")
    *classes, last = name.split(".")
    for scope in classes:
        text = body_of(text, scope)
        if text is None:
            return False
    if argument:
        return bool(re.search(rf"\b{last}\((?:[^()]|\([^()]*\))*\b{argument}\s*[,)=]", text))
    if body_of(text, last) is not None:
        return True
    last = re.escape(last)
    return bool(re.search(rf"(?:[\w>\]&*?]\s+|[*&]){last}\s*(?:<\w+>)?\s*(?:\(|=>|;|\{{|\n\s*\{{|$)", text, re.MULTILINE))


def is_type(text, name):
    """Whether `name` is a class, struct or enum in sources of C++, Java or C#."""
    for scope in name.split("."):
        text = body_of(text or "", re.escape(scope))
    return text is not None


def field_given(name):
    """What gives a field in Java or C#: a public field or property `name`, or a method without arguments."""
    return rf"public\s+(?:(?:final|synchronized|readonly)\s+)*[\w<>\[\].]+\s+{name}\s*(?:;|=>|\(\)\s*\{{|\{{\s*get\b)"


def field_taken(language, name):
    """What takes a field: a member in C++, a method with one argument in Java, a property that can be set in C#."""
    return {"C++": rf"[\w>,]\s+{name}\s*(?:=[^;,]*)?[;,]",
            "Java": rf"public\s+[\w.]+\s+{name}\(\w+\s+\w+\)\s*\{{",
            "C#": rf"public\s+[\w?]+\s+{name}\s*\{{\s*get;\s*set;\s*\}}"}[language]


def has_braced_field(text, scopes, pattern):
    """Whether a class of C++, Java or C# has a member that matches `pattern`."""
    member = re.compile(pattern)
    for scope in scopes:
        body = text
        for part in scope.split("."):
            body = body_of(body or "", part)
        if body is not None and member.search(body):
            return True
    return False


def has_python_field(folder, scopes, name):
    """Whether a class has an attribute `name`, or a function returns a dict with this key."""
    for scope in scopes:
        nodes = trees(folder)
        for part in scope.split("."):
            nodes = [child for node in nodes for child in node.body
                     if isinstance(child, (ast.ClassDef, ast.FunctionDef)) and child.name == part]
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                names = {child.target.id for child in node.body if isinstance(child, ast.AnnAssign)}
                names |= {child.name for child in node.body if isinstance(child, ast.FunctionDef)}
            else:
                names = {key.value for child in ast.walk(node) if isinstance(child, ast.Return) and isinstance(child.value, ast.Dict)
                         for key in child.value.keys if isinstance(key, ast.Constant)}
            if name in names:
                return True
    return False


def has_python_argument(folder, scopes, name):
    """Whether the constructor of a class takes an argument `name`."""
    for scope in scopes:
        for node in (child for tree in trees(folder) for child in tree.body if isinstance(child, ast.ClassDef) and child.name == scope):
            if name in arguments_of(node):
                return True
    return False


def written(language, name):
    """The name of a C field as a language writes it."""
    first, *others = name.split("_")
    words = "".join(word.capitalize() for word in others)
    return {"Java": first + words, "C#": first.capitalize() + words}.get(language, name)


def wrong_fields(struct, fields, scopes, sources, python):
    """What the languages lack of a struct; `scopes` has the names of their classes."""
    is_taken = struct in TAKEN
    for language in LANGUAGES:
        if language == "C++" and not is_taken:  # has the C struct itself
            if not re.search(rf"\b{struct}\b", sources["C++"]):
                yield f"{struct}: C++ has no function that gives it"
            continue
        for field in fields:
            name = RENAMED.get((struct, field, language)) or written(language, field)
            if language == "Python":
                there = (has_python_argument if is_taken else has_python_field)(python, scopes[language], name)
            else:
                pattern = field_taken(language, name) if is_taken else field_given(name)
                there = has_braced_field(sources[language], scopes[language], pattern)
            if not there and (struct, field, language) not in MISSING:
                yield f"{struct}.{field}: {language} has no {name} in {', '.join(scopes[language])}"
            if there and (struct, field, language) in MISSING:
                yield f"{struct}.{field}: {language} has it; MISSING says that it has not"


def python_names(node):
    for child in node.body:
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            yield child.name, child
        elif isinstance(child, ast.Assign):
            yield from ((target.id, child) for target in child.targets if isinstance(target, ast.Name))
        elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            yield child.target.id, child


def arguments_of(node):
    """The names of the arguments of a function, or of the constructor of a class."""
    if isinstance(node, ast.ClassDef):
        node = dict(python_names(node)).get("__init__")
    return {argument.arg for argument in node.args.args + node.args.kwonlyargs} if isinstance(node, ast.FunctionDef) else set()


def has_python(folder, name):
    name, _, argument = name.rstrip(")").partition("(")
    if argument:
        nodes = trees(folder)
        for part in name.split("."):
            nodes = [child for node in nodes for found, child in python_names(node) if found == part]
        return any(argument in arguments_of(node) for node in nodes)
    module, _, rest = name.partition(".")
    if (folder / f"{module}.py").exists() and not any(module in dict(python_names(tree)) for tree in trees(folder)):
        return not rest or has_python_in([ast.parse((folder / f"{module}.py").read_text())], rest.split("."))
    return has_python_in(trees(folder), name.split("."))


@functools.lru_cache(maxsize=None)
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


def is_python_type(folder, name):
    """Whether `name` is a class, or a module."""
    module, _, rest = name.partition(".")
    if (folder / f"{module}.py").exists():
        return not rest or rest in {child.name for child in ast.parse((folder / f"{module}.py").read_text()).body
                                    if isinstance(child, ast.ClassDef)}
    return any(isinstance(child, ast.ClassDef) and child.name == name for tree in trees(folder) for child in tree.body)


def wrong_cell(functions, language, cell, sources, python):
    """What is wrong with the cell of a language in the row of `functions`."""
    if cell in WORDS:
        return
    names, strings = re.findall(rf"`({NAME})`", cell), re.findall(r'"([^"]*)"', cell)
    if not re.fullmatch(rf"(`{NAME}`(, )?)+", cell) and not strings:
        yield f"'{cell}' names nothing to compare" if cell else "nothing"
        return
    for name in strings:
        if not re.search(rf"""["']{re.escape(name)}["']""", sources[language]):
            yield f'no "{name}"'
    for name in names if not strings else ():
        if not (has_python(python, name) if language == "Python" else has_braced(sources[language], name)):
            yield f"no {name}"
    if all(CONSTRUCTOR.search(function) or function in GIVEN_BY_TYPES for function in functions) or strings:
        return
    if all(is_python_type(python, name) if language == "Python" else is_type(sources[language], name) for name in names):
        yield f"{cell} is a type; name the member, or the argument as in `Model(loss)`"


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def main():
    def joined(folder, suffix):
        return "\n".join(without_comments(path.read_text()) for path in sorted((ROOT / folder).glob(f"*{suffix}")))

    sources = {"C++": joined("capi/include/echotrain", ".hpp"),
               "Python": joined("bindings/python/echotrain", ".py"),
               "Java": joined("bindings/java/src/main/java/io/echotrain", ".java"),
               "C#": joined("bindings/csharp/EchoTrain", ".cs")}
    python = ROOT / "bindings/python/echotrain"
    structs = structs_of_header()
    wrong, seen, compared = [], [], []
    for line in PAGE.read_text().splitlines():
        if not line.startswith("| `etr_"):
            continue
        c, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall(r"`(\w+)`", c)
        if names[0] in structs:
            scopes = {language: re.findall(r"`([\w.]+)`", cell) for language, cell in zip(LANGUAGES, cells)}
            wrong += wrong_fields(names[0], structs[names[0]], scopes, sources, python)
            compared += names
            continue
        seen += names
        if len(cells) == 2:  # of the last table, whose last column is the reason
            cells = cells[:1]
        for language, cell in zip(LANGUAGES, cells):
            wrong += [f"{c}: {language}: {message}" for message in wrong_cell(names, language, cell, sources, python)]
    functions = functions_of_header()
    wrong += [f"{name}: no row in {PAGE.name}" for name in sorted(functions - set(seen))]
    wrong += [f"{name}: a row, and no such function in {HEADER.name}" for name in sorted(set(seen) - functions)]
    wrong += [f"{name}: {seen.count(name)} rows" for name in sorted(set(seen)) if seen.count(name) > 1]
    wrong += [f"{name}: no row in {PAGE.name}" for name in sorted(set(structs) - set(compared) - set(NOT_COMPARED))]
    wrong += [f"{name}: a row, and NOT_COMPARED has it, too" for name in sorted(set(compared) & set(NOT_COMPARED))]
    known = {(struct, field) for struct, fields in structs.items() for field in fields}
    wrong += [f"{struct}.{field}: an exception for {language}, and no such field in {HEADER.name}"
              for struct, field, language in [*MISSING, *RENAMED] if (struct, field) not in known]
    for message in wrong:
        print(message)
    print(f"{len(functions)} functions, {sum(len(structs[name]) for name in compared)} fields of {len(compared)} structs; {len(wrong)} wrong")
    return 1 if wrong or len(functions) < 100 or len(compared) < 7 else 0


if __name__ == "__main__":
    sys.exit(main())
