#!/usr/bin/python3
"""Would the tests notice a mistake? Changes the parsers, positions, checkpoints and the echo node in small ways, one at a time, and runs
the tests that come past the change.

    mutate.py BUILD [FILE ...] [--sample N | --seconds N] [--seed 1] [--least 85] [--report PATH] [--again PATH] [--programs NAME,NAME]
              [--jobs N]

BUILD is a folder in which the test programs are built; it stays as it is. FILE is the end of a name of `ROOMS` below, for instance
png_rows.cpp; without it, all of them are changed. A changed program is called a mutant. It is killed if a test fails, crashes or takes ten
times as long; a mutant that passes survives. All mutants of a file are compiled into one program, which asks the environment which of
them it is (mutation.h).

Not changed: constants of the compiler, macros, texts of the log, and calls that only reserve memory.

Survivors that no test could or should kill are in equivalent.json, with the reason. They are counted apart. If BUILD is that of the
address sanitizer, those that only it can see are not excused.

--sample    only so many mutants, drawn with the seed
--seconds   as many mutants, drawn with the seed, as can be tried in that time, which does not include compiling
--report    one line of JSON for each mutant
--again     only the mutants that survived by that report
--programs  only the tests of these programs
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import mutants

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Files, and the programs whose tests should notice. Of these, only those tests run that come past the mutant.
ROOMS = [
    (["runtime/core/parse_json.cpp", "runtime/core/json_members.cpp", "runtime/core/message.cpp", "runtime/core/packed.cpp",
      "runtime/core/utf8.cpp"], ["core_tests"]),
    (["runtime/checkpoint/manifest.cpp", "runtime/checkpoint/safetensors*.cpp"], ["checkpoint_tests"]),
    (["runtime/checkpoint/store.cpp"], ["checkpoint_tests", "crash_tests"]),
    (["runtime/echo/*.cpp"], ["echo_tests", "pipeline_tests"]),
    (["runtime/io/tar_format.cpp", "runtime/io/tar_reader.cpp", "runtime/io/line_reader.cpp", "runtime/io/fast_shard.cpp",
      "runtime/io/record_file.cpp", "runtime/io/pattern.cpp", "runtime/io/byte_stream.cpp", "runtime/io/http.cpp", "runtime/io/http_response.cpp",
      "runtime/io/s3.cpp", "runtime/io/remote_file.cpp", "runtime/io/remote_answer.cpp"], ["io_tests", "sources_tests"]),
    (["runtime/codec/png_decoder.cpp", "runtime/codec/png_rows.cpp", "runtime/codec/jpeg_decoder.cpp",
      "runtime/codec/orientation.cpp"], ["codec_tests"]),
    (["runtime/sources/npy_header.cpp", "runtime/sources/npy.cpp", "runtime/sources/csv.cpp", "runtime/sources/jsonl.cpp",
      "runtime/sources/tfrecord.cpp", "runtime/sources/idx.cpp", "runtime/sources/cifar.cpp", "runtime/sources/zip.cpp"],
     ["sources_tests"]),
    (["runtime/sources/webdataset.cpp"], ["sources_tests", "pipeline_tests"]),
    (["runtime/pipeline/position*.cpp", "runtime/pipeline/done_samples.cpp", "runtime/pipeline/decision_log.cpp"],
     ["pipeline_tests", "sources_tests"]),
    (["runtime/nn/onnx.cpp", "runtime/nn/onnx_file.cpp", "runtime/nn/onnx_reader.cpp"], ["nn_tests"]),
]
DROPPED = 0.25  # of the mutants may not compile
MEMORY = 4 << 30  # a mutant may ask for any amount
LONGEST = 60  # seconds of tests for one mutant, the fastest first
SKIPPED = "all tests were skipped"
SANITIZER = "address sanitizer"  # reasons with these words do not hold in a build with it
Test = collections.namedtuple("Test", "program name")


def files_and_programs(wanted):
    out = {}
    for patterns, programs in ROOMS:
        for pattern in patterns:
            found = sorted(ROOT.glob(pattern))
            assert found, f"mutate.py: there is no {pattern}; mend ROOMS"
            out.update({path.relative_to(ROOT).as_posix(): programs for path in found})
    for name in wanted:
        if not any(file.endswith(name) for file in out):
            sys.exit(f"mutate.py: no file of ROOMS ends in {name}")
    return {file: programs for file, programs in out.items() if not wanted or any(file.endswith(name) for name in wanted)}


class Programs:
    """The test programs with mutants in them: the commands of BUILD, with other files in them, and results in a folder of their own."""

    def __init__(self, build, work, files):
        self.build, self.work, self.files = build, work, files
        self.names = sorted({name for names in files.values() for name in names})
        targets = [f"tests/{name}" for name in self.names]
        lines = subprocess.run(["ninja", "-C", build, "-t", "commands", *targets], check=True, capture_output=True, text=True)
        self.links, self.compiles = {}, {}
        for line in lines.stdout.splitlines():
            words = shlex.split(line)
            if words[:2] == [":", "&&"] and "-o" in words:
                self.links[words[words.index("-o") + 1]] = words
            elif "-c" in words:
                self.compiles[words[words.index("-c") + 1]] = words
        self.units = {file: self.unit_of(str(ROOT / file)) for file in files}
        self.sanitized = any(re.match("-fsanitize=.*address", word) for unit in self.units.values() for word in self.compiles[unit])

    def unit_of(self, path):
        """The file that is compiled: the file itself, or the one of a unity build that includes it."""
        for unit in self.compiles:
            if unit == path or "/Unity/" in unit and f'#include "{path}"' in pathlib.Path(unit).read_text():
                return unit
        sys.exit(f"mutate.py: {self.build} does not compile {path}")

    def arguments(self, file):
        words = self.compiles[self.units[file]]
        return [word for word in words if re.match("-[ID]|-std=", word)] + ["-isystem" + words[i + 1] for i, word in
                                                                              enumerate(words) if word == "-isystem"]

    def copy_of(self, file):
        return self.work / file

    def write(self, sites):
        """Returns the compiled files that have changed."""
        changed = set()
        for file in self.files:
            copy = self.copy_of(file)
            text = mutants.rewritten((ROOT / file).read_bytes(), sites[file])
            if not copy.exists() or copy.read_bytes() != text:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(text)
                changed.add(self.units[file])
        return sorted(changed)

    def object_of(self, unit):
        return self.work / (re.sub(r"\W+", "_", os.path.relpath(unit, ROOT)) + ".o")

    def compile(self, unit):
        """Returns what the compiler has to say if it fails."""
        words = list(self.compiles[unit])
        text = pathlib.Path(unit).read_text() if unit not in map(str, (ROOT / file for file in self.files)) else f'#include "{unit}"\n'
        for file in self.files:
            text = text.replace(f'"{ROOT / file}"', f'"{self.copy_of(file)}"')
        source = self.object_of(unit).with_suffix(".cpp")
        source.write_text(text)
        words[words.index("-c") + 1] = str(source)
        words[words.index("-o") + 1] = str(self.object_of(unit))
        for option in ("-MF", "-MT"):
            if option in words:
                words[words.index(option) + 1] = str(self.object_of(unit).with_suffix(".d"))
        # -w: what was a constant is one no more.
        words += ["-w", "-Wno-error", "-Wno-narrowing", "-O1", "-include", str(HERE / "mutation.h")]
        result = subprocess.run(words, cwd=self.build, capture_output=True, text=True)
        return result.stderr if result.returncode else ""

    def link(self):
        replaced = {}
        for unit in set(self.units.values()):
            words = self.compiles[unit]
            replaced[os.path.normpath(words[words.index("-o") + 1])] = str(self.object_of(unit))
        for name in self.names:
            words = [replaced.get(os.path.normpath(word), word) for word in self.links[f"tests/{name}"]]
            words[words.index("-o") + 1] = str(self.work / name)
            command = " ".join(word if word in (":", "&&") else shlex.quote(word) for word in words)
            subprocess.run(command, shell=True, check=True, cwd=self.build)


def compiled(programs, sites, jobs):
    """Leaves out what does not compile. Returns how many mutants that are."""
    total = sum(len(site.mutants) for file in sites for site in sites[file])
    dropped = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        while units := programs.write(sites):
            found = collections.defaultdict(set)
            for unit, errors in zip(units, pool.map(programs.compile, units)):
                before = dropped
                for file in sites:
                    place = re.escape(str(programs.copy_of(file))) + r":(\d+):(?:\d+:)?\s+(?:error|required from|in)"
                    found[file] |= {int(line) for line in re.findall(place, errors)}
                    dropped += sum(len(site.mutants) for site in sites[file] if site.lines & found[file])
                    sites[file] = [site for site in sites[file] if not site.lines & found[file]]
                if errors and dropped == before:
                    sys.exit(f"mutate.py: {unit} does not compile:\n{errors[:4000]}")
    print(f"{total} mutants, {dropped} of them dropped because they do not compile", flush=True)
    if dropped > DROPPED * total:
        sys.exit("mutate.py: too many mutants do not compile")
    return dropped


class Runner:
    def __init__(self, work, jobs, sanitized):
        self.work, self.jobs, self.sanitized = work, jobs, sanitized
        self.environment = dict(os.environ)
        if sanitized:
            self.environment.update(ASAN_OPTIONS=f"detect_leaks=1:quarantine_size_mb=16:hard_rss_limit_mb={MEMORY >> 20}",
                                    LSAN_OPTIONS=f"suppressions={ROOT / 'tests/lsan.supp'}")

    def run(self, program, arguments, environment, seconds, cpu_seconds):
        """Returns whether it passed, what it did instead, and the seconds of processor time it took. In a folder of its own."""
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            os.chmod(folder, 0o755)
            def limits():
                # Soft limits, because tests raise them again.
                if not self.sanitized:  # it reserves terabytes
                    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
            with open(pathlib.Path(folder, "output"), "w+b") as output:
                child = subprocess.Popen([self.work / program, *arguments], stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                                         env={**self.environment, **environment, "TMPDIR": folder}, cwd=folder, preexec_fn=limits,
                                         start_new_session=True)
                try:
                    status = child.wait(seconds)
                except subprocess.TimeoutExpired:
                    status = None
                finally:
                    try:
                        os.killpg(child.pid, signal.SIGKILL)  # also what it has started
                    except ProcessLookupError:
                        pass
                    child.wait()
                output.seek(0)
                text = output.read().decode(errors="replace")
            if status == 0:
                return (True, "") if re.search(r"^\[  PASSED  \] [1-9]", text, re.MULTILINE) else (False, SKIPPED)
            ended = "took too long" if status in (None, -signal.SIGXCPU) else "crashed" if status < 0 else "failed"
            return False, ended if status is None or status < 0 else ended + ": " + first_failure(text)

    def tests_of(self, program):
        listed = subprocess.run([self.work / program, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
        suite, out = "", []
        for line in listed.splitlines():
            name = line.split("#")[0].rstrip()
            if not name.startswith(" "):
                suite = name
            elif "DISABLED_" not in suite + name:
                out.append(Test(program, suite + name.strip()))
        return out

    def plain(self, test, places, again=True):
        """Runs one test of the unchanged program. Returns its seconds, and the numbers of the mutants that it comes past."""
        with tempfile.NamedTemporaryFile(dir=self.work) as reached:
            reached.write(bytes(places))
            reached.flush()
            os.chmod(reached.name, 0o666)
            began = time.monotonic()
            passed, ended = self.run(test.program, [f"--gtest_filter={test.name}"], {"ECHOTRAIN_MUTANTS_REACHED": reached.name}, 300, 300)
            seconds = time.monotonic() - began
            if not passed and ended != SKIPPED:
                if again:
                    return self.plain(test, places, again=False)  # the machine may have been busy
                sys.exit(f"mutate.py: {test.program} --gtest_filter={test.name} fails without a mutant: {ended}")
            return seconds, [i for i, byte in enumerate(pathlib.Path(reached.name).read_bytes()) if byte] if passed else []

    def verdict(self, mutant, tests):
        """`tests` with their seconds, the fastest first. Returns how it was killed, or None."""
        at = 0
        for most in (0.3, 2, LONGEST):
            batch = collections.defaultdict(list)
            seconds = 0
            while at < len(tests) and (seconds < most or not batch):
                seconds += tests[at][1]
                batch[tests[at][0].program].append(tests[at][0].name)
                at += 1
            for program, names in batch.items():
                passed, ended = self.run(program, ["--gtest_fail_fast", "--gtest_filter=" + ":".join(names)],
                                         {"ECHOTRAIN_MUTANT": str(mutant.number)}, 10 * seconds + 10, int(10 * seconds) + 3)
                if not passed and ended != SKIPPED:
                    return ended
        return None


def first_failure(text):
    failed = re.search(r"^\[  FAILED  \] ([\w/.]+)", text, re.MULTILINE)
    return failed.group(1) if failed else text.strip()[-200:]


def key(mutant):
    return mutant["file"], mutant["text"], mutant["change"]


def table(rows):
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(str(cell).ljust(width) if i == 0 else str(cell).rjust(width) for i, (cell, width) in enumerate(zip(row, widths))))


def share(killed, survived):
    return 100 * killed / (killed + survived) if killed + survived else 100.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--least", type=float, default=85)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--again", type=pathlib.Path)
    parser.add_argument("--programs", type=lambda text: text.split(","))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_intermixed_args()
    files = files_and_programs(options.files)
    if options.programs:
        files = {file: [name for name in names if name in options.programs] for file, names in files.items()}
    excused = {(entry["file"], entry["text"], change): entry["reason"]
               for entry in json.loads((HERE / "equivalent.json").read_text()) for change in entry["changes"]}
    work = pathlib.Path(tempfile.mkdtemp(prefix="echotrain-mutation-"))
    work.chmod(0o755)  # some tests go on as another user
    try:
        programs = Programs(options.build.resolve(), work, files)
        if programs.sanitized:
            excused = {mutant: reason for mutant, reason in excused.items() if SANITIZER not in reason}
        return test_mutants(options, files, excused, programs, Runner(work, options.jobs, programs.sanitized))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def test_mutants(options, files, excused, programs, runner):
    began = time.monotonic()
    compilers = int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", options.jobs))
    with concurrent.futures.ThreadPoolExecutor(compilers) as pool:
        finders = pool.map(lambda file: mutants.Finder(file, ROOT / file, programs.arguments(file)), files)
        sites = {file: finder.sites for file, finder in zip(files, finders)}
    everything = [mutant for file in files for site in sites[file] for mutant in site.mutants]
    for number, mutant in enumerate(everything, 1):
        mutant.number = number
    compiled(programs, sites, compilers)
    programs.link()
    print(f"compiled after {time.monotonic() - began:.0f} s", flush=True)

    tests = [test for name in programs.names for test in runner.tests_of(name)]
    reaching = collections.defaultdict(list)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for test, (seconds, reached) in zip(tests, pool.map(lambda t: runner.plain(t, len(everything) + 1), tests)):
            for number in reached:
                reaching[number].append((test, seconds))
    print(f"{len(tests)} tests passed without a mutant after {time.monotonic() - began:.0f} s", flush=True)

    there = [mutant for file in files for site in sites[file] for mutant in site.mutants]
    stale = [entry for entry in excused if entry[0] in files and entry not in {key(vars(mutant)) for mutant in everything}]
    if options.again:
        survived = [json.loads(line) for line in options.again.read_text().splitlines()]
        survived = {key(entry) for entry in survived if not entry["killed"]}
        there = [mutant for mutant in there if key(vars(mutant)) in survived]
    random.Random(options.seed).shuffle(there)
    if options.sample is not None:
        there = there[:options.sample]

    ends = time.monotonic() + options.seconds if options.seconds else float("inf")

    def judge(mutant):
        if time.monotonic() > ends:
            return None
        programs_of = files[mutant.file]
        tests = sorted((test for test in reaching[mutant.number] if test[0].program in programs_of), key=lambda test: test[1])
        ended = runner.verdict(mutant, tests) if tests else None
        return {"file": mutant.file, "line": mutant.line, "text": mutant.text, "change": mutant.change, "killed": ended is not None,
                "reached": bool(tests), "by": ended, "reason": excused.get(key(vars(mutant)))}

    if options.report:
        options.report.write_text("")
    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(judge, there):
            if result:
                results.append(result)
                if options.report:
                    with options.report.open("a") as report:
                        report.write(json.dumps(result) + "\n")
                if len(results) % 200 == 0:
                    print(f"{len(results)} of {len(there)} mutants after {time.monotonic() - began:.0f} s", flush=True)
    results.sort(key=lambda result: (result["file"], result["line"], result["change"]))
    print(f"{len(results)} mutants tried after {time.monotonic() - began:.0f} s, seed {options.seed}\n")
    return reported(options, files, excused, stale, results)


def reported(options, files, excused, stale, results):
    rows = [("file", "mutants", "killed", "survived", "excused", "share")]
    sums = [0, 0, 0]
    for file in [*files, None]:
        mine = [result for result in results if result["file"] == file]
        killed = sum(result["killed"] for result in mine)
        apart = sum(not result["killed"] and result["reason"] is not None for result in mine)
        counts = [killed, len(mine) - killed - apart, apart]
        if file is None:
            counts = sums
        elif not mine:
            continue
        else:
            sums = [a + b for a, b in zip(sums, counts)]
        rows.append((file or "together", sum(counts), *counts, f"{share(*counts[:2]):.1f} %"))
    table(rows)
    for title, excused_ones in (("survived", False), ("survived, with a reason in equivalent.json", True)):
        found = [result for result in results if not result["killed"] and (result["reason"] is not None) == excused_ones]
        if found:
            print(f"\n{title}:")
        for result in found:
            print(f"  {result['file']}:{result['line']}: {result['change'][:100]}" + ("" if result["reached"] else " (not reached)"))
            print(f"      {result['reason'] or result['text']}")
    wrong = [result for result in results if result["killed"] and result["reason"] is not None]
    for result in wrong:
        print(f"\nequivalent.json excuses what a test kills: {result['file']}:{result['line']}: {result['change']} ({result['by']})")
    for file, text, change in stale:
        print(f"\nequivalent.json excuses what is no mutant (any more): {file}: {change}\n    {text}")
    ok = share(*sums[:2]) >= options.least
    print(f"\n{share(*sums[:2]):.1f} % killed, at least {options.least:g} % are wanted: {'passed' if ok else 'FAILED'}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
