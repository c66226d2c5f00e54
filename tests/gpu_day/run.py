"""Runs one slice and writes RESULTS_DIR/SLICE.json, which is whole JSON at any time; run.sh starts this."""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import machine
import process
import slices
from parts import Context

KIT = pathlib.Path(__file__).resolve().parent.parent
LIMIT = 520  # seconds of a slice; run.sh ends it at 535
AFTERWARDS = 12  # seconds that are kept for nvidia-smi and for writing
ENDED = ("ok", "failed")  # such parts are not run again; others were cut off
NOTHING_LEFT = 100


class Slice:
    def __init__(self, name, arguments):
        self.name, self.arguments = name, arguments
        self.begin = time.monotonic()
        self.path = pathlib.Path(arguments.results) / f"{name}.json"
        self.what, make = slices.REHEARSED[name]
        self.parts = make(arguments.rehearsal)
        self.data = {"slice": name, "what": self.what, "rehearsal": arguments.rehearsal,
                     "kit": json.loads((KIT / "manifest.json").read_text()), "complete": False, "runs": [], "parts": {}}
        self._take_up()
        self.this_run = {"started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
        self.data["runs"].append(self.this_run)

    def _take_up(self):
        """Keeps the parts that an earlier run of this slice, with this kit, has ended."""
        if not self.path.exists():
            return
        try:
            old = json.loads(self.path.read_text())
        except ValueError as error:
            self.path.rename(self.path.with_suffix(".unreadable"))
            self.say(f"{self.path.name} is no JSON ({error}); it is kept as {self.path.stem}.unreadable")
            return
        if old["rehearsal"] != self.arguments.rehearsal or old["kit"]["id"] != self.data["kit"]["id"]:
            sys.exit(f"{self.path} is of another kit or of a rehearsal: give another folder")
        self.data["runs"] = old["runs"]
        self.data["parts"] = old["parts"]

    def say(self, text):
        print(f"[{time.monotonic() - self.begin:4.0f} s of {self.arguments.seconds}] {self.name}: {text}", flush=True)

    def left(self):
        return self.arguments.seconds - AFTERWARDS - (time.monotonic() - self.begin)

    def write(self):
        self.this_run["seconds"] = round(time.monotonic() - self.begin, 1)
        self.data["complete"] = all(self.data["parts"].get(part.name, {}).get("status") in ENDED for part in self.parts)
        beside = self.path.with_name(self.path.name + ".part")
        beside.write_text(json.dumps(self.data, indent=1) + "\n")
        os.replace(beside, self.path)

    def run(self, scratch):
        self.this_run["machine"] = machine.describe()
        self.this_run["nvidia_smi"] = {"before": machine.nvidia_smi()}
        self.write()
        vulkan = machine.Vulkan(KIT, scratch, self.arguments.rehearsal)
        found = vulkan.find(self.arguments.device)
        self.this_run["vulkan"] = vulkan.as_json()
        self.write()
        if found:
            self.say(f"Vulkan: {vulkan.found}; {vulkan.listed.splitlines()[0]}")
            self.run_parts(Context(KIT, scratch, vulkan.with_libraries(vulkan.environment), self.arguments.rehearsal,
                                   self.arguments.device))
        else:
            self.this_run["error"] = "no GPU among the Vulkan devices: see vulkan.attempts"
            self.say(self.this_run["error"] + "; the last attempt said:\n" + vulkan.attempts[-1]["tail"][-2500:])
        self.this_run["nvidia_smi"]["after"] = machine.nvidia_smi()
        self.write()
        return found

    def run_parts(self, context):
        for part in self.parts:
            before = self.data["parts"].get(part.name)
            if before and before["status"] in ENDED and not self.arguments.again:
                self.say(f"{part.name}: ended in an earlier run ({before['status']})")
                continue
            seconds = min(part.seconds, self.left())
            if seconds < min(part.least, part.seconds):
                if not before:
                    self.data["parts"][part.name] = {"status": "not started", "note": "no time was left"}
                self.say(f"{part.name}: not started, no time is left; run the slice again")
                self.write()
                continue
            self.say(f"{part.name} (at most {seconds:.0f} s)")
            self.data["parts"][part.name] = self.run_part(part, context, seconds, before)
            self.write()

    def run_part(self, part, context, seconds, before):
        try:
            out = part.run(context, seconds, before)
        except Exception:
            out = {"status": "failed", "tail": traceback.format_exc()[-process.TAIL:]}
        out["run"] = len(self.data["runs"]) - 1
        last = out.get("tail", "").strip().splitlines()[-6:]
        self.say(f"{part.name}: {out['status']} after {out.get('seconds', 0):.0f} s" +
                 ("" if out["status"] == "ok" else "\n    " + "\n    ".join(last)))
        return out


def incomplete(results, after, rehearsal):
    """The first slice that is not complete; of `all`, the first after `after`, so that one that cannot end is passed."""
    names = list(slices.SLICES)
    for name in names[names.index(after) + 1 if after else 0:]:
        path = pathlib.Path(results) / f"{name}.json"
        try:
            if json.loads(path.read_text())["complete"]:
                continue
        except (OSError, ValueError, KeyError):
            pass
        return name
    return None


def arguments_of(words):
    parser = argparse.ArgumentParser(prog="run.sh", description="Runs one slice of the day; see README.md.")
    parser.add_argument("slice", choices=[*slices.REHEARSED, "list", "next"])
    parser.add_argument("results", nargs="?")
    parser.add_argument("--rehearsal", action="store_true")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=LIMIT)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--after", default="", help=argparse.SUPPRESS)  # of 'all'
    parser.add_argument("--say-slice", help=argparse.SUPPRESS)
    out = parser.parse_args(words)
    if out.slice != "list" and not out.results:
        parser.error("the folder for the results is missing")
    if out.slice == "faults" and not out.rehearsal:
        parser.error("'faults' is for rehearsals")
    out.seconds = min(out.seconds, LIMIT)
    return out


