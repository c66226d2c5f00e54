#!/usr/bin/env python3
"""Time to a target where data comes over a network that is slower than the training step: a study at links of known speed.

    python3 tests/bench/echo_network.py DATA [STUDY.json] [--build build-test] [--out FOLDER] [--report] [-- WORDS FOR echotrain study]

DATA holds CIFAR-10 as shards cifar10-train-*.tar.zst and cifar10-test-*.tar.zst. Their samples are packed anew, 200 in a shard,
as something that is read sample by sample needs, and served by nginx on this machine (Python's http.server where it is missing)
through a proxy that limits what all connections together get (shaped_server.py). The training step is timed with shards that lie
ready, before the study begins; link "6" then delivers examples six times more slowly than the device trains on them, and so on
(--ratios). The study is samples/studies/echo_network.json where none is named; it reads
${data}/${link}/train-{000000..000249}.tar.zst, or up to the last shard of data of another size. Each trial runs alone.

Run it where nothing else runs: on a CPU the device's speed is what other work leaves of the cores, and R changes with it.
"""

import argparse
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

from shaped_server import Profile, ShapedProxy, WebServer

SAMPLES = pathlib.Path(__file__).resolve().parents[2] / "samples"
PER_SHARD, SHARDS = 200, 250  # of CIFAR-10
TEST_SAMPLES, MANY_TEST_SAMPLES = 500, 5000  # frequent evaluations are short, because upstream goes on meanwhile


def members_of(shards):
    """(name, bytes) of each file in the shards, in their order."""
    for shard in shards:
        plain = subprocess.run(["zstd", "-dcq", shard], check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
            for member in archive:
                if member.isfile():
                    yield member.name, archive.extractfile(member).read()


def samples_of(shards):
    """Lists of the files of a sample, which lie side by side and share a name up to the extension."""
    key, sample = None, []
    for name, content in members_of(shards):
        if key is not None and name.partition(".")[0] != key:
            yield sample
            sample = []
        key = name.partition(".")[0]
        sample.append((name, content))
    if sample:
        yield sample


def write_shard(path, samples):
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for sample in samples:
            for name, content in sample:
                header = tarfile.TarInfo(name)
                header.size = len(content)
                archive.addfile(header, io.BytesIO(content))
    with open(path, "wb") as file:
        subprocess.run(["zstd", "-cq"], check=True, input=plain.getvalue(), stdout=file)


def packed(data, folder):
    """Writes the shards; says how many there are for training, and how many bytes a sample takes in them."""
    count = {}
    for part, folders in (("train", {"train": None}), ("test", {"test": TEST_SAMPLES, "many": MANY_TEST_SAMPLES})):
        shards = sorted(pathlib.Path(data).glob(f"cifar10-{part}-*.tar.zst"))
        if not shards:
            sys.exit(f"echo_network: '{data}' has no cifar10-{part}-*.tar.zst; the first operand is the folder of CIFAR-10's shards")
        samples = list(samples_of(shards))
        count[part] = len(samples)
        for name, most in folders.items():  # test samples lie in one shard
            (folder / name).mkdir()
            chosen, per_shard = samples[:most], most or PER_SHARD
            for i in range(0, len(chosen), per_shard):
                write_shard(folder / name / f"{part}-{i // per_shard:06d}.tar.zst", chosen[i:i + per_shard])
    files = list((folder / "train").glob("*.tar.zst"))
    return len(files), sum(file.stat().st_size for file in files) / count["train"]


def fast_sample_bytes(options, folder):
    """Bytes of a sample in fast shards, by the first shard's samples: what a link would have to deliver of them."""
    images = folder / "images"
    for sample in samples_of(sorted(pathlib.Path(options.data).glob("cifar10-train-*.tar.zst"))[:1]):
        files = {name.partition(".")[2]: (name, content) for name, content in sample}
        name, content = next(file for suffix, file in files.items() if suffix != "cls")
        path = images / files["cls"][1].decode().strip() / name.replace("/", "-")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    command = [options.echotrain, "pack", images, folder / "fast", "--format", "fast", "--per-shard", str(PER_SHARD)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return sum(file.stat().st_size for file in folder.glob("fast-*.ets")) / sum(1 for file in images.glob("*/*"))


def speed_at_hand(options, folder, out, of_another_size):
    """Examples a second of the study's job where its shards lie on the disk; the first second is left out."""
    study = json.loads(pathlib.Path(options.study).read_text())
    job = pathlib.Path(options.study).parent / study["job"]
    words = [f"data={folder}", "link=train", f"out={out}", f"train.seconds={options.calibration_seconds}", "evaluation.every_steps=0"]
    command = [options.echotrain, "train", job, "--overwrite", *of_another_size] + [word for pair in words for word in ("--set", pair)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if row["kind"] == "step" and row["seconds"] > 1]
    return (steps[-1]["examples"] - steps[0]["examples"]) / (steps[-1]["seconds"] - steps[0]["seconds"])


def link(rate, latency):
    return Profile.steady(rate, latency=latency, burst_bytes=max(65536, int(rate / 20)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("study", nargs="?", default=str(SAMPLES / "studies/echo_network.json"))
    parser.add_argument("--build", default="build-test")
    parser.add_argument("--out", help="of the study; without it where 'echotrain study' writes")
    parser.add_argument("--ratios", default="0.5,1.5,2,4,6,8", help="how many times slower than the step the links are")
    parser.add_argument("--latency-ms", type=float, default=5, help="of each request")
    parser.add_argument("--calibration-seconds", type=float, default=8)
    options, options.words = parser.parse_known_args()
    options.words = [word for word in options.words if word != "--"]
    options.echotrain = pathlib.Path(options.build) / "tools/echotrain/echotrain"
    return options


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shards, sample_bytes = packed(options.data, folder)
        of_another_size = [] if shards == SHARDS else ["--set", f"last={shards - 1:06d}"]
        for ratio in options.ratios.split(","):
            (folder / ratio).symlink_to("train")
        speed = speed_at_hand(options, folder, folder / "calibration", of_another_size)
        print(f"data at hand: {speed:.0f} examples/s; {sample_bytes:.0f} bytes a sample; load {os.getloadavg()[0]:.1f}", flush=True)
        fast = fast_sample_bytes(options, folder)
        print(f"as fast shards: {fast:.0f} bytes a sample, {fast / sample_bytes:.1f} times as many; they save decoding, not transfers", flush=True)
        latency = options.latency_ms / 1e3
        links = {ratio: link(speed / float(ratio) * sample_bytes, latency) for ratio in options.ratios.split(",")}
        links[""] = Profile.steady(1e9)  # the test set
        with WebServer(folder) as server, ShapedProxy(server.port, links) as proxy:
            print(f"{server.kind} at {proxy.url}: " + ", ".join(f"R = {ratio}: {links[ratio].rate / 1e3:.0f} kB/s" for ratio in
                                                               options.ratios.split(",")), flush=True)
            words = ["--set", f"data={proxy.url}", *of_another_size] + (["--out", options.out] if options.out else []) + options.words
            sys.exit(subprocess.run([options.echotrain, "study", options.study, *words]).returncode)


if __name__ == "__main__":
    main()
