#!/usr/bin/env python3
"""Checks every code block of the repository's pages, except those of the folders that tutorials.py runs:
blocks.py [--longer] BUILD WORK [PAGE.md...]

    ```sh            run, after every command, option, file, test, target and setting that it names has been looked up
                     (shell.py); so is a block without a language that begins with '$ COMMAND', of which the rest is output
    ```text          compared with the output of the block before
    ```json, jsonc   loaded as a job or a study by the library; what is only a part of one is put into a small one
    ```python        run, with small data. Names that the page's text introduces are those of FIXTURES
    ```c             compiled, as the body of a function with the variables of VARIABLES, unless it is a function itself
    ```powershell    every command of ours, and that no other is unknown
    ```xml, cmake    compared with the files of the repository that build or test the same

Each page has a folder of its own, with the files of prepare(): images/train, shards/train, job.json, study.json, the data of the
sample jobs in `data` (PLACES), and links to the repository's folders and, as `build` and `build-test`, to what is in BUILD. A page
with the line <!-- after: OTHER.md --> goes on in the folder of that one.

A comment in front of a block (<!-- ... -->) says more, in addition to those of tutorials.py:

    longer                     the block takes long: it is run with --longer, which runs nothing else
    run by: FILE               a test runs the block: FILE, which reads it from the page
    run beside the next one    it is run at the same time as the next block of sh
    run twice                  by two processes, at the same time
    not run: WHY               what a block of sh or powershell names is only looked up; so is Python; a block without a language is no
                               code. `NAMES` of files and tests in WHY are looked up, too
    not compared: WHY          the output behind '$ COMMAND', or a block of text, is not compared

A block that is not run is counted, and its reason printed; one that lacks what it needs (<!-- needs: NAME -->) is SKIPPED, which
tests/run.sh reports. COVERED names the blocks in other languages that another test runs. Code in the text is looked up as in tutorials.
"""

import ast
import builtins
import collections
import inspect
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

import small_data
import tutorials
from shell import FOLDERS, Checker, commands_of
from tutorials import ROOT, Block, Fault

PAGES = [*sorted(ROOT.glob("*.md")), *sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")
                                             if path.parent.name not in ("tutorials", "migration"))]
COVERED = {("docs/c.md", "cpp"): "examples.py", ("docs/python.md", "python"): "examples.py", ("docs/java.md", "java"): "examples.py",
           ("docs/csharp.md", "csharp"): "examples.py"}
PLACES = {"/path/to/cifar10-shards": "data", "/path/to/tinyshakespeare": "data", "/path/to/input.txt": "data/input.txt"}
POWERSHELL = ("Expand-Archive", "py", "python")  # others' commands

