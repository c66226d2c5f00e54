#!/usr/bin/env python3
"""Turns the results of the day into the tables of docs/performance_gpu.md.

    python3 tests/gpu_day/tables.py RESULTS_DIR [--docs docs/performance_gpu.md | --out FILE.md]

Writes between the markers of the document, or a file of its own, and prints which slices are missing or not complete. The same
results give the same text. What was not measured is not written; where a side has no figure, its reason stands there. Rehearsals
are no measurements: they are refused for a document, and marked in a file of its own.
"""

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BEGIN, END = "<!-- gpu_day: begin -->", "<!-- gpu_day: end -->"
NOTHING = "No GPU has been at hand yet: there are no figures, and none are claimed."
KERNELS_SHOWN = 10  # rows of a step's profile


def slice_names():
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    import slices
    return list(slices.SLICES)


def load(folder):
    """Slice -> what it wrote, in the order of the day."""
    out = {}
    for name in slice_names():
        path = pathlib.Path(folder) / f"{name}.json"
        if path.exists():
            out[name] = json.loads(path.read_text())
    return out


# Text ----------------------------------------------------------------------------------------------------------------

def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows] + [""] if rows else []


def number(value):
    """Three digits, thousands apart; nothing where there is none."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def share(part, whole):
    return f"{100 * part / whole:.1f} %" if part and whole else ""


def cell(side, of_seconds):
    """A figure, or why there is none."""
    if side and side.get("seconds"):
        return number(of_seconds(side["seconds"]))
    return short(side["reason"]) if side and side.get("reason") else "not measured"


def short(reason):
    text = " ".join(str(reason).split()).replace("|", "/")
    return text if len(text) <= 80 else text[:77] + "..."


def seconds_of(row, side):
    return row["sides"].get(side, {}).get("seconds")


def rows_of(slice_, *parts):
    """The rows of these benchmarks, without those that failed."""
    out = []
    for name, part in slice_["parts"].items():
        if (not parts or name in parts) and part.get("result"):
            out += [row for row in part["result"].get("rows", []) if "error" not in row]
    return out


# Where it was measured -------------------------------------------------------------------------------------------------

def measured_in(slice_):
    """The runs of the slice that found a GPU."""
    return [run for run in slice_["runs"] if "error" not in run]


def provenance(slice_):
    """One line a slice: when, on what, with which build."""
    runs = measured_in(slice_)
    run, dates = runs[-1], ", ".join(sorted({run["started"][:10] for run in runs}))
    smi = run.get("nvidia_smi", {}).get("before", {}).get("query", "").splitlines()
    fields = [field.strip() for field in smi[1].split(",")] if len(smi) > 1 else []
    gpu = f"{fields[1]}, driver {fields[3]}" if len(fields) > 3 else run.get("vulkan", {}).get("devices", "?").splitlines()[0]
    torch = next((part["result"]["torch"]["version"] for part in slice_["parts"].values()
                  if isinstance(part.get("result"), dict) and part["result"].get("torch")), None)
    about = run["machine"]
    return (f"{dates}, {gpu}, {about['cores']} cores of {about['cpu']}, {about['system']}"
            f"{', PyTorch ' + torch if torch else ''}, commit {slice_['kit']['commit']}.")


def not_ok(slice_):
    """What did not end well, and rows of benchmarks that have no figures."""
    bad = [f"{name} ({part['status']})" for name, part in slice_["parts"].items() if part["status"] != "ok"]
    lines = [f"Not ok: {', '.join(bad)}.", ""] if bad else []
    reasons = {part["result"]["torch"]["reason"] for part in slice_["parts"].values()
               if isinstance(part.get("result"), dict) and (part["result"].get("torch") or {}).get("reason")}
    lines += [line for reason in sorted(reasons) for line in (f"PyTorch was not measured: {short(reason)}", "")]
    for part in slice_["parts"].values():
        rows = part["result"].get("rows", []) if isinstance(part.get("result"), dict) else []
        lines += [line for row in rows if "error" in row for line in (f"{row['name']} failed: {short(row['error'])}", "")]
    return lines


# Slices ------------------------------------------------------------------------------------------------------------------

def tests(slice_):
    lines = []
    for name, part in slice_["parts"].items():
        if name == "devices and limits" and part.get("result"):
            devices, roof = part["result"]
            chosen = devices["chosen"]
            units = sorted({unit["element"] for unit in chosen["matrix_units"]})
            lines += [f"{chosen['name']}: Vulkan {chosen['vulkan']}, subgroups of {chosen['subgroup_size']}, "
                      f"{chosen['max_shared_bytes'] // 1024} KB of shared memory, matrix units for {', '.join(units) or 'nothing'}, "
                      f"kernels '{devices['kernels']}'; {number(roof['flops_per_s'] * 1e-9)} GFLOP/s in fp32 and "
                      f"{number(roof['bytes_per_s'] * 1e-9)} GB/s by kernels that do nothing else.", ""]
    rows = []
    for name, part in slice_["parts"].items():
        if name != "devices and limits" and part.get("result"):
            counts, bad = part["result"]["counts"], part["result"]["bad"]
            rows.append([name, counts.get("ok", 0), counts.get("skipped", 0), len(bad), number(part["seconds"]),
                         ", ".join(sorted(bad)[:6])])
    beyond = sorted({name for part in slice_["parts"].values() if isinstance(part.get("result"), dict)
                     for name in part["result"].get("not_compared", [])})
    told = [f"Not compared, because the host cannot run them: {', '.join(beyond)}.", ""] if beyond else []
    return lines + table(["", "passed", "skipped", "failed or cut off", "seconds", "which"], rows) + told


def kernels(slice_):
    lines = []
    products = rows_of(slice_, "product")
    rate = lambda row: lambda seconds: row["about"]["flops"] / seconds * 1e-12
    for precision, other in (("fp32", ("torch fp32", "torch TF32")), ("bf16", ("torch bf16",)), ("fp16", ("torch fp16",))):
        of = sorted((row for row in products if row["request"]["precision"] == precision), key=lambda row: row["request"]["n"])
        lines += table([f"product in {precision}", "EchoTrain", *other, f"ratio to {other[0]}", "kernels"], [
            [f"{row['request']['n']}³", *(cell(row["sides"].get(side), rate(row)) for side in ("EchoTrain", *other)),
             share(seconds_of(row, other[0]), seconds_of(row, "EchoTrain")), wrong(row)] for row in of])
    if products:
        lines = ["TFLOP/s.", ""] + lines
    gigabytes = lambda row: lambda seconds: row["about"]["bytes"] / seconds * 1e-9
    lines += table(["memory, GB/s", "EchoTrain", "PyTorch", "ratio", "kernels"], [
        [row["request"]["part"].replace("_", " "), cell(row["sides"].get("EchoTrain"), gigabytes(row)),
         cell(row["sides"].get("torch fp32"), gigabytes(row)), share(seconds_of(row, "torch fp32"), seconds_of(row, "EchoTrain")),
         wrong(row)] for row in rows_of(slice_, "memory")])
    head = ["attention, causal, TFLOP/s", "part", "EchoTrain, fp32", "torch fp32", "torch bf16", "ratio to fp32", "kernels"]
    lines += table(head, [
        ["[{batch}, {positions}, {width}], {heads} heads".format(**row["request"]), row["request"]["part"],
         *(cell(row["sides"].get(side), rate(row)) for side in ("EchoTrain", "torch fp32", "torch bf16")),
         share(seconds_of(row, "torch fp32"), seconds_of(row, "EchoTrain")), wrong(row)] for row in rows_of(slice_, "attention")])
    return lines + convolutions(rows_of(slice_, "convolution"), rate)


def choices(slice_):
    rows = []
    for row in rows_of(slice_):
        rate = lambda kernel, row=row: row["flops"] / kernel["seconds"] * 1e-12
        first, best = row["kernels"][0], min(row["kernels"], key=lambda kernel: kernel["seconds"])
        rows.append([row["name"], number(rate(first)), number(rate(best)), share(best["seconds"], first["seconds"]), first["kernel"],
                     best["kernel"] if best is not first else ""])
    return table(["product", "first choice, TFLOP/s", "fastest", "ratio", "first choice", "fastest, if another"], rows)


def convolutions(found, rate):
    rows = []
    for row in found:
        request, theirs = row["request"], f"torch {row['request']['precision']}"
        shape = "[{batch}, {size}, {size}, {channels}] → {filters}, {kernel} × {kernel}, stride {stride}".format(**request)
        rows.append([shape, request["part"].replace("_", " "), request["precision"],
                     *(cell(row["sides"].get(side), rate(row)) for side in ("EchoTrain", theirs)),
                     cell(row["sides"].get("torch TF32"), rate(row)) if request["precision"] == "fp32" else "",
                     share(seconds_of(row, theirs), seconds_of(row, "EchoTrain")), wrong(row)])
    return table(["convolution, TFLOP/s", "part", "precision", "EchoTrain", "PyTorch", "with TF32", "ratio", "kernels"], rows)


def wrong(row):
    names = ", ".join(row["about"]["kernels"])
    return f"**WRONG: an error of {row['about']['error']}**, {names}" if row.get("wrong") else names


def training(slice_):
    rows = []
    for row in rows_of(slice_):
        own = seconds_of(row, "EchoTrain")
        per_second = lambda seconds, row=row: row["batch"] / seconds
        best = min((side["seconds"] for name, side in row["sides"].items()
                    if side.get("seconds") and name != "EchoTrain" and "TF32" not in name), default=None)
        tf32 = cell(row["sides"].get("CUDA graph, TF32"), per_second) if row["precision"] == "fp32" else ""
        rows.append([f"{row['case']}, batch {row['batch']}, {row['parameters'] / 1e6:.1f} M", row["precision"],
                     cell(row["sides"].get("EchoTrain"), per_second),
                     *(cell(row["sides"].get(side), per_second) for side in ("eager", "compile", "CUDA graph")), tf32,
                     share(seconds_of(row, "eager"), own), share(best, own),
                     loss_differences(row)])
    text = ["Examples a second, data in device memory, medians of rounds in turns; ratios of the same run. Losses: relative "
            "difference from PyTorch's eager steps, of the first step and of the worst of five.", ""]
    lines = table(["network", "precision", "EchoTrain", "PyTorch eager", "torch.compile", "CUDA graph", "CUDA graph, TF32",
                   "ratio to eager", "ratio to the fastest", "losses differ by"], rows)
    return (text + lines if lines else []) + warm_up(slice_)


def loss_differences(row):
    of = row.get("loss_differences")
    return f"{of[0]:.0e}, {max(of):.0e}" if of else "not compared"


def warm_up(slice_):
    """What each side needed before its steps were steady."""
    sides = ("EchoTrain", "eager", "CUDA graph", "compile")
    rows = [[row["name"], *(number(row["sides"].get(side, {}).get("ready_after_seconds")) for side in sides)] for row in rows_of(slice_)]
    return table(["seconds until ready", *sides], rows)


def tuning(slice_):
    lines = []
    for name, part in slice_["parts"].items():
        result = part.get("result") or {}
        if result.get("tuner"):
            lines += [f"{name}: {result['tuner']['said']}.", ""]
        kind = "after" if result.get("after") else "before"
        if result.get(kind):
            lines += profile(f"{name}, {'tuned' if kind == 'after' else 'not tuned'}", result[kind])
    return lines


def profile(name, result):
    total, rows = result["seconds"], {}
    for row in result["ops"]:
        sum_ = rows.setdefault(row["kernel"], {"calls": 0, "seconds": 0, "flops": 0, "bytes": 0})
        sum_["calls"] += row["calls"]
        sum_["seconds"] += row["seconds"]
        sum_["flops"] += row["flops_per_s"] * row["seconds"]
        sum_["bytes"] += row["bytes_per_s"] * row["seconds"]
    roof = result["roof"]
    longest = sorted(rows.items(), key=lambda row: -row[1]["seconds"])[:KERNELS_SHOWN]
    return table([f"{name}: {1e3 * total:.3g} ms in kernels", "ms", "share", "calls", "GFLOP/s", "GB/s", "of the roof"], [
        [kernel, number(1e3 * of["seconds"]), share(of["seconds"], total), of["calls"], number(of["flops"] / of["seconds"] * 1e-9),
         number(of["bytes"] / of["seconds"] * 1e-9),
         share(max(of["flops"] / roof["flops_per_s"], of["bytes"] / roof["bytes_per_s"]), of["seconds"])]
        for kernel, of in longest if of["seconds"] > 0])


def echo(slice_):
    lines = []
    for name, part in slice_["parts"].items():
        result = part.get("result")
        if not result:
            continue
        ready, of = result["ready"]["examples_per_second"], result["arguments"]
        median = lambda runs, key: sorted(run[key] for run in runs)[len(runs) // 2]
        lines += table([f"{name}, {of['size']} × {of['size']}, batch {of['batch']}; {number(ready)} examples/s when nothing waits",
                        "examples/s", "of a ready upstream", "device waits", "processor time an example"], [
            [way, number(median(runs, "examples_per_second")), share(median(runs, "examples_per_second"), ready),
             f"{100 * median(runs, 'waits'):.1f} %", f"{median(runs, 'cpu_ms_per_example'):.3g} ms"]
            for way, runs in result["ways"].items()])
    return lines


def transformer(slice_):
    rows = []
    for name, part in slice_["parts"].items():
        result = part.get("result")
        if not result:
            continue
        last, seen = result["last"], result["evaluations"]
        unseen = [number(seen[-1]["eval_loss"]), f"{100 * seen[-1]['eval_accuracy']:.2f} %"] if seen else ["not evaluated"] * 2
        rows.append([name, last["step"], number(last["seconds"]), number(last["examples"] / last["seconds"]), number(last["loss"]),
                     *unseen])
    return table(["", "steps", "seconds", "sequences/s", "last training loss", "loss of unseen sentences", "words right"], rows)


TABLES = {"a1_tests": tests, "a2_compared": tests, "b_kernels": kernels, "b2_choices": choices, "c1_images": training, "c2_sequences": training,
          "d_tuning": tuning, "e_echo": echo, "f_transformer": transformer}


def render(results):
    if not results:
        return NOTHING + "\n"
    lines = []
    for name, slice_ in results.items():
        what = slice_["what"][0].upper() + slice_["what"][1:]
        lines += [f"### {'REHEARSAL ON A CPU, NO MEASUREMENT: ' if slice_['rehearsal'] else ''}{what}", ""]
        if not measured_in(slice_):
            lines += [f"Nothing was measured: {slice_['runs'][-1]['error']}.", ""]
        else:
            lines += [provenance(slice_), "", *not_ok(slice_), *TABLES[name](slice_)]
    return "\n".join(lines).rstrip() + "\n"


def into(document, text):
    """The document with `text` between its markers."""
    if document.count(BEGIN) != 1 or document.count(END) != 1 or document.index(BEGIN) > document.index(END):
        sys.exit(f"the document needs the lines {BEGIN} and {END}, once each")
    return re.sub(re.escape(BEGIN) + ".*" + re.escape(END), lambda _: f"{BEGIN}\n\n{text}\n{END}", document, flags=re.DOTALL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs" / "performance_gpu.md")
    parser.add_argument("--out", type=pathlib.Path, help="a file of its own instead")
    arguments = parser.parse_args()
    results = load(arguments.results)
    for name in slice_names():
        if name not in results:
            print(f"{name}: MISSING")
        elif not results[name]["complete"]:
            print(f"{name}: not complete: " + ", ".join(
                part for part, of in results[name]["parts"].items() if of["status"] not in ("ok", "failed")))
    text = render(results)
    if arguments.out:
        arguments.out.write_text(text)
        print(f"wrote {arguments.out}")
        return
    rehearsed = [name for name, slice_ in results.items() if slice_["rehearsal"]]
    if rehearsed:
        sys.exit(f"{', '.join(rehearsed)}: rehearsals are no measurements and do not go into {arguments.docs.name}; "
                 "--out FILE shows them")
    arguments.docs.write_text(into(arguments.docs.read_text(), text))
    print(f"wrote {arguments.docs}")


if __name__ == "__main__":
    main()
