"""Parts of slices: a test program, a benchmark that leaves JSON, a command."""

import concurrent.futures
import json
import os
import re
import sys
import time

import process


class Context:
    """Where a slice runs."""

    def __init__(self, kit, scratch, environment, rehearsal, selector):
        self.kit, self.scratch, self.environment, self.rehearsal, self.selector = kit, scratch, environment, rehearsal, selector

    def program(self, name):
        return str(self.kit / "bin" / name)

    def benchmark(self, name, *arguments):
        return [sys.executable, str(self.kit / "bench" / name), *map(str, arguments)]

    def run(self, command, seconds, variables, **more):
        return process.run([str(word) for word in command], seconds, {**self.environment, **variables}, self.scratch, **more)


class Part:
    """`seconds`: at most so long; `least`: not begun with less left. `run` gives a dictionary with `status`."""

    def __init__(self, name, seconds, least=15):
        self.name, self.seconds, self.least = name, seconds, least

    def run(self, context, seconds, before):
        raise NotImplementedError


class Command(Part):
    """A program, given `text`; `read` makes a result of its output, or of the files it left."""

    def __init__(self, name, seconds, command, read=None, least=15, text=""):
        super().__init__(name, seconds, least)
        self.command, self.read, self.text = command, read, text

    def run(self, context, seconds, before):
        command = self.command(context)
        ended = context.run(command, seconds, {}, text=self.text)
        out = {"command": readable(command, context), **ended.as_json()}
        if self.read:
            try:
                out["result"] = self.read(context, ended.output)
            except Exception as error:  # what it left is not whole; the output's tail says why
                out["result"], out["unreadable"] = None, f"{type(error).__name__}: {error}"
                if out["status"] == "ok":
                    out["status"] = "failed"
        return out


class Chain(Part):
    """Commands of which each needs what the one before left: all in one part, so that none is run without the others."""

    def __init__(self, name, seconds, commands, least=60):
        super().__init__(name, seconds, least)
        self.commands = commands

    def run(self, context, seconds, before):
        deadline, out = time.monotonic() + seconds, {"seconds": 0, "result": {}, "commands": {}}
        for command in self.commands:
            one = command.run(context, min(command.seconds, deadline - time.monotonic()), None)
            out["result"][command.name] = one.pop("result", None)
            out["commands"][command.name] = one
            out.update(status=one["status"], tail=one["tail"], seconds=round(out["seconds"] + one["seconds"], 2))
            if one["status"] != "ok":
                break
        return out


class Benchmark(Command):
    """A benchmark that keeps its rows in a JSON file: those of an earlier run of the slice are given back to it."""

    def __init__(self, name, seconds, command, least=30):
        self.file = f"{name.replace(' ', '_').replace(':', '_')}.json"
        super().__init__(name, seconds, lambda c: command(c, c.scratch / self.file), self._read, least)

    def run(self, context, seconds, before):
        if before and before.get("result"):
            (context.scratch / self.file).write_text(json.dumps(before["result"]))
        return super().run(context, seconds, before)

    def _read(self, context, output):
        return json.loads((context.scratch / self.file).read_text())


def readable(command, context):
    return " ".join(str(word).replace(str(context.kit), "KIT").replace(str(context.scratch), "SCRATCH") for word in command)


