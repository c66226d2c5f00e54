"""What is measured on the day, the most valuable first. Each slice takes at most nine minutes and needs no other; within a
slice, too, what matters most comes first. A rehearsal runs the same parts with tiny sizes."""

import json

import jobs
from parts import Benchmark, Chain, Command, Tests

ROOMS = ("gpu", "optim", "graph", "ops", "train")  # the quick ones first
# Their tests are about whole runs, whose kernels the others compare.
NOT_COMPARED = "*Trainer*:Faults*:Job*:Report*:Learner*:Device*"
# In a rehearsal: some of each kind. All of them run elsewhere on such a device.
FEW = {"gpu": "*", "ops": "DenseOp.*", "graph": "MemoryPlan.*", "optim": "*", "train": "HostDevice.*:EventFile.*"}


def _device(context):
    return [] if context.rehearsal else ["--device", context.selector]


def _side(context, name, out, *arguments):
    tiny = ["--cpu", "--tiny"] if context.rehearsal else []
    return context.benchmark(name, "--program", context.program("side_bench"), "--out", out, *_device(context), *tiny, *arguments)


def limits(rehearsal):
    read = lambda context, output: [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [Command("devices and limits", 60, lambda c: [c.program("side_bench"), *_device(c)], read,
                    text='{"case": "devices"}\n{"case": "roof"}\n')]


def tests(rehearsal):
    only = lambda room: FEW[room] if rehearsal else ""
    return limits(rehearsal) + [Tests(room, 240, only=only(room)) for room in ROOMS]


def compared(rehearsal):
    only = lambda room: FEW[room] if rehearsal else ""
    return [Tests(room, 300, leave_out=NOT_COMPARED, only=only(room), ECHOTRAIN_TEST_COMPARE="1") for room in ROOMS]


def kernels(rehearsal):
    one = lambda part: Benchmark(part, 240, lambda c, out: _side(c, "kernel_bench.py", out, part))
    return [one(part) for part in ("product", "memory", "attention", "convolution")]


def choices(rehearsal):
    return [Benchmark("choices", 500, lambda c, out: _side(c, "kernel_choices.py", out))]


def _training(*cases):
    one = lambda case: Benchmark(case, 300, lambda c, out: _side(c, "gpu_train_bench.py", out, case), least=60)
    return [one(case) for case in cases]


def images(rehearsal):
    return _training("resnet50:fp32", "resnet20:fp32", *(() if rehearsal else ("resnet50:bf16", "resnet20:bf16")))


def sequences(rehearsal):
    return _training("transformer:fp32", "mlp:fp32", "transformer:bf16", "mlp:bf16")


def _models(rehearsal):
    """name -> a function of a folder that makes the job."""
    if rehearsal:  # few products: for each the tuner compiles a dozen kernels
        images = {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 10}]}
        text = {"inputs": ["input"], "layers": [{"layer": "embedding", "entries": 11, "width": 16}, {"layer": "dense", "units": 11}],
                "loss": {"target": "target"}}
        return {"resnet20": lambda f: jobs.image_job(f, images, 8, 2, 8),
                "transformer": lambda f: jobs.decoder_job(f, text, 11, 8, 2, 8)}
    decoder = {"model": "transformer_decoder", "vocab_size": 8192, "blocks": 8, "width": 512, "heads": 8, "dropout": 0}
    return {"resnet50": lambda f: jobs.image_job(f, {"model": "resnet", "depth": 50}, 224, 64, 256),
            "transformer": lambda f: jobs.decoder_job(f, decoder, 8192, 256, 32, 256),
            "resnet20": lambda f: jobs.image_job(f, {"model": "cifar_resnet", "depth": 20}, 32, 128, 1024)}


def _json_within(context, output):
    out = json.loads(output[output.index("\n{") if "\n{" in output else output.index("{"):])
    out.pop("traceEvents", None)
    return out


def tuning(rehearsal):
    return [_tune_and_profile(f"{name} {precision}", name, make, precision, rehearsal)
            for precision in (("fp32",) if rehearsal else ("fp32", "bf16")) for name, make in _models(rehearsal).items()]


