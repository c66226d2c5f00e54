"""Fails if a file names another version than CMakeLists.txt, or another name of the library. Prints what to change."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Every place that cannot ask CMake: each pattern must match, and each match must be the version.
VERSIONS = {
    "pyproject.toml": r'^version = "(.*)"',
    "bindings/java/pom.xml": r"<artifactId>echotrain</artifactId>\s*<version>(.*)</version>",
    "samples/java/pom.xml": r"<artifactId>echotrain</artifactId>\s*<version>(.*)</version>",
    "bindings/csharp/EchoTrain.csproj": r"<Version>(.*)</Version>",
    "bindings/csharp/EchoTrain.nuspec": r"<version>(.*)</version>",
    "capi/include/echotrain/echotrain.h": r'library\'s version, such as "(.*)"',
    "docs/java.md": r"<artifactId>echotrain</artifactId><version>(.*?)</version>",
    "docs/csharp.md": r"EchoTrain\.(\d+\.\d+\.\d+)\.nupkg",
    "docs/reference/Doxyfile": r"^PROJECT_NUMBER *= (.*)",
    "docs/site/mkdocs.yml": r"copyright: EchoTrain (\d+\.\d+\.\d+)",
    "docs/c.md": r"the package `echotrain/(.*?)`",
    "packaging/vcpkg/ports/echotrain/vcpkg.json": r'"version": "(.*)"',
    "tests/capi/capi_test.cpp": r'etr_version\(\), "(.*)"',
    "CHANGELOG.md": r"\A# [^\n]*\n+(?:[^#][^\n]*\n+)*## (\d+\.\d+\.\d+)",
}
HEADER = {"ETR_VERSION_MAJOR": 0, "ETR_VERSION_MINOR": 1, "ETR_VERSION_PATCH": 2}
# The library's name contains the part of the version that says what is compatible.
NAMES = {
    "bindings/java/src/main/java/io/echotrain/Natives.java": r'"libechotrain-(.*?)\.dll" : "libechotrain\.so\.\1"',
    "bindings/csharp/EchoTrain.csproj": r"libechotrain\.so\.([\d.]+)",
    "tests/bindings/nuget.cmake": r"libechotrain\.so\.([\d.]+)",
    "tests/bindings/schema_shim.c": r'libechotrain\.so\.(.*?)"',
    "capi/echotrain.abi": r"soname='libechotrain\.so\.(.*?)'",
    "docs/c.md": r"libechotrain-(.*?)\.dll",
    "docs/compatibility.md": r"now `libechotrain\.so\.(.*?)`",
}


def main():
    version = re.search(r"project\(echotrain VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    parts = version.split(".")
    abi = parts[0] if parts[0] != "0" else ".".join(parts[:2])
    wrong = []

    def check(file, pattern, expected):
        found = re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)
        if not found:
            wrong.append(f"{file}: nothing matches {pattern}")
        wrong.extend(f"{file}: {text!r}, not {expected!r} ({pattern})" for text in found if text != expected)

    for file, pattern in VERSIONS.items():
        check(file, pattern, version)
    for name, place in HEADER.items():
        check("capi/include/echotrain/echotrain.h", rf"#define {name} (\d+)", parts[place])
    for file, pattern in NAMES.items():
        check(file, pattern, abi)
    print("\n".join(wrong) or f"{len(VERSIONS) + len(HEADER) + len(NAMES)} places agree with version {version}, ABI {abi}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
