#!/usr/bin/env python3
"""Packs the kit and rehearses the day: every slice with tiny sizes on the CPU's Vulkan device, from an unpacked kit in an empty
environment; programs that fail; a machine without a GPU; the tables.

    python3 tests/gpu_day/rehearse.py BUILD_FOLDER
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import pack

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"  # the distribution's, which has its PyTorch
SLICES = ("a1_tests", "a2_compared", "b_kernels", "b2_choices", "c1_images", "c2_sequences", "d_tuning", "e_echo", "f_transformer")


def check(holds, what):
    if not holds:
        raise SystemExit(f"rehearsal: {what}")


def run(kit, *words, code=0):
    """run.sh as on a bare machine: nothing in the environment but which Python to take."""
    started = subprocess.Popen(["/bin/bash", kit / "run.sh", *map(str, words)], env={"PYTHON": PYTHON}, cwd="/", text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = ""
    for line in started.stdout:
        print(line, end="", flush=True)
        said += line
    check(started.wait() == code, f"run.sh {' '.join(map(str, words))} gave {started.returncode} instead of {code}")
    return said


def read(results, name):
    return json.loads((results / f"{name}.json").read_text())


def fails_with(words, function, *arguments):
    try:
        function(*arguments)
    except SystemExit as error:
        check(words in str(error), f"{error} does not say '{words}'")
        return
    raise SystemExit(f"rehearsal: nothing says '{words}'")


def incomplete_kits(kit, archive):
    """A kit that lacks a library, or is too large, is not packed."""
    library, away = kit / "lib" / "libz.so.1", kit / "away"
    library.rename(away)
    fails_with("needs libz.so.1, which is not in the kit", pack.check_complete, kit)
    away.rename(library)
    fails_with("above the 1 MiB", pack.check_size, archive, 1 << 20)
    check(not archive.exists(), "a kit that is too large was left")


def whole_day(kit, results):
    run(kit, "--rehearsal", "all", results)
    for name in SLICES:
        slice_ = read(results, name)
        bad = {part: of["status"] for part, of in slice_["parts"].items() if of["status"] != "ok"}
        check(slice_["complete"] and not bad and slice_["rehearsal"], f"{name} is not complete: {bad}")
        check("reason" in slice_["runs"][0]["nvidia_smi"]["before"] and "reason" in slice_["runs"][0]["nvidia_smi"]["after"],
              f"{name} does not say that there is no nvidia-smi")
        check("libvulkan.so.1" in slice_["runs"][0]["vulkan"]["spare_libraries"], "the kit's Vulkan loader was not tried")
    parts = [part for name in SLICES[:2] for room, part in read(results, name)["parts"].items() if room != "devices and limits"]
    tests = [part["result"]["counts"].get("ok", 0) for part in parts]
    check(len(tests) == 10 and min(tests) > 0, f"a test program ran no test: {tests}")
    kernels = [row for part in read(results, "b_kernels")["parts"].values() for row in part["result"]["rows"]]
    check(len(kernels) == 15 and all(row["about"]["error"] <= 1e-5 for row in kernels), "kernels are wrong or missing")
    choices = read(results, "b2_choices")["parts"]["choices"]["result"]["rows"]
    check(len(choices) == 2 and all(len(row["kernels"]) > 1 for row in choices), "kernels to choose from are missing")
    for row in (row for name in ("c1_images", "c2_sequences") for part in read(results, name)["parts"].values()
                for row in part["result"]["rows"]):
        # Of the first step, before any update: the same network, weights and batch on both sides.
        check(row["loss_differences"][0] < (5e-4 if row["precision"] == "fp32" else 2e-2), f"{row['name']}: {row['loss_differences']}")
        reasons = [row["sides"][side]["reason"] for side in ("compile", "CUDA graph")]
        # PyTorch 1.13 has no torch.compile; Debian 13's PyTorch 2.6 lacks headers that its compiler needs.
        check(reasons[0] is None or "has no torch.compile" in reasons[0] or reasons[0].startswith("BackendCompilerFailed"),
              f"{row['name']}: torch.compile: {reasons[0]}")
        check("CUDA" in reasons[1], f"{row['name']} does not say why there is no CUDA graph")
        check(row["sides"]["EchoTrain"]["examples_per_second"] > 0, f"{row['name']} was not measured")
    check(set(read(results, "e_echo")["parts"]["small CNN"]["result"]["ways"]) == {"no echoing", "host echo", "device echo"}, "echo")
    check(read(results, "f_transformer")["parts"]["translation bf16"]["result"]["last"]["step"] > 0, "the Transformer made no step")


def what_is_done_is_skipped(kit, results):
    check("every slice is complete" in run(kit, "--rehearsal", "next", results, code=100), "a complete day is not complete")
    before = read(results, "a2_compared")["parts"]
    check(run(kit, "--rehearsal", "a2_compared", results).count("ended in an earlier run") == len(before), "parts were run again")
    check(read(results, "a2_compared")["parts"] == before, "a slice that was complete has changed")


def faults(kit, results):
    """Programs that crash, hang, fail, flood or are missing leave JSON that says so, and the next one runs."""
    run(kit, "--rehearsal", "faults", results, code=1)
    parts = read(results, "faults")["parts"]
    expected = {"crashes": "crashed", "hangs": "timed out", "fails": "failed", "says too much": "ok", "leaves nothing": "failed",
                "is not there": "not started", "raises": "failed", "works": "ok"}
    check({name: part["status"] for name, part in parts.items()} == expected, f"{ {n: p['status'] for n, p in parts.items()} }")
    check(parts["crashes"]["signal"] == "SIGSEGV" and "last words" in parts["crashes"]["tail"], "of the crash nothing is left")
    check("waiting" in parts["hangs"]["tail"], "of the program that hung nothing is left")
    check(len(parts["says too much"]["tail"]) < 10000 and "the end" in parts["says too much"]["tail"], "the tail is not the end")


def crashing_tests(kit, results):
    """A test program in which one test crashes and another hangs: all others are run. A script plays GoogleTest."""
    program = kit / "bin" / "optim_tests"
    kept = program.read_text()
    program.write_text("""#!/bin/sh
