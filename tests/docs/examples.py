"""Runs the ten lines of each language's page, so that they stay true: examples.py BUILD PAINTER WORK"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

CPP = """#include <echotrain/echotrain.hpp>
#include <cstdio>
int main() {
%s
}
"""
JAVA = """import io.echotrain.*;
public final class Example {
  public static void main(String[] arguments) {
%s
  }
}
"""
CSHARP = """using System;
using EchoTrain;
public static class Example
{
    public static void Main()
    {
%s
    }
}
"""


def ten_lines(page, language):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.search(r"## Ten lines[^\n]*\n\n```" + language + r"\n(.*?)```", text, re.DOTALL)
    if not found:
        raise SystemExit(f"docs/{page} has no ten lines of {language}")
    return found.group(1)


def run(work, name, *commands, **environment):
    for command in commands:
        done = subprocess.run([str(word) for word in command], cwd=work, env=dict(os.environ, **environment),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{name}: {command[0]} failed:\n{done.stdout}")
    if not re.search(r"\d\.\d", done.stdout):
        raise SystemExit(f"{name} printed no loss:\n{done.stdout}")
    print(f"{name}: {done.stdout.split()[-1]}")


def mono_lines():
    """Those of csharp.md that compile and run the sample without a package."""
    text = (ROOT / "docs/csharp.md").read_text(encoding="utf-8")
    return re.search(r"```sh\n(mcs .*?)```", text, re.DOTALL).group(1)


def main():
    build, painter, work = (pathlib.Path(a).resolve() for a in sys.argv[1:])
    bindings = build / "bindings"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "samples").symlink_to(ROOT / "samples")
    (work / "build").symlink_to(build)
    subprocess.run([painter, work / "images/train", "256", "1"], check=True)

    (work / "example.cpp").write_text(CPP % ten_lines("c.md", "cpp"))
    run(work, "C++", [os.environ.get("CXX", "c++"), "-std=c++17", "-Wall", "-Wextra", "-Wshadow", "-Wpedantic", "-Werror", f"-I{ROOT}/capi/include", "example.cpp",
                f"-L{build}/capi", "-lechotrain", f"-Wl,-rpath,{build}/capi", "-o", "example"], ["./example"])

    (work / "example.py").write_text(ten_lines("python.md", "python"))
    run(work, "Python", [sys.executable, "example.py"], PYTHONPATH=str(bindings / "python"))

    (work / "Example.java").write_text(JAVA % ten_lines("java.md", "java"))
    jars = f"{bindings}/java/echotrain.jar:{bindings}/java/echotrain-natives.jar"
    run(work, "Java", ["java", f"-Dechotrain.cache.dir={work}/cache", "-cp", jars, "Example.java"])

    (work / "Example.cs").write_text(CSHARP % ten_lines("csharp.md", "csharp"))
    run(work, "C#", ["mcs", "-nologo", f"-r:{bindings}/csharp/mono/EchoTrain.dll", "-out:Example.exe", "Example.cs"],
        ["mono", "Example.exe"], MONO_PATH=str(bindings / "csharp/mono"))
    run(work, "C#'s sample", ["bash", "-ec", mono_lines().replace("FOLDER", "images/train")])


if __name__ == "__main__":
    main()
