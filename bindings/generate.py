#!/usr/bin/env python3
"""Writes what the bindings say about stages, layers and optimizers, from the library's own schemas.

    generate.py --library libechotrain.so [--python DIR] [--java DIR] [--csharp DIR] [--markdown DIR]

Python gets type stubs (the functions themselves are made at import), Java and C# get sources; Markdown is
the reference's page of all options. A stage that is added to the runtime appears in all of them with no further edit.
"""

import argparse
import ctypes
import json
import pathlib
import textwrap

KINDS = ("stages", "layers", "models", "optimizers")
TITLES = {"stages": "The stages of a pipeline, with their options.",
          "layers": "The layers of a model, with their options.",
          "models": "The ready-made models, with their options.",
          "optimizers": "The optimizers, with their options.",
          "schedules": "How the learning rate changes over the steps of a run."}


def load(library):
    native = ctypes.CDLL(library)
    schemas = {}
    for kind in KINDS + ("job",):
        text = ctypes.c_char_p()
        if native.etr_schema(kind.encode(), ctypes.byref(text)) != 0:
            native.etr_last_error.restype = ctypes.c_char_p
            raise SystemExit(f"generate.py: {native.etr_last_error().decode()}")
        schemas[kind] = json.loads(text.value)
    # A program's own functions are not named by options; each language has its own way.
    schemas["stages"] = [row for row in schemas["stages"] if row["name"] not in ("map", "source")]
    job = schemas.pop("job")
    schemas["schedules"] = [{"name": "schedule", "options": job["schedule"],
                             "doc": "the learning rate over the steps of a run"}]
    schemas["job"] = [{"name": name, "doc": f"keys of '{name}' in a job", "options": options}
                      for name, options in job.items() if name != "schedule"]
    return schemas


def ordered(options):
    return sorted(options, key=lambda option: not option["required"])


def sentence(text):
    return text[:1].upper() + text[1:] + "."


def details(option):
    """'number of copies (samples; default 1; one of a, b)'"""
    notes = [option["unit"]] if "unit" in option else []
    if "choices" in option:
        notes.append("one of " + ", ".join(option["choices"]))
    notes.append("required" if option["required"] else "default " + json.dumps(option["default"]))
    return f"{option['doc']} ({'; '.join(notes)})"


def camel(name, upper=False):
    parts = name.split("_")
    head = parts[0].capitalize() if upper else parts[0]
    return head + "".join(part.capitalize() for part in parts[1:])


# Python ------------------------------------------------------------------------------------------

PYTHON_TYPES = {"integer": "int", "number": "float", "boolean": "bool", "string": "str",
                "list of numbers": "Numbers", "list of integers": "Integers",
                "list of strings": "Union[str, Sequence[str]]", "list of layers": "Sequence[Layer]",
                "list of stages": "Sequence[Union[Stage, Sequence[Stage]]]"}
PYTHON_CLASSES = {"stages": "Stage", "layers": "Layer", "models": "ReadyModel", "optimizers": "Optimizer",
                  "schedules": "Schedule"}
PYTHON_IMPORTS = ["from typing import Literal, Sequence, TypedDict, Union", "",
                  "from ._schema import Layer, Optimizer, ReadyModel, Schedule, Stage",
                  "from ._types import Integers, Numbers, StrPath", ""]


def python_type(option):
    if "choices" in option:
        return "Literal[" + ", ".join(json.dumps(c) for c in option["choices"]) + "]"
    return "StrPath" if option["type"] == "string" else PYTHON_TYPES[option["type"]]