def _tune_and_profile(label, name, make, precision, rehearsal):
    folder = lambda c: c.scratch / f"job-{name}"
    tuned = lambda c: c.scratch / f"tuned-{name}-{precision}.json"

    def job(c):
        path = folder(c) / "job.json"
        return path if path.exists() else make(folder(c))

    def profile(c, *more):
        return [c.program("echotrain"), "profile", job(c), "--json", "--steps", 2 if rehearsal else 10, "--set",
                f"model.precision={precision}", *_device(c), *more]

    def tune(c):
        return [c.program("echotrain"), "tune-kernels", job(c), "--out", tuned(c), "--set", f"model.precision={precision}", *_device(c)]

    def read_tuned(c, output):
        times = [line for line in output.splitlines() if line.startswith("a training step takes")]
        return {"said": times[-1], "choices": json.loads(tuned(c).read_text())}

    commands = [Command("before", 120, profile, _json_within), Command("tuner", 200, tune, read_tuned),
                Command("after", 120, lambda c: profile(c, "--tuning", tuned(c)), _json_within)]
    return Chain(label, 300, commands[:1] if rehearsal and name == "transformer" else commands)


def echo(rehearsal):
    def command(context, name, *arguments):
        return context.benchmark("device_echo.py", "--echotrain", context.program("echotrain"), "--json",
                                 context.scratch / f"{name}.json", *arguments)
    sizes = {"small CNN": ("--seconds", 2, "--rounds", 1, "--size", 16, "--samples", 64, "--batch", 8)} if rehearsal else {
        "ResNet-18": ("--seconds", 12, "--rounds", 3, "--size", 128, "--resnet", 18, "--samples", 2000, "--scaled"),
        "small CNN": ("--seconds", 8, "--rounds", 3, "--size", 64)}
    return [Command(name, 280, lambda c, name=name, more=more: command(c, name.replace(" ", "_"), *more),
                    lambda c, output, name=name: json.loads((c.scratch / f"{name.replace(' ', '_')}.json").read_text()))
            for name, more in sizes.items()]


def transformer(rehearsal):
    """Vaswani et al. 2017, the base model: six blocks each of encoder and decoder, width 512, 8 heads."""
    def train(context, precision, seconds):
        shape = dict(blocks=1, width=16, heads=2) if rehearsal else dict(blocks=6, width=512, heads=8)
        sizes = (12, 6, 8, 64) if rehearsal else (4096, 32, 128, 16384)
        job = jobs.translation_job(context.scratch / f"translate-{precision}", *sizes, seconds, precision=precision, **shape)
        return [context.program("echotrain"), "train", job, *_device(context)]

    def read(context, precision):
        folder = context.scratch / f"translate-{precision}"
        rows = [json.loads(line) for line in (folder / "out" / "metrics.jsonl").read_text().splitlines()]
        steps = [row for row in rows if row["kind"] == "step"]
        job = json.loads((folder / "job.json").read_text())
        return {"model": job["model"], "batch": job["pipeline"]["stages"][-1]["size"], "last": steps[-1],
                "curve": steps[:: max(1, len(steps) // 200)], "evaluations": [row for row in rows if row["kind"] == "evaluation"]}

    lengths = {"bf16": 5} if rehearsal else {"bf16": 240, "fp32": 180}
    return [Command(f"translation {precision}", seconds + (240 if rehearsal else 60), lambda c, p=precision, s=seconds: train(c, p, s),
                    lambda c, output, p=precision: read(c, p), least=60) for precision, seconds in lengths.items()]


def faults(rehearsal):
    """Not of the day: what the runner makes of programs that fail. Only in rehearsals."""
    shell = lambda name, text, seconds=20, read=None: Command(name, seconds, lambda c: ["sh", "-c", text], read)
    return [shell("crashes", "echo last words; kill -SEGV $$"), shell("hangs", "echo waiting; sleep 600 & sleep 600", 5),
            shell("fails", "echo not today; exit 3"), shell("says too much", "yes | head -c 20000000; echo the end"),
            shell("leaves nothing", "true", read=lambda c, output: json.loads((c.scratch / "nothing.json").read_text())),
            Command("is not there", 5, lambda c: [c.program("nothing")]),
            Command("raises", 5, lambda c: 1 / 0), shell("works", "echo fine")]


# name -> (what for, its parts)
SLICES = {
    "a1_tests": ("devices, limits and every test of gpu, ops, graph, optim and train", tests),
    "a2_compared": ("the same tests with everything the device computes compared with the host", compared),
    "b_kernels": ("single kernels beside PyTorch", kernels),
    "b2_choices": ("every kernel of products and convolutions: is the first choice the fastest?", choices),
    "c1_images": ("ResNet-50 and ResNet-20 training beside PyTorch", images),
    "c2_sequences": ("training networks without convolutions beside PyTorch", sequences),
    "d_tuning": ("a step's time, kernel by kernel", tuning),
    "e_echo": ("echo and device echo with upstream eight times too slow", echo),
    "f_transformer": ("the paper's base Transformer learns to translate", transformer),
}
REHEARSED = {**SLICES, "faults": ("programs that fail", faults)}
