"""Runs the ten lines of each language's page, so that they stay true: examples.py BUILD PAINTER WORK"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD, PAINTER, WORK = (pathlib.Path(a).resolve() for a in sys.argv[1:])
BINDINGS = BUILD / "bindings"

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


def run(name, *commands, **environment):
    for command in commands:
        done = subprocess.run([str(word) for word in command], cwd=WORK, env=dict(os.environ, **environment),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{name}: {command[0]} failed:\n{done.stdout}")
    if not re.search(r"\d\.\d", done.stdout):
        raise SystemExit(f"{name} printed no loss:\n{done.stdout}")
    print(f"{name}: {done.stdout.split()[-1]}")


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    subprocess.run([PAINTER, WORK / "images/train", "256", "1"], check=True)

    (WORK / "example.cpp").write_text(CPP % ten_lines("c.md", "cpp"))
    run("C++", [os.environ.get("CXX", "c++"), "-std=c++17", "-Wall", "-Werror", f"-I{ROOT}/capi/include", "example.cpp",
                f"-L{BUILD}/capi", "-lechotrain", f"-Wl,-rpath,{BUILD}/capi", "-o", "example"], ["./example"])

    (WORK / "example.py").write_text(ten_lines("python.md", "python"))
    run("Python", [sys.executable, "example.py"], PYTHONPATH=str(BINDINGS / "python"))

    (WORK / "Example.java").write_text(JAVA % ten_lines("java.md", "java"))
    jars = f"{BINDINGS}/java/echotrain.jar:{BINDINGS}/java/echotrain-natives.jar"
    run("Java", ["java", f"-Dechotrain.cache.dir={WORK}/cache", "-cp", jars, "Example.java"])

    (WORK / "Example.cs").write_text(CSHARP % ten_lines("csharp.md", "csharp"))
    run("C#", ["mcs", "-nologo", f"-r:{BINDINGS}/csharp/mono/EchoTrain.dll", "-out:Example.exe", "Example.cs"],
        ["mono", "Example.exe"], MONO_PATH=str(BINDINGS / "csharp/mono"))


if __name__ == "__main__":
    main()