class Tests(Part):
    """A GoogleTest program in as many shards as the machine has cores for, side by side, since most of the time goes into the
    driver's compiler. Behind a test that crashes or hangs a shard is started again without what it has run."""

    MOST_STARTS = 6
    MOST_SHARDS = 6  # each opens the device

    def __init__(self, room, seconds, leave_out="", only="", test_seconds=100, **variables):
        super().__init__(f"{room} {'compared' if variables else 'tests'}", seconds)
        self.room, self.leave_out, self.only, self.test_seconds, self.variables = room, leave_out, only, test_seconds, variables

    def run(self, context, seconds, before):
        begin = time.monotonic()
        shards = max(1, min(self.MOST_SHARDS, (os.cpu_count() or 1) // 2))
        with concurrent.futures.ThreadPoolExecutor(shards) as pool:
            ended = list(pool.map(lambda shard: self._shard(context, begin + seconds, shard, shards), range(shards)))
        tests = {name: test for of, _, _ in ended for name, test in of.items()}
        beyond = sorted(set().union(*(names for _, _, names in ended)))
        # Of the shards' last starts the worst says how it went.
        order = ("timed out", "crashed", "not started", "failed", "ok")
        lasts = sorted((starts[-1] for _, starts, _ in ended), key=lambda last: order.index(last["status"]))
        last, starts = lasts[0], sum(len(of) for _, of, _ in ended)
        counts = {}
        for test in tests.values():
            counts[test["status"]] = counts.get(test["status"], 0) + 1
        status = last["status"] if last["status"] in ("timed out", "crashed", "not started") else None
        status = status or ("ok" if last["status"] == "ok" and set(counts) <= {"ok", "skipped"} else "failed")
        bad = {name: test for name, test in tests.items() if test["status"] not in ("ok", "skipped")}
        tail = "" if status == "ok" else last["tail"]
        result = {"counts": counts, "bad": bad, **({"not_compared": beyond} if beyond else {})}
        return {"status": status, "seconds": round(time.monotonic() - begin, 2), "starts": starts, "shards": shards,
                "exit_code": last["exit_code"], "tail": tail, "result": result}

    def _shard(self, context, deadline, shard, shards):
        """The tests of a shard, its starts, and the kernels that the host could not run."""
        tests, starts, beyond = {}, [], set()
        # The shards are cut from what the filter leaves: with another filter they would be others, so that the list is fixed first.
        names, failed = self._names(context, deadline, shard, shards)
        if failed:
            return tests, [failed], beyond
        while len(starts) < self.MOST_STARTS:
            command = [context.program(f"{self.room}_tests"), f"--gtest_filter={':'.join(n for n in names if n not in tests) or '-*'}"]
            if self.room == "ops":  # where those for GPUs alone are disabled
                command.append("--gtest_also_run_disabled_tests")
            ended = context.run(command, deadline - time.monotonic(), self.variables, silent=self.test_seconds)
            starts.append(ended.as_json())
            broken = read_tests(ended.output, tests)
            beyond.update(re.findall(r"kernel '([^']+)' was not compared with the host", ended.output))
            if broken:
                tests[broken] = {"status": ended.status, "message": ended.output[-1500:]}
            if not broken or deadline - time.monotonic() < 10:
                break
        return tests, starts, beyond

    def _names(self, context, deadline, shard, shards):
        """The shard's tests, every so many-th of the program's; or what ended the program that lists them."""
        command = [context.program(f"{self.room}_tests"), "--gtest_list_tests", f"--gtest_filter={self.only or '*'}-{self.leave_out}"]
        ended = context.run(command, min(60, deadline - time.monotonic()), {})
        if ended.status != "ok":
            return [], ended.as_json()
        names, suite = [], ""
        for line in ended.output.splitlines():
            word = line.split("#")[0].strip()
            if line.startswith("  "):
                names.append(suite + word)
            elif word.endswith("."):
                suite = word
        return names[shard::shards], None


def read_tests(output, tests):
    """Adds what a GoogleTest program said to `tests`, name -> status, seconds, message; gives the test that did not end."""
    running, since = None, 0
    for line in re.finditer(r"^\[ *(RUN|OK|FAILED|SKIPPED) *\] ([\w/.]+)(?: \((\d+) ms\))?", output, re.MULTILINE):
        kind, name, took = line.groups()
        if kind == "RUN":
            running, since = name, line.end()
        elif name == running:
            tests[name] = {"status": {"OK": "ok", "FAILED": "failed", "SKIPPED": "skipped"}[kind], "ms": int(took or 0)}
            if kind != "OK":
                tests[name]["message"] = output[since:line.start()].strip()[:1500]
            running = None
    return running