def execute(words):
    """A program of the kit where the GPU is found, as in a slice, to look closer at what failed."""
    rehearsal = words[0] == "--rehearsal"
    words = words[1:] if rehearsal else words
    with tempfile.TemporaryDirectory(prefix="gpu_day_") as folder:
        vulkan = machine.Vulkan(KIT, pathlib.Path(folder), rehearsal)
        if not vulkan.find(int(os.environ.get("GPU_DAY_DEVICE", "0"))):
            sys.exit("no GPU among the Vulkan devices:\n" + vulkan.attempts[-1]["tail"])
        return subprocess.call([str(KIT / "bin" / words[0]), *words[1:]], env=vulkan.with_libraries(vulkan.environment))


def ended(*_):
    """run.sh's time-out, or the user: what was measured is in the file already."""
    process.end_all()
    os._exit(3)


def main():
    if sys.argv[1:2] == ["exec"] and len(sys.argv) > 2:
        return execute(sys.argv[2:])
    arguments = arguments_of(sys.argv[1:])
    if arguments.slice == "list":
        for name, (what, _) in slices.SLICES.items():
            print(f"{name:14} {what}")
        return 0
    pathlib.Path(arguments.results).mkdir(parents=True, exist_ok=True)
    name = arguments.slice
    if name == "next":
        name = incomplete(arguments.results, arguments.after, arguments.rehearsal)
        if name is None:
            print("every slice is complete")
            return NOTHING_LEFT
    if arguments.say_slice:
        pathlib.Path(arguments.say_slice).write_text(name)
    signal.signal(signal.SIGTERM, ended)
    signal.signal(signal.SIGINT, ended)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="gpu_day_"))
    try:
        of_day = Slice(name, arguments)
        of_day.run(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    of_day.say(f"{'complete' if of_day.data['complete'] else 'NOT complete'}: {of_day.path}")
    bad = [part for part, of in of_day.data["parts"].items() if of["status"] != "ok"]
    if bad:
        of_day.say("not ok: " + ", ".join(bad))
    return 1 if bad or not of_day.data["complete"] else 0


if __name__ == "__main__":
    sys.exit(main())
