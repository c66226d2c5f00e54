#!/usr/bin/env python3
"""Reads over the network from a server whose answers go wrong, every fault of server_faults.py by itself and in random combinations.

    fault_matrix.py [--trials 500] [--seed 1] [--only NUMBER]

After each trial: what was read is what the server has, byte for byte, or the read ended with an error of the library, within the time
that its options promise; faults that another try gets past were got past; and the file can be read whole from then on, also from the
cache. Bad records that are skipped leave out samples, and change none. PYTHONPATH has to name the package `echotrain`.
"""

import argparse
import gzip
import io
import os
import pathlib
import random
import sys
import tarfile
import tempfile

import numpy as np

import echotrain as et
import server_checks
from certificates import Authority
from faulty_server import Server
from reading import ALLOWED, SLACK_S, Reading, longest_pauses_s
from server_faults import FAULTS, HARMLESS, PASSING

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "bindings"))
from png import png  # noqa: E402

TIMEOUT_S = 1.0
LINES = [f"line {i}: {random.Random(i).getrandbits(256):x}".encode() for i in range(1500)]


def tar_of(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def make_files(root):
    """The served files, by name, and the stage that reads each."""
    dice = random.Random(7)
    text = b"\n".join(LINES) + b"\n"
    members = [(f"{i:04}.bin", dice.randbytes(700)) for i in range(100)]
    rows = "x,name\n" + "".join(f"{i},row {i}\n" for i in range(5000))
    for i in range(40):
        (root / "images" / str(i % 2)).mkdir(parents=True, exist_ok=True)
        (root / "images" / str(i % 2) / f"{i}.png").write_bytes(png(np.random.default_rng(i).integers(0, 255, (24, 24, 3), np.uint8)))
    et.pack_folder(root / "images", root / "fast", per_shard=40, format="fast")
    et.pack_folder(root / "images", root / "train", per_shard=40)
    files = {"a.txt": text, "a.txt.gz": gzip.compress(text, mtime=0), "a.tar": tar_of(members), "a.csv": rows.encode()}
    for name in ("fast-000000.ets", "train-000000.tar.zst"):
        files[name] = (root / name).read_bytes()
    return files


class Trial:
    """One file, and the faults that some requests for it meet: by the begin of the part that is asked for, those of its tries in turn."""

    def __init__(self, number, options, servers):
        self.number, self.seed = number, options.seed
        dice = self.dice = random.Random(options.seed * 1_000_003 + number)
        names = list(FAULTS)
        scheme = dice.choice(("http", "http", "s3", "https"))
        self.server = servers["https" if scheme == "https" else "http"]
        self.name = dice.choice(sorted(self.server.files))
        host = f"localhost:{self.server.port}"
        self.address = f"s3://bucket/{self.name}" if scheme == "s3" else f"{scheme}://{host}/files/{self.name}"
        self.part = dice.choice((2048, 5000, 16384, 60000))
        self.cached = self.name.endswith(".ets") or dice.random() < 0.3
        # First each fault by itself, for one request or for all; then several, at random.
        alone = number < 2 * len(names)
        self.lasting = number % 2 == 1 if alone else dice.random() < 0.2
        chosen = [names[number // 2]] if alone else dice.choices(names, k=dice.randint(1, 4))
        self.faults = [FAULTS[name] for name in chosen]
        self.of_part = {}
        parts = range(0, len(self.server.files[self.name]), self.part)
        for fault in self.faults:
            self.of_part.setdefault(dice.choice(parts), []).append(fault)
        self.retries = max(map(len, self.of_part.values())) + 3 if not self.lasting else dice.choice((0, 1))
        # Long enough for a busy machine, where no fault takes it.
        self.timeout_s = TIMEOUT_S if any(fault.slow for fault in self.faults) else 20
        self.skips = dice.random() < 0.25
        self.connections = dice.randint(1, 4)

    def script(self, request, tries):
        faults = self.of_part.get(request.begin // self.part * self.part, [])
        if self.lasting and faults:
            return faults[tries % len(faults)]
        return faults[tries] if tries < len(faults) else None

    def must_succeed(self):
        kinds = {fault.kind for fault in self.faults}
        return kinds <= {HARMLESS} or (kinds <= {HARMLESS, PASSING} and not self.lasting)

    def limit_s(self):
        """What the options promise: each try of a request may take the time-out, if its fault does, and a pause follows it. Requests with
        faults may come one after the other, and the first part is asked for twice if there is a cache."""
        limit = SLACK_S
        for begin, faults in self.of_part.items():
            tries = self.retries + 1 if self.lasting else len(faults)
            slow = sum(faults[i % len(faults)].slow for i in range(tries))
            requests = 2 if begin == 0 and self.cached else 1
            limit += requests * (slow * self.timeout_s + longest_pauses_s(min(tries, self.retries)))
        return limit

    def read(self, cache, retries, timeout_s, limit_s):
        options = {"remote_cache_dir": cache} if self.cached else {}
        return Reading(self.address, limit_s, remote_part_bytes=self.part, remote_retries=retries, remote_timeout_s=timeout_s,
                       remote_low_speed_s=timeout_s, remote_connections=self.connections, on_error="skip" if self.skips else "fail",
                       **options)

    def run(self, whole):
        expected = whole[self.name]
        with tempfile.TemporaryDirectory() as cache:
            self.server.begin(self.script)
            reading = self.read(cache, self.retries, self.timeout_s, self.limit_s())
            self.spare_s = self.limit_s() - reading.seconds
            hurt = len(self.server.hurt)
            outcome = self.judge(reading, expected)
            self.server.begin(None)
            again = self.read(cache, 5, 20, SLACK_S)
            assert again.error is None and again.samples == expected, f"the read after it: {again.error or 'other samples'}"
            if self.cached:
                assert not [name for name in os.listdir(cache) if ".part-" in name], "an unfinished file is left in the cache"
        return outcome, hurt

    def judge(self, reading, expected):
        assert not reading.late, f"no end within the {self.limit_s():.1f} s that the options promise"
        if reading.error is not None:
            assert isinstance(reading.error, ALLOWED), f"{type(reading.error).__name__}: {reading.error}"
            assert not self.must_succeed(), f"another try gets past it: {reading.error}"
            assert self.name in str(reading.error), f"the error does not name the file: {reading.error}"
            return "error"
        if reading.bad == 0:
            assert reading.samples == expected, f"{len(reading.samples)} samples of {len(expected)}, or other ones, and no error"
            return "identical"
        assert self.skips and not self.must_succeed(), f"{reading.bad} bad records"
        left = iter(expected)
        assert all(sample in left for sample in reading.samples), "a sample that the file does not have, or out of its order"
        return "skipped"

    def __str__(self):
        what = "; ".join(f"byte {begin}: {', '.join(fault.name for fault in faults)}" for begin, faults in sorted(self.of_part.items()))
        return (f"{self.address}, parts of {self.part} bytes, {self.retries} retries, {self.connections} connections"
                f"{', cached' if self.cached else ''}{', skipping' if self.skips else ''}: {'always ' if self.lasting else ''}{what}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="only the trial of this number")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="echotrain-faults-") as root:
        run_all(options, pathlib.Path(root))


def run_all(options, root):
    files = make_files(root)
    authority = Authority(root)
    servers = {"http": Server(files), "https": Server(files, authority.sign("right"))}
    os.environ.update(SSL_CERT_FILE=str(authority.certificate), AWS_ENDPOINT_URL=f"http://127.0.0.1:{servers['http'].port}", AWS_REGION="us-east-1",
                      AWS_ACCESS_KEY_ID="k", AWS_SECRET_ACCESS_KEY="s", HOME=str(root))
    whole = {}
    for name in files:
        (root / name).write_bytes(files[name])
        whole[name] = Reading(str(root / name), 60).samples
        assert len(whole[name]) >= 40, name
    assert [line for sample in whole["a.txt"] for _, line in sample] == LINES, "a.txt: other lines than the file has"
    if options.only is None:
        text = {"a.txt": files["a.txt"]}
        print(f"{server_checks.lists(servers['http'], len(LINES))} lists of objects that lie, "
              f"{server_checks.refusals(servers['http'])} refusals of a store, "
              f"{server_checks.certificates(authority, text, len(LINES))} bad certificates, "
              f"{server_checks.handshakes()} handshakes that fail, "
              f"{server_checks.pauses(text, len(LINES))} wishes for a pause", flush=True)
    # A short run takes trials from all over the list: every fault, some by themselves, some lasting, some together.
    most = 2 * len(FAULTS) + 200
    numbers = range(options.trials) if options.trials > most else sorted(random.Random(options.seed).sample(range(most), options.trials))
    counts, met, spare_s = {"identical": 0, "error": 0, "skipped": 0}, [], SLACK_S
    for done, number in enumerate([options.only] if options.only is not None else numbers):
        trial = Trial(number, options, servers)
        try:
            outcome, hurt = trial.run(whole)
        except AssertionError as error:
            sys.exit(f"fault_matrix: trial {number}, seed {options.seed}: {error}\n{trial}\nagain: --seed {options.seed} --only {number}")
        counts[outcome] += 1
        met.append(hurt)
        spare_s = min(spare_s, trial.spare_s)
        if done % 50 == 49:
            print(f"{done + 1} trials", flush=True)
    hit = sum(map(bool, met))
    assert options.only is not None or 2 * hit >= len(met), f"only {hit} of {len(met)} trials met a fault"
    print(f"passed: {sum(counts.values())} trials, seed {options.seed}, {hit} met {sum(met)} faults of {len(FAULTS)} kinds: {counts['identical']} reads were "
          f"identical, {counts['error']} ended with an error, {counts['skipped']} left out bad records; each had {spare_s:.1f} s to spare")


if __name__ == "__main__":
    main()
