"""Checks the commands of a page without running them: the names of commands, options, files, tests, targets and settings."""

import fnmatch
import functools
import json
import re
import shlex
import subprocess

from tutorials import ROOT, Fault, help_of

FOLDERS = ("bindings", "capi", "cmake", "docs", "packaging", "runtime", "samples", "shaders", "tests", "tools")
REPOSITORY = re.compile(rf"(?<![\w./-])(?:\./|\.\./echotrain/)?((?:{'|'.join(FOLDERS)})/[\w./*-]*)")
BUILT = re.compile(r"(?:\$PWD/)?build[\w-]*/(?:.*/)?(tools/echotrain|tests|tests/fuzz|tests/bench|samples)/(\w+)")
WRITES = ("-o", "--out", "--plot", "--report", "write")  # the next word names what is written
WRAPPERS = ("sudo", "mpirun", "srun", "torchrun", "setarch")  # run the command among their words
# Others' commands, of which only the files of the repository are checked.
FOREIGN = ("apt-get", "c++", "cat", "cc", "cd", "cp", "dotnet", "export", "git", "mcs", "mike", "mkdir", "mvn", "pip", "pkg-config",
           "source", ".", "tar", "x86_64-w64-mingw32-gcc", "zig", "zstd")
OWN = ("cmake", "conan", "ctest", "draw", "echotrain", "vcpkg")
MODULES = ("venv", "pip", "http.server", "tarfile")
UNPACKED = {"gpu_day_kit/": "tests/gpu_day/"}  # what tests/gpu_day/pack.sh packs


def commands_of(text):
    """(number of its line, words) of each simple command, and {name: (number of its line, text)} of files written by `cat > NAME`."""
    commands, files = [], {}
    lines = enumerate(text.split("\n"))
    for number, line in lines:
        while True:
            try:
                lexer = shlex.shlex(line[:-1] if line.endswith("\\") else line, posix=True, punctuation_chars=True)
                lexer.whitespace_split = True
                tokens = list(lexer)
                if not line.endswith("\\"):
                    break
                line = line[:-1]
            except ValueError:  # a quotation goes on in the next line
                line += "\n"
            more = next(lines, None)
            if more is None:
                raise Fault("a quotation, or a line, is not ended")
            line += more[1]
        words = [[]]
        for token in tokens:
            if re.fullmatch(r"[();&|]+", token):
                words.append([])
            else:
                words[-1].append(token)
        here = re.search(r"<<-?\s*'?(\w+)'?", line)
        if here:
            inside = list(iter(lambda: next(lines)[1], here.group(1)))
            name = re.search(r"cat > (\S+)", line)
            if name:
                files[name.group(1)] = (number + 1, "\n".join(inside))
        for command in words:
            while command and command[0] in ("do", "then", "else", "done", "fi", "if", "while", "!"):
                command = command[1:]
            if command and command[0] != "for":
                to = [i for i, word in enumerate(command) if re.fullmatch(r"[<>]+&?", word)]  # and what it is redirected to
                commands.append((number, [word for i, word in enumerate(command) if i not in to and i - 1 not in to]))
    return commands, files


def sources(*suffixes):
    return [path for folder in FOLDERS for suffix in suffixes for path in (ROOT / folder).rglob(f"*.{suffix}")]


def has_word(word, text):
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