JOB = {"pipeline": {"stages": [{"stage": "folder", "root": "images/train"}, {"stage": "label"}, {"stage": "decode", "channels": "gray"},
                               {"stage": "batch", "size": 16}, {"stage": "normalize"}]},
       "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 24, "activation": "relu"}, {"layer": "dense", "units": 10}]},
       "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.02}, "train": {"epochs": 1}, "output": {"dir": ""}}
STUDY = {"job": {**JOB, "vars": {"batch": 16, "data": "shards"}, "evaluation": {"pipeline": JOB["pipeline"]}},
         "set": ["pipeline.stages.3.size=${batch}"], "goal": {"metric": "loss"}, "budget": {"steps": 2}, "evaluate": {"every_steps": 2},
         "search": {"trials": 1, "space": {"schedule.learning_rate": {"values": [0.01, 0.02]}}}, "for": {"batch": [16]},
         "conditions": [{"labels": {"rule": "tuned"}}]}
# Names as in PyTorch's file of a ResNet-18.
ONNX = """
import echotrain as et, numpy as np
layers = [et.layers.conv2d(4, name="conv1"), et.layers.batch_norm(name="bn1"), et.layers.conv2d(4, name="layer1"), et.layers.flatten(),
          et.layers.dense(8, name="flatten"), et.layers.dense(10)]
trainer = et.Trainer(et.Model(layers), et.optimizers.sgd(), 0.1)
trainer.step({"image": np.zeros((2, 8, 8, 3), np.float32), "label": np.zeros(2, np.int32)})
trainer.export_onnx("resnet18.onnx")
"""

FIXTURES = {
    "et": "import echotrain as et",
    "my_function": "my_function = lambda sample: sample",
    "x": "import numpy as np; x = np.ones((4, 3), np.float32)",
    "target": "import numpy as np; target = np.zeros((4, 2), np.float32)",
    "trainer": "import echotrain as et; trainer = et.Trainer(et.Model([et.layers.dense(2)], inputs='x'), et.optimizers.sgd(), 0.01)",
    "MPI": "import types; MPI = types.SimpleNamespace(IN_PLACE=None, SUM=1, MIN=2, MAX=3, BYTE=4, COMM_WORLD=types.SimpleNamespace("
           "Get_rank=lambda: 0, Get_size=lambda: 1, Allreduce=lambda *a: None, Bcast=lambda *a: None, Split=lambda *a: MPI.COMM_WORLD,"
           "Allgatherv=lambda part, all: all[0].__setitem__(slice(None), part)))",
}
VARIABLES = """
  etr_pipeline* pipeline; etr_runtime* runtime; etr_trainer* trainer; etr_batch* batch; etr_model* model; etr_optimizer* optimizer;
  const char* spec = 0; uint64_t seed = 1; int32_t status; etr_step_result result;
"""


# What is done with what a block defines.
USES = {"prelu": "import numpy as np; et.Trainer(et.Model([et.layers.dense(64), prelu, et.layers.dense(2)], inputs='x'), et.optimizers.sgd(), "
                 "0.01).step({'x': np.ones((4, 3), np.float32), 'label': np.zeros(4, np.int32)})"}


def at_line(fault, line):
    fault.line = line
    return fault


def times():
    """Of the clock, and of the processors for what has been run."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic(), used.ru_utime + used.ru_stime


class GuideBlock(Block):
    MARKS = (*Block.MARKS, "longer", "run beside the next one", "run twice", "not compared: ")

    def __init__(self, *arguments):
        super().__init__(*arguments)
        runs = self.language == "sh" or self.language == "" and self.text.startswith("$ ")
        for mark in self.marks:
            if not runs and mark.startswith(("longer", "run ")) or self.language not in ("text", "") and mark.startswith("not compared"):
                raise Fault(f"line {self.line}: a block of '{self.language}' cannot be marked '{mark}'")
        if sum(self.marked(mark) for mark in ("longer", "run by: ", "run beside", "not run: ")) > 1:
            raise Fault(f"line {self.line}: how the block is run, is said twice")


class Jobs:
    """Loads jobs and studies, as `echotrain` does, in a folder with small data."""

    def __init__(self, et, work):
        self.et, self.work = et, work
        (work / "job.json").write_text(json.dumps(JOB))
        (work / "study.json").write_text(json.dumps(STUDY))

    def load(self, kind, name, settings):
        """Loads a "Job" or a "Study". Variables that have no value get one."""
        path = ROOT / name if (ROOT / name).is_file() else self.work / name
        if not path.is_file():
            raise Fault(f"there is no {name}, neither in the repository nor on an earlier page")
        unset = {name: "x" for name, value in json.loads(path.read_text()).get("vars", {}).items() if value is None}
        settings = dict(setting.partition("=")[::2] for setting in settings)
        try:
            getattr(self.et, kind)(path, {**unset, **settings})
        except (self.et.EchoTrainError, ValueError) as error:
            raise Fault(str(error)) from error

    def check(self, value, variables):
        """Loads what `value` is a part of."""
        rows = value if isinstance(value, list) else [value]
        if not rows or not isinstance(rows[0], dict):
            raise Fault("neither a job nor a study nor a part of one")
        keys = set(rows[0])
        if "conditions" in keys or "labels" in keys:
            study = value if "conditions" in keys else {**STUDY, "conditions": [*STUDY["conditions"], value]}
            (self.work / "studies/block.json").write_text(json.dumps(study))
            return self.load("Study", "studies/block.json", ["data=x"] if isinstance(study.get("job"), str) else [])
        if "stages" in keys:
            job = {**JOB, "pipeline": value}
        elif "stage" in keys:
            first = [] if self.is_source(rows[0]) else JOB["pipeline"]["stages"][:2]
            job = {**JOB, "pipeline": {"stages": first + rows}}
        elif "layer" in keys:
            job = {**JOB, "model": {"layers": rows}}
        else:
            named = next((key for key in ("model", "optimizer", "schedule") if isinstance(value.get(key), str)), None)
            job = {**JOB, **({named: value} if named else value)}
        (self.work / "block.json").write_text(json.dumps({"vars": variables, **job}))
        self.load("Job", "block.json", [])

    def is_source(self, stage):
        try:
            self.et.Pipeline.from_json({"stages": [stage]})
        except self.et.EchoTrainError as error:
            return "a pipeline has one source" not in str(error)
        return True


class Page:
    def __init__(self, path, checker, jobs, variables, longer):
        self.path, self.checker, self.jobs, self.variables, self.longer = path, checker, jobs, variables, longer
        self.name = str(path.relative_to(ROOT))
        self.text = path.read_text(encoding="utf-8")
        self.faults, self.done = [], collections.Counter()
        self.unrun, self.skipped = [], []  # (line, why)
        # Scripts to run beside the next one, and the output of the block before: None without one, False if it was not run.
        self.beside, self.ran = [], None

    def check(self):
        blocks = []
        try:
            blocks = tutorials.parse(self.text, kind=GuideBlock)
            if not self.longer:
                tutorials.look_up(self.text, self.path, self.variables, self.checker.echotrain)
        except Fault as fault:
            self.faults.append(f"{self.name}: {fault}")
        for block in blocks:
            try:
                self.check_block(block, blocks)
            except Fault as fault:
                line = getattr(fault, "line", None) or self.line_of(block, str(fault))
                self.faults.append(f"{self.name}:{line}: {fault}")
        if self.beside:
            self.faults.append(f"{self.name}: no block follows that is run, after '<!-- run beside the next one -->'")

    def line_of(self, block, message):
        """The first line of the block with a word that the message quotes."""
        words = re.findall(r"'([\w.-]+)'", message)
        found = (number for word in words for number, line in enumerate(block.text.splitlines(), 1) if word in line)
        return block.line + next(found, 0)

    def check_block(self, block, blocks):
        language = block.language
        if self.longer and not block.marked("longer") and language != "text":
            self.ran = False
            return None
        self.check_reason(block)
        if (self.name, language) in COVERED:
            test = COVERED[self.name, language]
            if sum(other.language == language for other in blocks) != 1 or self.path.name not in (ROOT / "tests/docs" / test).read_text():
                raise Fault(f"{test} runs one block of '{language}' of {self.name}")
            return self.count(f"{language} in {test}")
        if language == "" and block.text.startswith("$ "):
            command, _, output = block.text[2:].partition("\n")
            self.check_commands(block, block.printed[2:].partition("\n")[0])
            self.run_or_say_why(block, command)
            if self.ran is not False and not block.value("not compared: "):
                block.text = output
                self.check_text(block)
            return None
        check = getattr(self, f"check_{language or 'nothing'}", None)
        if not check:
            raise Fault(f"no check for a block of '{language}'")
        check(block)
        return self.count(language or "not code") if language != "sh" else None

    def count(self, kind):
        self.done[kind] += 1

    def check_nothing(self, block):
        if not block.marked("not run: "):
            raise Fault("a block without a language, that is neither '$ COMMAND' nor marked '<!-- not run: WHY -->'")

    def check_text(self, block):
        if block.marked("not run: ") or self.ran is False:
            return
        if self.ran is None:
            raise Fault("output of no block that is run")
        tutorials.compare(block, self.ran)

    def check_sh(self, block):
        self.check_commands(block, block.printed)
        self.run_or_say_why(block, block.text)

    def run_or_say_why(self, block, script):
        reason = block.value("not run: ")
        self.ran = False
        if reason:
            self.unrun.append((block.line, reason))
        elif block.left_to(self.path):
            self.count("run by other tests")
        elif block.marked("longer") and not self.longer:
            self.count("left to --longer")
        elif block.marked("run beside"):
            self.beside.append(script)
            self.count("run")
        else:
            scripts, self.beside = [*self.beside, script, *[script] * block.marked("run twice")], []
            self.run_group(block, scripts)

    def check_reason(self, block):
        """Looks up what the reason for not running a block names, so that it stays true."""
        night = (ROOT / "tests/night.sh").read_text()
        for name in re.findall(r"`([^`]+)`", block.value("not run: ")):
            self.checker.check_paths(name, [name])
            if "/" not in name and name not in self.checker.tests[0] and f"\npart {name} " not in night:
                raise Fault(f"there is no test '{name}', and tests/night.sh has no such part")

    def check_powershell(self, block):
        if not block.value("not run: "):
            raise Fault("a block of 'powershell' says why it is not run")
        self.unrun.append((block.line, block.value("not run: ")))
        for number, line in enumerate(block.text.split("\n")):
            for command in line.partition("#")[0].replace("\\", "/").split(";"):
                words = command.split()
                name = words[0].rpartition("/")[2] if words else ""
                if name == "echotrain":
                    self.on_line(block, number, self.checker.check, [name, *words[1:]])
                elif name not in ("", *POWERSHELL):
                    raise Fault(f"line {block.line + 1 + number}: an unknown command '{name}'")

    def check_commands(self, block, text):
        commands, files = commands_of(text)
        if not commands:
            raise Fault("a block of 'sh' without a command")
        for name, (number, content) in files.items():
            (self.jobs.work / name).write_text(content)
            if name.endswith(".json"):
                self.on_line(block, number, self.jobs.load, "Job", name, [])
        for number, words in commands:
            self.on_line(block, number, self.checker.check, words)

    @staticmethod
    def on_line(block, number, check, *arguments):
        try:
            check(*arguments)
        except Fault as fault:
            raise at_line(fault, block.line + 1 + number)

    def run_group(self, block, scripts):
        needs = [mark[len("needs: "):] for mark in block.marks if mark.startswith("needs: ")]
        missing = [name for name in needs if not tutorials.has(name, self.checker.build)]
        if missing:
            self.skipped.append((block.line, f"there is no {missing[0]}"))
            return
        for place, stand_in in PLACES.items():
            scripts = [script.replace(place, stand_in) for script in scripts]
        began, limit = times(), 1800 if self.longer else 600
        started = [subprocess.Popen(["bash", "-euo", "pipefail", "-c", script], cwd=self.jobs.work, env=self.variables, text=True,
                                    errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    start_new_session=True) for script in scripts]
        try:
            self.ran = "".join([process.communicate(timeout=limit)[0] for process in started])
        except subprocess.TimeoutExpired as error:
            for process in started:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
            raise Fault(f"the block has run for {limit // 60} minutes") from error
        for process, script in zip(started, scripts):
            if process.returncode != 0:
                raise Fault(f"the block\n{script.rstrip()}\nfailed with status {process.returncode}:\n{self.ran}")
        self.count("run")
        took, computed = (after - before for before, after in zip(began, times()))
        if took >= 1:
            print(f"  {took:6.1f} s, {computed:6.1f} s of processors  {self.name}:{block.line}", flush=True)

    def check_json(self, block):
        if block.language == "jsonc":
            block.text = re.sub(r"(?<![:\"])//[^\n]*", "", block.text)
        parts = [self.parsed(block, part) for part in re.split(r"^ *\.\.\.$", block.text, flags=re.MULTILINE)]
        variables = {name: value for part in parts if isinstance(part, dict) for name, value in part.get("vars", {}).items()}
        for part in parts:
            self.jobs.check(part, variables)

    check_jsonc = check_json

    def parsed(self, block, part):
        """A value, the members of an object, or the items of a list."""
        before, part, errors = block.text[:block.text.index(part)].count("\n"), part.rstrip().rstrip(","), []
        for form in ("%s", "{%s}", "[%s]"):
            try:
                return json.loads(form % part)
            except json.JSONDecodeError as error:
                errors.append(error)
        error = max(errors, key=lambda error: error.pos)
        raise at_line(Fault(f"no JSON: {error.msg}"), block.line + before + error.lineno)

    def check_python(self, block):
        try:
            tree = ast.parse(block.text)
        except SyntaxError as error:
            raise at_line(Fault(error.msg), block.line + error.lineno) from error
        if block.marked("not run: "):
            return self.look_up_calls(block, tree)
        nodes = list(ast.walk(tree))
        bound = {node.name for node in nodes if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        bound |= {alias.asname or alias.name for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
        bound |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        missing = sorted({node.id for node in nodes if isinstance(node, ast.Name)} - bound - set(dir(builtins)))
        unknown = [name for name in missing if name not in FIXTURES]
        if unknown:
            raise Fault(f"the block does not define '{unknown[0]}', and FIXTURES of blocks.py do not either")
        text = "\n" * block.line + block.text  # so that an error names the page's line
        script = "\n".join([*(FIXTURES[name] for name in missing), f"exec(compile({text!r}, {self.name!r}, 'exec'))",
                            *(use for name, use in USES.items() if name in bound)])
        done = subprocess.run([sys.executable, "-c", script], cwd=self.jobs.work, env=self.variables, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300)
        if done.returncode != 0:
            lines = re.findall(rf'{re.escape(self.name)}", line (\d+)', done.stdout)
            raise at_line(Fault(f"the block failed:\n{done.stdout}"), int(lines[-1]) if lines else block.line)

    def look_up_calls(self, block, tree):
        """Names and arguments of the package's functions, without calling them."""
        et = self.jobs.et
        owners = {"et": et, "trainer": et.Trainer, "model": et.Model, "pipeline": et.Pipeline, "run": et.JobRun, "job": et.Job}
        calls = [(node, ast.unparse(node.func)) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        calls = [(call, text) for call, text in calls if text.split(".")[0] in owners and "." in text]
        if not calls:
            raise Fault("a block that is not run, and calls nothing that can be looked up")
        for call, text in calls:
            first, *names = text.split(".")
            function = owners[first]
            try:
                for name in names:
                    function = getattr(function, name)
                instance = [] if first == "et" else [None]
                inspect.signature(function).bind(*instance, *call.args, **{word.arg: None for word in call.keywords})
            except (AttributeError, TypeError) as error:
                raise at_line(Fault(f"{text}: {error}"), block.line + call.lineno) from error

    def check_c(self, block):
        function = re.search(r"^\w[^;]*\) \{$", block.text, re.MULTILINE) and not block.text.startswith(("#", "etr_"))
        text = re.sub(r"^#.*$", "", block.text, flags=re.MULTILINE)
        body = f'\n#line {block.line + 1} "{self.name}"\n{text}'
        source = body if function else f"void block(void) {{{VARIABLES}{body}}}\n"
        done = subprocess.run(["cc", "-std=c99", "-fsyntax-only", "-Wall", "-Wno-unused", "-Wno-maybe-uninitialized", "-Werror", "-x", "c",
                               f"-I{ROOT}/capi/include", "-"], input=f"#include <echotrain/echotrain.h>\n#include <stdio.h>\n{source}",
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = re.findall(rf"{re.escape(self.name)}:(\d+):\d+: error", done.stderr)
            raise at_line(Fault(f"the compiler says:\n{done.stderr}"), int(lines[0]) if lines else block.line)

    def check_cmake(self, block):
        if block.text.startswith("include(FetchContent)"):
            return  # tests/consumer/subproject/run.cmake configures a project with these lines
        text = " ".join((ROOT / "tests/consumer/CMakeLists.txt").read_text().split())
        consumer = re.sub(r" [\d.]+ REQUIRED", " REQUIRED", text).replace("(train ", "(app ")
        for line in re.sub(r" *#.*", "", block.text).splitlines():
            if line not in consumer:
                raise Fault(f"tests/consumer/CMakeLists.txt has no '{line}'")

    def check_xml(self, block):
        try:
            tree = xml.etree.ElementTree.fromstring(f"<block>{block.text}</block>")
        except xml.etree.ElementTree.ParseError as error:
            raise Fault(f"no XML: {error}") from error
        pom = (ROOT / "bindings/java/pom.xml").read_text()
        for node in tree.iter():
            text = (node.text or "").strip()
            if text and node.tag != "scope" and f">{text}<" not in pom and not (node.tag == "classifier" and text in pom):
                raise Fault(f"bindings/java/pom.xml has no <{node.tag}>{text}")


def prepare(build, work):
    """What the folder of each page begins with; returns the environment of what is run."""
    shutil.rmtree(work, ignore_errors=True)
    echotrain, start = build / "tools/echotrain/echotrain", work / "start"
    variables = tutorials.environment(build, work)
    variables.update(PATH=f"{echotrain.parent}:{variables['PATH']}",
                     # Open MPI's launcher: as root in a container, and more processes than cores.
                     OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
    (start / "studies").mkdir(parents=True)
    for link in FOLDERS:
        (start / link).symlink_to(ROOT / link)
    (start / "jobs").symlink_to("samples/jobs")
    (start / "build").symlink_to("build-test")
    (start / "build-test").mkdir()  # a folder of its own, where nothing disturbs the build that is being tested, or its ctest
    for path in build.iterdir():
        if path.name not in ("Testing", "ctest.log"):
            (start / "build-test" / path.name).symlink_to(path)
    small_data.write(echotrain, build / "samples/draw", start, 256, "images/train")
    subprocess.run([echotrain, "pack", "images/train", "shards/train"], cwd=start, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([sys.executable, "-c", ONNX], cwd=start, env=variables, check=True)
    return variables


def page_before(path):
    """The page in whose folder this one goes on, or None."""
    found = re.search(r"^<!-- after: (\S+) -->$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return (path.parent / found.group(1)).resolve() if found else None


def in_order(pages):
    """Each page behind the one that it goes on from."""
    out = []
    for path in pages:
        out += [page for page in (page_before(path), path) if page and page not in out]
    return out


def main():
    longer = sys.argv[1:2] == ["--longer"]
    if len(sys.argv) < 3 + longer:
        raise SystemExit(__doc__)
    build, work, *pages = (pathlib.Path(argument).resolve() for argument in sys.argv[1 + longer:])
    variables = prepare(build, work)
    sys.path.insert(0, str(build / "bindings/python"))
    import echotrain as et  # noqa: E402
    checker, folders, results = Checker(build), {}, []
    for path in in_order(pages or PAGES):
        folder = folders[path] = folders.get(page_before(path)) or work / "pages" / path.relative_to(ROOT).with_suffix("")
        if not folder.exists():
            shutil.copytree(work / "start", folder, symlinks=True)
        os.chdir(folder)
        checker.jobs = Jobs(et, folder)
        results.append(Page(path, checker, checker.jobs, variables, longer))
        results[-1].check()
    report(results, "docs_blocks_longer" if longer else "docs_blocks")


def report(pages, test):
    done = sum((page.done for page in pages), collections.Counter())
    unrun = [(f"{page.name}:{line}", why) for page in pages for line, why in page.unrun]
    skipped = [(f"{page.name}:{line}", why) for page in pages for line, why in page.skipped]
    faults = [fault for page in pages for fault in page.faults]
    print(f"{len(pages)} pages, blocks checked: " + ", ".join(f"{count} {kind}" for kind, count in sorted(done.items())))
    print(f"{len(unrun)} blocks of commands are not run, only looked up:")
    for place, why in unrun:
        print(f"  {place}: {why}")
    for place, why in skipped:
        print(f"{test} is SKIPPED: {place}: {why}")
    for fault in faults:
        print(fault)
    if faults:
        raise SystemExit(f"{len(faults)} faults")


if __name__ == "__main__":
    main()