case "$1" in
  --gtest_list_tests) echo A.; for name in First Crashes Hangs Last; do echo "  $name"; done; exit;;
esac
case "$1" in *A.First*) echo "[ RUN      ] A.First"; echo "[       OK ] A.First (1 ms)";; esac
case "$1" in *A.Crashes*) echo "[ RUN      ] A.Crashes"; kill -SEGV $$;; esac
case "$1" in *A.Hangs*) echo "[ RUN      ] A.Hangs"; exec sleep 600;; esac
case "$1" in *A.Last*) echo "[ RUN      ] A.Last"; echo "[       OK ] A.Last (1 ms)";; esac
""")
    sys.path.insert(0, str(kit / "gpu_day"))
    import parts
    context = parts.Context(kit, results, dict(os.environ), True, 0)
    one, more = parts.Tests("optim", 300, test_seconds=30), parts.Tests("optim", 300, test_seconds=30)
    one.MOST_SHARDS = 1
    out, sharded = one.run(context, 300, None), more.run(context, 300, None)
    program.write_text(kept)
    check(sharded["result"]["bad"].keys() == out["result"]["bad"].keys(), f"of crashing tests in shards: {sharded}")
    check(sharded["result"]["counts"] == out["result"]["counts"], f"of crashing tests in shards: {sharded}")
    check({name: test["status"] for name, test in out["result"]["bad"].items()} == {"A.Crashes": "crashed", "A.Hangs": "timed out"},
          f"of crashing tests: {out}")
    check(out["status"] == "failed" and out["starts"] == 3 and out["result"]["counts"]["ok"] == 2, f"of crashing tests: {out}")


def crashing_side(kit, folder):
    """EchoTrain's side of a benchmark dies at every kernel: each row says so, with its last words."""
    program, out = folder / "side", folder / "dying.json"
    program.write_text(f"""#!/bin/sh
if [ ! -e '{folder}/began' ]; then
  touch '{folder}/began'
  read line; echo '{{"devices": []}}'
  read line; echo '{{"flops_per_s": 1, "bytes_per_s": 1}}'
fi
read line; echo the GPU has fallen off the bus >&2; kill -SEGV $$
""")
    program.chmod(0o755)
    done = subprocess.run([PYTHON, kit / "bench" / "kernel_bench.py", "--program", program, "--cpu", "--tiny", "--out", out, "memory"],
                          capture_output=True)
    rows = json.loads(out.read_text())["rows"]
    check(done.returncode == 1 and len(rows) == 4 and all("fallen off the bus" in row["error"] for row in rows), f"of a crash: {rows}")