def python_doc(text, title, options):
    lines = [f'    """{sentence(text)}']
    if options:
        lines += ["", f"    {title}", "    " + "-" * len(title)]
    for option in options:
        lines.append(f"    {option['name']} : {option['type']}")
        lines += textwrap.wrap(details(option), 100, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return lines + ['    """']


def python_functions(kind, rows):
    lines = []
    for row in rows:
        options = ordered(row["options"])
        parameters = ", ".join(f"{o['name']}: {python_type(o)}" + ("" if o["required"] else f" = {o['default']!r}")
                               for o in options)
        lines += [f"def {row['name']}({parameters}) -> {PYTHON_CLASSES[kind]}:"]
        lines += python_doc(row["doc"], "Parameters", options) + ["    ...", ""]
    return lines


def python_stub(title, rows, body):
    names = ", ".join(json.dumps(row["name"]) for row in rows)
    return "\n".join([f'"""{title}"""', "# Written by generate.py from the library's schemas.",
                      "# pyright: reportUnusedImport=false", "", *PYTHON_IMPORTS,
                      f"__all__ = [{names}]", "", *body])


def python_job_stub(schedules, job):
    """The stub of _job.py: its function, and types of the options that functions elsewhere take as keywords."""
    options_of = {row["name"]: row["options"] for row in job}
    loss, *of_loss = options_of["loss"]
    body = python_functions("schedules", schedules) + [f"LossName = {python_type(loss)}", ""]
    for name, doc, options in (("PipelineOptions", "the options of a pipeline", options_of["pipeline"]),
                               ("LossOptions", "the options of a loss", of_loss)):
        body += [f"class {name}(TypedDict, total=False):", *python_doc(doc, "Attributes", options), ""]
        body += [f"    {option['name']}: {python_type(option)}" for option in options] + [""]
    return python_stub("What comes from the schema of a job.", schedules, body)


# Java --------------------------------------------------------------------------------------------

JAVA_TYPES = {"integer": "long", "number": "double", "boolean": "boolean", "string": "String",
              "list of numbers": "double...", "list of integers": "long...",
              "list of strings": "String...", "list of layers": "Spec...", "list of stages": "Spec..."}


def java_source(kind, rows):
    outer = camel(kind, upper=True)
    lines = ["package io.echotrain;", "",
             "// Written by generate.py from the library's schemas.", f"/** {TITLES[kind]} */",
             f"public final class {outer} {{", f"  private {outer}() {{}}"]
    for row in rows:
        required = [o for o in ordered(row["options"]) if o["required"]]
        optional = [o for o in row["options"] if not o["required"]]
        name, type_name = camel(row["name"]), camel(row["name"], upper=True)
        types = [JAVA_TYPES[o["type"]] for o in required]
        types = [t.replace("...", "[]") for t in types[:-1]] + types[-1:]
        parameters = ", ".join(f"{t} {camel(o['name'])}" for t, o in zip(types, required))
        lines += ["", f"  /** {sentence(row['doc'])}"]
        lines += [f"   * @param {camel(o['name'])} {details(o)}" for o in required]
        lines += ["   */", f"  public static {type_name} {name}({parameters}) {{",
                  f"    {type_name} spec = new {type_name}();"]
        lines += [f"    spec.set(\"{o['name']}\", {camel(o['name'])});" for o in required]
        lines += ["    return spec;", "  }", "",
                  f"  /** {sentence(row['doc'])} */",
                  f"  public static final class {type_name} extends Spec {{",
                  f"    private {type_name}() {{ super(\"{kind}\", \"{row['name']}\"); }}"]
        for o in optional:
            lines += ["", f"    /** {sentence(details(o))} */",
                      f"    public {type_name} {camel(o['name'])}({JAVA_TYPES[o['type']]} value) {{",
                      f"      set(\"{o['name']}\", value);", "      return this;", "    }"]
            if "former" in o:
                lines += ["", f"    /** @deprecated Use {{@link #{camel(o['name'])}}}. */", "    @Deprecated",
                          f"    public {type_name} {camel(o['former'])}({JAVA_TYPES[o['type']]} value) {{",
                          f"      return {camel(o['name'])}(value);", "    }"]
        lines += ["  }"]
    return "\n".join(lines + ["}", ""])


# C# ----------------------------------------------------------------------------------------------

CSHARP_TYPES = {"integer": "long", "number": "double", "boolean": "bool", "string": "string",
                "list of numbers": "double[]", "list of integers": "long[]",
                "list of strings": "string[]", "list of layers": "Spec[]", "list of stages": "Spec[]"}


def xml(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def csharp_optional(name, type_name):
    """Returns the parameter of an option that may be left out, and the statement that sets it."""
    parameter, kind_of = "@" + camel(name), CSHARP_TYPES[type_name]
    is_reference = kind_of == "string" or kind_of.endswith("[]")
    nullable, value = ("", parameter) if is_reference else ("?", f"{parameter}.Value")
    return (f"{kind_of}{nullable} {parameter} = null",
            f"            if ({parameter} != null) spec.Set(\"{name}\", {value});")


def csharp_source(kind, rows):
    lines = ["// Written by generate.py from the library's schemas.", "namespace EchoTrain", "{",
             f"    /// <summary>{TITLES[kind]}</summary>",
             f"    public static class {camel(kind, upper=True)}", "    {"]
    for row in rows:
        parameters, body = [], []
        lines += [f"        /// <summary>{xml(sentence(row['doc']))}</summary>"]

        def add(doc, name, parameter, statement):
            lines.append(f"        /// <param name=\"{camel(name)}\">{doc}</param>")
            parameters.append(parameter)
            body.append(statement)

        for o in ordered(row["options"]):
            name = "@" + camel(o["name"])
            add(xml(details(o)), o["name"], *(
                (f"{CSHARP_TYPES[o['type']]} {name}", f"            spec.Set(\"{o['name']}\", {name});")
                if o["required"] else csharp_optional(o["name"], o["type"])))
        for o in row["options"]:
            if "former" in o and not o["required"]:
                add(f"the former name of {camel(o['name'])}", o["former"],
                    *csharp_optional(o["former"], o["type"]))
        lines += [f"        public static Spec {camel(row['name'], upper=True)}({', '.join(parameters)})",
                  "        {", f"            var spec = new Spec(\"{kind}\", \"{row['name']}\");"]
        lines += body + ["            return spec;", "        }", ""]
    return "\n".join(lines + ["    }", "}", ""])


# Markdown ----------------------------------------------------------------------------------------


def markdown_page(schemas):
    lines = ["# Options", "",
             "Stages, layers, models, optimizers and the other keys of a job, with their options, as a job file and every language know them. "
             "From the library's schemas.", ""]
    for kind, rows in schemas.items():
        lines += [f"## {kind.capitalize()}", ""]
        for row in rows:
            lines += [f"### {row['name']}", "", sentence(row["doc"]), ""]
            if not row["options"]:
                continue
            lines += ["| option | type | default | meaning |", "|---|---|---|---|"]
            for o in ordered(row["options"]):
                choices = ": " + ", ".join(f"`{c}`" for c in o["choices"]) if "choices" in o else ""
                unit = f" ({o['unit']})" if "unit" in o else ""
                default = "required" if o["required"] else f"`{json.dumps(o['default'])}`"
                meaning = o["doc"].replace("\\", "\\\\").replace("|", "\\|")
                lines.append(f"| `{o['name']}` | {o['type']}{choices} | {default} | {meaning}{unit} |")
            lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--python")
    parser.add_argument("--java")
    parser.add_argument("--csharp")
    parser.add_argument("--markdown")
    arguments = parser.parse_args()
    schemas = load(arguments.library)
    if arguments.markdown:
        write(arguments.markdown, "options.md", markdown_page(schemas))
    if arguments.python:
        write(arguments.python, "_job.pyi", python_job_stub(schemas["schedules"], schemas["job"]))
    for kind, rows in schemas.items():
        if kind == "job":  # a job is a document in every language
            continue
        if arguments.python and kind in KINDS:
            write(arguments.python, f"{kind}.pyi", python_stub(TITLES[kind], rows, python_functions(kind, rows)))
        if arguments.java:
            write(arguments.java, f"{camel(kind, upper=True)}.java", java_source(kind, rows))
        if arguments.csharp:
            write(arguments.csharp, f"{camel(kind, upper=True)}.cs", csharp_source(kind, rows))


def write(folder, name, text):
    path = pathlib.Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