class Checker:
    """`jobs`, of the page that is checked, has load("Job" or "Study", name, settings), which raises a Fault."""

    def __init__(self, build):
        self.build, self.echotrain, self.jobs = build, build / "tools/echotrain/echotrain", None

    def check(self, words):
        words = list(words)
        for word in words:
            self.check_paths(word, words)
        while words and re.match(r"[A-Za-z_]\w*=", words[0]):
            variable = words.pop(0).split("=")[0]
            if variable.startswith("ECHOTRAIN_") and variable not in self.variables:
                raise Fault(f"nothing reads the variable {variable}")
        if not words:
            return
        name, *rest = words
        if name in WRAPPERS:
            inner = next((i for i, word in enumerate(rest) if self.is_known(word)), None)
            if inner is None:
                raise Fault(f"no known command among the words of '{name}'")
            self.check(rest[inner:])
        elif BUILT.fullmatch(name):
            self.check_program(BUILT.fullmatch(name).group(2), rest)
        elif name in ("bash", "python3", "/usr/bin/python3") or name.startswith("./"):
            self.check_script(words[1:] if "/" not in name or name.startswith("/") else words)
        elif name in OWN:
            getattr(self, f"check_{name}")(rest)
        elif name in ("java", "mono"):
            self.check_class(rest)
        elif name not in FOREIGN:
            raise Fault(f"'{name}' is a command that {__file__.rsplit('/', 1)[-1]} does not know")

    def is_known(self, word):
        return word in (*FOREIGN, *WRAPPERS, *OWN, "bash", "python3") or BUILT.fullmatch(word)

    def check_paths(self, word, words):
        written = any(word is after for before, after in zip(words, words[1:]) if before in WRITES)
        for path in REPOSITORY.findall(word):
            if not (list(ROOT.glob(path)) if "*" in path else (ROOT / path).parent.exists() if written else (ROOT / path).exists()):
                raise Fault(f"there is no {path} in the repository")
        for program in BUILT.finditer(word):
            if program.end() == len(word) and not written:
                self.check_target(program.group(2))

    def check_target(self, name):
        if name not in self.targets and not (name == "echotrain" or name.startswith("fuzz") and self.is_fuzzer(name)):
            raise Fault(f"the build has no target '{name}'")

    def is_fuzzer(self, name):
        text = (ROOT / "tests/fuzz/CMakeLists.txt").read_text()
        return has_word(name, text) or has_word(name[len("fuzz_"):], text)

    def check_script(self, words):
        if words[:1] == ["-m"]:
            if words[1] not in MODULES:
                raise Fault(f"'python3 -m {words[1]}' is not known")
            return
        words = [next((to + word.removeprefix(name) for name, to in UNPACKED.items() if word.startswith(name)), word) for word in words]
        if not words or not (ROOT / words[0]).is_file():
            raise Fault(f"there is no script '{' '.join(words[:1])}' in the repository")
        self.check_options(words, (ROOT / words[0]).read_text())
        for word in words[1:]:
            if re.fullmatch(r"[\w-]+\.(cpp|h|c|comp)", word) and not any(path.name == word for path in sources(word.rpartition(".")[2])):
                raise Fault(f"there is no {word} in the repository")

    def check_options(self, words, source):
        for word in words[1:]:
            option = re.match(r"--?[A-Za-z][\w-]*", word)
            if option and not has_word(option.group(), source):
                raise Fault(f"{words[0]} has no option {option.group()}")

    def check_program(self, name, words):
        self.check_target(name)
        if name == "echotrain":
            return self.check_echotrain(words)
        for word in words:
            if word.startswith("--gtest_filter="):
                self.check_filter(name, word.partition("=")[2])
        if not name.startswith("fuzz_"):  # whose options are libFuzzer's
            own = [path.read_text() for path in sources("cpp") if name in path.parts or path.stem == name]
            source = "\n".join(own) + " --gtest_filter --gtest_repeat --gtest_break_on_failure"
            self.check_options([name, *words], source)

    def check_class(self, words):
        """The program among the words of `java` or `mono`, by its source."""
        programs = {path.stem: path for path in sources("java", "cs")}
        at, name = next(((i, name) for i, word in enumerate(words)
                         if (name := word.split("/")[-1].removesuffix(".exe").removesuffix(".java")) in programs), (0, None))
        if name is None:
            raise Fault(f"the repository has no program of '{' '.join(words)}'")
        self.check_options(words[at:], programs[name].read_text())

    def check_draw(self, words):
        self.check_target("draw")

    def check_filter(self, name, patterns):
        room = ROOT / "tests" / name.removesuffix("_tests")
        files = (room if room.is_dir() else ROOT / "tests").rglob("*.cpp")
        tests = [".".join(names) for path in files for names in re.findall(r"^TEST(?:_[FP])?\((\w+),\s*(\w+)\)", path.read_text(), re.M)]
        for pattern in patterns.partition("-")[0].split(":"):
            if pattern != "TEST" and not any(fnmatch.fnmatchcase(test, pattern) for test in tests):
                raise Fault(f"{name} has no test '{pattern}'")

    def check_cmake(self, words):
        presets = json.loads((ROOT / "CMakePresets.json").read_text())
        options = (ROOT / "CMakeLists.txt").read_text()
        for word, value in zip(words, [*words[1:], ""]):
            kind = "buildPresets" if "--build" in words else "configurePresets"
            if word == "--preset" and value not in [preset["name"] for preset in presets[kind]]:
                raise Fault(f"CMakePresets.json has no '{value}' among its {kind}")
            if word == "--target":
                self.check_target(value)
            option = re.match(r"-D(ECHOTRAIN_\w+)=", word)
            if option and not re.search(rf"(option|set)\({option.group(1)}\b", options):
                raise Fault(f"CMakeLists.txt has no option {option.group(1)}")

    def check_conan(self, words):
        """The recipe of the folder, and options that it is given."""
        folder = re.sub(r"^\.\./echotrain/", "", words[1]) if words[0] == "create" and len(words) > 1 else None
        if folder is None or not (ROOT / folder / "conanfile.py").is_file():
            raise Fault(f"'conan {' '.join(words[:2])}' names no folder with a conanfile.py")
        recipe = (ROOT / folder / "conanfile.py").read_text()
        for name in re.findall(r"(?:^| )-o(?::\w)? ?(?:\S+:)?(\w+)=", " ".join(words)):
            if f'"{name}":' not in recipe:
                raise Fault(f"{folder}/conanfile.py has no option '{name}'")

    def check_vcpkg(self, words):
        """That the ports of --overlay-ports have what is installed, with its features."""
        folder = next((re.sub(r"^\.\./echotrain/", "", word.partition("=")[2]) for word in words if word.startswith("--overlay-ports=")), None)
        if words[0] != "install" or folder is None:
            raise Fault("vcpkg has the port only with 'install' and '--overlay-ports='")
        for word in (word for word in words[1:] if not word.startswith("-")):
            name, features = re.fullmatch(r"([\w-]+)(?:\[([\w,-]+)\])?", word).groups()
            port = ROOT / folder / name / "vcpkg.json"
            if not port.is_file():
                raise Fault(f"there is no port '{name}' in {folder}")
            missing = set((features or "").split(",")) - {""} - set(json.loads(port.read_text())["features"])
            if missing:
                raise Fault(f"the port '{name}' has no feature '{missing.pop()}'")

    def check_ctest(self, words):
        self.check_options(["ctest", *words], subprocess.run(["ctest", "--help"], capture_output=True, text=True, check=True).stdout)
        for word, value in zip(words, [*words[1:], ""]):
            names = {"-R": self.tests[0], "-E": self.tests[0], "-L": self.tests[1], "-LE": self.tests[1]}.get(word, [value])
            if not any(re.search(value, name) for name in names):
                raise Fault(f"ctest {word} '{value}' matches nothing")

    def check_echotrain(self, words):
        said = help_of(self.echotrain, words[0]) if words else ""
        if not said:
            raise Fault(f"there is no command 'echotrain {' '.join(words[:1])}'")
        options = {"--help": ""}
        for letter, name, value in re.findall(r"^  (?:(-\w), )?(--[\w-]+)(?: (\S+))?(?:  |$)", said, re.MULTILINE):
            options[name] = options[letter] = value
        operands, settings, rest = [], [], iter(words[1:])
        for word in rest:
            if not word.startswith("-") or len(word) < 2:
                operands.append(word)
                continue
            name, equals, value = word.partition("=")
            if name not in options:
                raise Fault(f"echotrain {words[0]} has no option {name}")
            if options[name]:
                value = value if equals else next(rest, "")
                if "|" in options[name] and value not in options[name].split("|"):
                    raise Fault(f"echotrain {words[0]} {name} takes {options[name]}, not '{value}'")
            if name == "--set":
                settings.append(value)
        usage = said.split("[--")[0].split("\n\n")[0].split()[3:]
        least, most = sum(word[0] != "[" for word in usage), 99 if "..." in " ".join(usage) else len(usage)
        if "--help" not in words and not least <= len(operands) <= most:
            raise Fault(f"echotrain {words[0]} takes '{' '.join(usage)}', not '{' '.join(operands)}'")
        if usage[:1] in (["JOB.json"], ["STUDY.json"]):
            self.jobs.load(usage[0].split(".")[0].title(), operands[0], settings)

    @functools.cached_property
    def variables(self):
        read = sources("cpp", "h", "py", "sh", "txt")
        return {name for path in read for name in re.findall(r"ECHOTRAIN_\w+", path.read_text(errors="replace"))}

    @functools.cached_property
    def targets(self):
        said = subprocess.run(["cmake", "--build", self.build, "--target", "help"], capture_output=True, text=True, check=True).stdout
        return set(re.findall(r"^(?:\.\.\. )?(\w+)(?::| |$)", said, re.MULTILINE))

    @functools.cached_property
    def tests(self):
        """The names of the build's tests, and their labels."""
        said = subprocess.run(["ctest", "--test-dir", self.build, "--show-only=json-v1"], capture_output=True, text=True, check=True).stdout
        tests = json.loads(said)["tests"]
        labels = {label for test in tests for row in test["properties"] if row["name"] == "LABELS" for label in row["value"]}
        return [test["name"] for test in tests], labels