def ways_through_cuda(kit, folder):
    """The benchmarks with a PyTorch that pretends to have CUDA: graphs and torch.compile are called as they should be."""
    environment = {"GPU_DAY_LIBRARIES": str(kit / "spare"), "HOME": str(folder)}

    def rows(benchmark, *words):
        out = folder / f"pretended-{benchmark}.json"
        subprocess.run([PYTHON, HERE / "pretend_cuda.py", kit / "bench" / benchmark, "--program", kit / "bin" / "side_bench", "--tiny",
                        "--out", out, *words], check=True, env=environment)
        return json.loads(out.read_text())["rows"]

    sides = rows("gpu_train_bench.py", "mlp:fp32")[0]["sides"]
    lacking = [name for name, side in sides.items() if "examples_per_second" not in side]
    check(len(sides) == 6 and not lacking, f"with CUDA these would not be measured: {lacking}")
    for row in rows("kernel_bench.py", "attention", "memory"):
        check(all(side["seconds"] > 0 and not side.get("reason") for side in row["sides"].values()), f"{row['name']}: {row['sides']}")


def cut_off(kit, results):
    """A slice that has no time left says so, is whole JSON, and is taken up again."""
    folder = results / "cut"
    run(kit, "--rehearsal", "--seconds", "13", "a2_compared", folder, code=1)
    slice_ = read(folder, "a2_compared")
    check(not slice_["complete"] and {part["status"] for part in slice_["parts"].values()} == {"not started"}, "nothing was cut off")
    run(kit, "--rehearsal", "a2_compared", folder)
    slice_ = read(folder, "a2_compared")
    check(slice_["complete"] and len(slice_["runs"]) == 2, "the slice was not taken up again")


def bare_machine(kit, results):
    """Without a GPU nothing is measured, and what was tried to find one is kept; an old C library is refused in words."""
    folder = results / "no_gpu"
    check("no GPU among the Vulkan devices" in run(kit, "f_transformer", folder, code=1), "a CPU was taken for a GPU")
    slice_ = read(folder, "f_transformer")
    check(slice_["parts"] == {} and len(slice_["runs"][0]["vulkan"]["attempts"]) >= 4, "attempts are missing")
    check("CPU" in run(kit, "exec", "--rehearsal", "echotrain", "devices"), "a program does not run where a slice would")
    wanted = (kit / "glibc").read_text()
    (kit / "glibc").write_text("99.1\n")
    check("need 99.1 or later" in run(kit, "list", code=2), "an old C library is not named")
    (kit / "glibc").write_text(wanted)


def tables(results, folder):
    """Rehearsals stay out of documents. As if they were measurements: what is missing is named, and the text is the same again."""
    program = [sys.executable, HERE / "tables.py"]
    document = folder / "performance_gpu.md"
    document.write_text((HERE.parent.parent / "docs" / "performance_gpu.md").read_text())
    original = document.read_text()

    def run_tables(*words, code=0):
        done = subprocess.run([*program, *words], text=True, capture_output=True)
        check(done.returncode == code, f"tables.py: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    check("do not go into" in run_tables(results, "--docs", document, code=1), "a rehearsal was taken for a measurement")
    check(document.read_text() == original, "a rehearsal changed the document")
    run_tables(results, "--out", folder / "rehearsal.md")
    check((folder / "rehearsal.md").read_text().count("REHEARSAL") == len(SLICES), "a rehearsal is not marked")

    day = folder / "day"
    day.mkdir()
    for name in SLICES[:-1]:
        (day / f"{name}.json").write_text(json.dumps({**read(results, name), "rehearsal": False}))
    said = run_tables(day, "--docs", document)
    check("f_transformer: MISSING" in said and "a1_tests" not in said, f"what is missing: {said}")
    once = document.read_text()
    check("REHEARSAL" not in once and "ResNet-50" in once and once.startswith(original[:2000]), "the document is not as it should be")
    run_tables(day, "--docs", document)
    check(document.read_text() == once, "the second time gives another text")


def main():
    build, begin = pathlib.Path(sys.argv[1]).resolve(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu day ") as folder:  # a name that has to be quoted
        folder = pathlib.Path(folder)
        subprocess.run([sys.executable, HERE / "pack.py", build, folder / "kit.tar.xz"], check=True)
        subprocess.run([PYTHON, "-m", "tarfile", "-e", folder / "kit.tar.xz", folder], check=True)
        kit, results = folder / "gpu_day_kit", folder / "results"
        incomplete_kits(kit, folder / "kit.tar.xz")
        whole_day(kit, results)
        what_is_done_is_skipped(kit, results)
        faults(kit, results)
        crashing_tests(kit, folder)
        crashing_side(kit, folder)
        ways_through_cuda(kit, folder)
        cut_off(kit, results)
        bare_machine(kit, results)
        tables(results, folder)
    print(f"rehearsed in {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
