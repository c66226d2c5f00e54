#!/usr/bin/env python3
"""Small files that promise much, through the command: each has to be an error within seconds, in a process of 512 MB.

    bombs.py ECHOTRAIN PAINTER [--only NAME] [--within 30]

Jobs, models, ONNX files, data of every kind and checkpoints. The limit is RLIMIT_DATA, so that a large allocation fails even if nobody
touches its memory; that it failed is no way out: the error has to say what is wrong with the file. PAINTER draws the data of the job that
is trained first, whose checkpoint is then tampered with.
"""

import argparse
import gzip
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

from bomb_files import (MEGABYTE, chunk, crc32c, gnu_number, jpeg, masked_crc, message, node, onnx, pax, png, tar_header, tensor, zeros,
                        zstd_zeros)

LIMIT = 512 * MEGABYTE
DENSE = [{"layer": "flatten"}, {"layer": "dense", "units": 10}]


def job(root, source=None, more=(), layers=None, last=(), **keys):
    source = source or {"stage": "folder", "root": str(root / "png")}
    stages = [source, *more, {"stage": "batch", "size": 8}, *last]
    return {"pipeline": {"stages": stages, **keys.pop("pipeline", {})}, "model": keys.pop("model", {"layers": layers or DENSE}),
            "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.01}, "train": {"steps": 4},
            "output": {"dir": str(root / "out"), "checkpoint_every_steps": 4}, **keys}


def images(root, layers=None, **keys):
    """A job on good images."""
    return job(root, more=[{"stage": "label", "classes": 10}, {"stage": "decode", "channels": "gray"}], layers=layers,
               last=[{"stage": "normalize"}], **keys)


BOMBS = {}


def bomb(expected):
    """Registers what makes the bomb in a folder and returns the job; the error has to match."""
    def add(make):
        BOMBS[make.__name__.replace("_", " ")] = (make, expected)
        return make
    return add


# Archives --------------------------------------------------------------------------------------------


def tar(root, content, name="a.tar"):
    (root / name).write_bytes(content)
    return job(root, {"stage": "webdataset", "pattern": str(root / name)}, more=[{"stage": "label"}, {"stage": "decode"}])


@bomb("max_ratio")
def a_zstd_archive_of_gigabytes(root):
    return tar(root, zstd_zeros(4096), "a.tar.zst")


@bomb("holds no member")
def a_gzip_archive_of_gigabytes(root):
    return tar(root, zeros(600), "a.tar.gz")


@bomb("max_member_bytes")
def a_member_of_exabytes(root):
    return tar(root, tar_header(b"a.png", 1 << 60) + b"x" * 512)


@bomb("truncated inside a member")
def a_member_of_a_gigabyte_that_is_not_there(root):
    return tar(root, tar_header(b"a.png", 1 << 30) + b"x" * 512)


@bomb("is sparse")
def a_sparse_member_of_exabytes(root):
    part = gnu_number(0) + gnu_number(512)
    sparse = part + bytes(24 * 3) + b"\0" + gnu_number(1 << 60)
    return tar(root, tar_header(b"a.png", 512, b"S", sparse) + b"x" * 512)


@bomb("is sparse")
def a_sparse_member_of_many_gigabytes(root):
    return tar(root, pax(GNU_sparse_major=1, GNU_sparse_minor=0, GNU_sparse_name="a.png", GNU_sparse_realsize=2_000_000_000)
               + tar_header(b"a.png", 1024) + b"1\n0\n512\n".ljust(512, b"\0") + b"x" * 512 + bytes(1024))


@bomb("is sparse")
def a_sparse_map_that_wraps(root):
    return tar(root, pax(GNU_sparse_major=1, GNU_sparse_minor=0, GNU_sparse_name="a.png", GNU_sparse_realsize=4096)
               + tar_header(b"a.png", 1024) + b"2\n0\n512\n18446744073709551104\n1024\n".ljust(512, b"\0") + b"x" * 512 + bytes(1024))


@bomb("max_name_bytes and 1 MB")
def a_pax_header_of_gigabytes(root):
    return tar(root, tar_header(b"pax", 3 << 30, b"x") + b"x" * 512)


# Records ---------------------------------------------------------------------------------------------


def lines(root, stage, content, name, **options):
    (root / name).write_bytes(content)
    return job(root, {"stage": stage, "pattern": str(root / name), **options}, pipeline={"budget_bytes": 64 * MEGABYTE})


@bomb("line 1 is longer than 67108864 bytes")
def a_line_without_end(root):
    return lines(root, "text_lines", zeros(300), "a.txt.gz")


@bomb("line 2 is longer than 67108864 bytes")
def a_csv_line_without_end(root):
    return lines(root, "csv", b"".join([gzip.compress(b"x\n"), zeros(300)]), "a.csv.gz", columns="x:f32")


@bomb("is a quote not closed")
def a_csv_quote_without_end(root):
    return lines(root, "csv", gzip.compress(b'x\n"') + gzip.compress(b"1,2,3\n" * 170_000) * 300, "a.csv.gz", columns="x:f32")


@bomb("the row has more than 1048576 columns")
def a_csv_row_of_commas(root):
    return lines(root, "csv", b"x\n" + b"," * 60_000_000, "a.csv", columns="x:f32")


@bomb("the row has more than 1048576 columns")
def a_csv_row_of_short_lines(root):
    return lines(root, "csv", b'x\n1,"' + b'\n","' * 12_000_000, "a.csv", columns="x:f32")


@bomb("the line is nested more than 256 levels")
def deep_json_lines(root):
    return lines(root, "jsonl", b'{"x": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}\n", "a.jsonl", columns="x:f32")


@bomb("a record of 2000000000 bytes")
def a_tf_record_of_gigabytes(root):
    length = struct.pack("<Q", 2_000_000_000)
    return lines(root, "tfrecord", length + struct.pack("<I", masked_crc(length)) + b"few", "a.tfrecord")


@bomb("a record of 4611686018427387904 bytes")
def a_tf_record_of_exabytes(root):
    length = struct.pack("<Q", 1 << 62)
    return lines(root, "tfrecord", length + struct.pack("<I", masked_crc(length)) + b"few", "a.tfrecord")


def npy(root, shape, data=b"data", kind="<f4"):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    (root / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data)
    return job(root, {"stage": "npy", "arrays": f"x={root / 'a.npy'}"})


@bomb("the file has 4 and is truncated")
def an_array_of_terabytes(root):
    return npy(root, "(1000000, 1000000)")


@bomb("which no array has")
def an_array_whose_extents_wrap(root):
    return npy(root, "(4611686018427387904, 4, 4)")


@bomb("a record takes 3000000000 bytes")
def an_array_of_one_large_sample(root):
    job_of_it = npy(root, "(1, 3000000000)", b"", "|u1")
    with open(root / "a.npy", "ab") as file:
        file.truncate(3_000_000_200)  # a hole
    return job_of_it


@bomb("which no array has")
def an_array_of_samples_of_nothing(root):
    return npy(root, "(9223372036854775807, 0)", b"")


@bomb("the file is truncated")
def an_idx_file_of_terabytes(root):
    (root / "a.idx").write_bytes(b"\0\0\x08\x03" + struct.pack(">III", 1 << 31, 1 << 31, 3) + b"few")
    return job(root, {"stage": "idx", "images": str(root / "a.idx")})


@bomb("out of all proportion")
def a_fast_shard_whose_index_is_large(root):
    frame = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", 1 << 30) + b"\x01\x00\x00"
    table = struct.pack("<I", 0) + b"\0" + struct.pack("<I", 0x8F92EAB1)
    (root / "a.ets").write_bytes(struct.pack("<II", 0x184D2A50, len(frame)) + frame + struct.pack("<II", 0x184D2A5E, len(table)) + table)
    return job(root, {"stage": "fast_shard", "pattern": str(root / "a.ets")})


@bomb("more than 65536 features")
def a_tfrecord_of_many_features(root):
    features = b"".join(message(1, message(1, str(i))) for i in range(1_000_000))
    example = message(1, features)
    length = struct.pack("<Q", len(example))
    record = length + struct.pack("<I", masked_crc(length)) + example + bytes(4)
    return lines(root, "tfrecord", record, "a.tfrecord", check_data=False)


@bomb("more than 1048576 lists and objects")
def a_line_of_many_empty_lists(root):
    (root / "a.jsonl").write_bytes(b'{"x": [' + b"[]," * 20_000_000 + b"[]]}\n")
    return job(root, {"stage": "jsonl", "pattern": str(root / "a.jsonl"), "columns": "x:f32"})


@bomb("seek table is longer than the file")
def a_fast_shard_of_four_billion_frames(root):
    (root / "a.ets").write_bytes(b"few" * 10 + struct.pack("<I", 0xFFFFFFFF) + b"\0" + struct.pack("<I", 0x8F92EAB1))
    return job(root, {"stage": "fast_shard", "pattern": str(root / "a.ets")})


# Images ----------------------------------------------------------------------------------------------


def image(root, name, content):
    (root / "images" / "0").mkdir(parents=True)
    (root / "images" / "0" / name).write_bytes(content)
    return job(root, {"stage": "folder", "root": str(root / "images")}, more=[{"stage": "label"}, {"stage": "decode"}])


@bomb("too few for 16384 x 16384 pixels")
def a_png_of_many_pixels(root):
    return image(root, "a.png", png(16384, 16384, chunk(b"IDAT", zlib.compress(b"few")), bits=16, interlaced=1))


@bomb("would become one of 128 x 25600000")
def a_png_that_is_narrow(root):
    narrow = png(200000, 1, chunk(b"IDAT", zlib.compress(bytes(200001))), colour=0)
    job_of_it = image(root, "a.png", narrow)
    job_of_it["pipeline"]["stages"].insert(3, {"stage": "resize", "shorter_side": 128})
    return job_of_it


@bomb("arithmetic coding")
def a_jpeg_of_100_bytes_and_many_pixels(root):
    return image(root, "a.jpg", jpeg(16384, 16384).replace(b"\xff\xc2", b"\xff\xc9"))


@bomb("an image of 2147483647 x 2147483647 pixels")
def a_png_of_2_to_the_62_pixels(root):
    return image(root, "a.png", png(0x7FFFFFFF, 0x7FFFFFFF, chunk(b"IDAT", zlib.compress(b"few"))))


@bomb("bad PNG: the file ends early")
def a_png_chunk_of_gigabytes(root):
    return image(root, "a.png", b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 0x7FFFFFFF) + b"IHDR" + b"few")


@bomb("an image of 65500 x 65500 pixels")
def a_jpeg_of_many_pixels(root):
    return image(root, "a.jpg", jpeg(65500, 65500))


@bomb("too few for 16000 x 16000 pixels")
def a_jpeg_of_few_bytes(root):
    return image(root, "a.jpg", jpeg(16000, 16000))


# Jobs and models -------------------------------------------------------------------------------------


@bomb("job.json' is nested more than 256 levels")
def a_deep_job(root):
    return '{"model": ' + "[" * 5_000_000 + "]" * 5_000_000 + "}"


@bomb("too many for what is read from it")
def a_job_of_a_gigabyte(root):
    return " " * (70 * MEGABYTE) + "{}"


@bomb("'units' is 2000000000; it must lie in")
def a_dense_layer_of_two_billion_units(root):
    return images(root, [{"layer": "flatten"}, {"layer": "dense", "units": 2_000_000_000}])


@bomb("'filters' is 1000000; it must lie in")
def a_convolution_of_many_filters(root):
    return images(root, [{"layer": "conv2d", "filters": 1_000_000, "kernel": 25}, *DENSE])


@bomb("the model has more than 20000 layers")
def a_model_of_many_layers(root):
    return images(root, [{"layer": "relu"}] * 200_000 + DENSE)


def glsl(root, source):
    return images(root, [{"layer": "glsl", "source": source}, *DENSE])


SLOPE = "\nfloat gradient0(uint i) { return dy[i]; }"


@bomb("undeclared identifier")
def glsl_macros_that_call_each_other(root):
    return glsl(root, "#define a b\n#define b a\nfloat forward(uint i) { return a; }" + SLOPE)


@bomb("a variable of 2000000000 bytes")
def a_glsl_array_of_gigabytes(root):
    return glsl(root, "float forward(uint i) { float a[500000000]; a[i] = x0[i]; return a[i + 1]; }" + SLOPE)


@bomb("the source of 'glsl_1' does not compile")
def deep_glsl(root):
    return glsl(root, "float forward(uint i) { return " + "(" * 200_000 + "x0[i]" + ")" * 200_000 + "; }" + SLOPE)


@bomb("'#include' : required extension not requested")
def glsl_that_includes_itself(root):
    return glsl(root, '#include "/dev/zero"\nfloat forward(uint i) { return x0[i]; }' + SLOPE)


# ONNX ------------------------------------------------------------------------------------------------


def network(root, nodes, tensors, **more):
    (root / "a.onnx").write_bytes(onnx(nodes, tensors, **more))
    shutil.copy(root / "good.npy", root / "x.npy")
    return job(root, {"stage": "npy", "arrays": f"x={root / 'x.npy'}"}, model={"onnx": str(root / "a.onnx"), "layers": [{"layer": "dense", "units": 2}]})


@bomb("tensor 'w' has 4398046511104 elements")
def an_onnx_tensor_of_terabytes(root):
    return network(root, [node("MatMul", ["x", "w"], "y")], [tensor("w", [4, 1 << 40], b"few!")])


@bomb("tensor 'w' has a size that cannot be")
def an_onnx_tensor_whose_extents_wrap(root):
    return network(root, [node("MatMul", ["x", "w"], "y")], [tensor("w", [1 << 62, 4, 1 << 62], b"few!")])


@bomb("node 'w'.*too much memory")
def an_onnx_constant_of_terabytes(root):
    shape = tensor("s", [2], struct.pack("<qq", 1 << 20, 1 << 20), 7)
    return network(root, [node("ConstantOfShape", ["s"], "w"), node("MatMul", ["x", "w"], "y")], [shape])


@bomb("node 'r'.*its step leads nowhere")
def an_onnx_range_of_exabytes(root):
    ends = [tensor(name, [], struct.pack("<q", value), 7) for name, value in (("a", 0), ("b", 1 << 60), ("c", 1))]
    return network(root, [node("Range", ["a", "b", "c"], "r"), node("MatMul", ["x", "r"], "y")], ends)


@bomb("node 'w[0-9]+'.*too much memory")
def onnx_constants_that_multiply(root):
    nodes, name = [], "w"
    for i in range(40):
        nodes.append(node("Concat", [name, name], f"w{i}"))
        name = f"w{i}"
    return network(root, [*nodes, node("MatMul", ["x", name], "y")], [tensor("w", [4, 1], bytes(16))])


@bomb("input 'x' is too large")
def an_onnx_input_of_terabytes(root):
    return network(root, [node("Relu", ["x"], "y")], [], features=1 << 40)


# Checkpoints -----------------------------------------------------------------------------------------


def safetensors(header, data=b"", size=None):
    return struct.pack("<Q", len(header) if size is None else size) + header + data


def rows(text):
    return {"learner.json": lambda old: json.dumps({**json.loads(old), "rows": {"image f32 [28, 28, 1]": text}}).encode()}


def state(name, **keys):
    return {name: lambda old: json.dumps({**json.loads(old), **keys}).encode()}


# What becomes of files of a good checkpoint, and what the error has to match.
CHECKPOINTS = {
    "rows of 2^31 - 1": (rows((1 << 31) - 1), "had 2147483647 rows"),
    "rows of 2^63 - 1": (rows((1 << 63) - 1), "had 9223372036854775807 rows"),
    "rows of ten million": (rows(10_000_000), "had 10000000 rows"),
    "rows of a million": (rows(1_000_000), "had 1000000 rows"),
    "rows below zero": (rows(-1), "had -1 rows"),
    "a position at the end of time": (state("pipeline.json", delivered=1 << 62), "'delivered' is 4611686018427387904"),
    "a pass of 2^62 samples": (state("pipeline.json", delivered=1 << 40, pass_lengths=[1 << 62]), "'pass_lengths' holds 4611686018427387904"),
    "a deep state": ({"learner.json": lambda old: b"[" * 1_000_000}, "'learner.json' is nested more than 256 levels"),
    "a deep header": ({"weights.safetensors": lambda old: safetensors(b'{"a":' + b"[" * 1_000_000)}, "header is nested more than 256 levels"),
    "a header of exabytes": ({"weights.safetensors": lambda old: safetensors(b"{}", size=1 << 62)}, "header of 4611686018427387904 bytes"),
    "a header of 2^64 - 1": ({"weights.safetensors": lambda old: safetensors(b"{}", size=(1 << 64) - 1)}, "header of 18446744073709551615 bytes"),
    "a tensor of exabytes": ({"weights.safetensors": lambda old: safetensors(
        b'{"dense_2.weight":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}}', b"few!")}, "'dense_2.weight'.*more than 64 bits can count"),
    "tensors of nothing": ({"optimizer.safetensors": lambda old: safetensors(
        b'{"velocity":{"dtype":"F32","shape":[9223372036854775807,0],"data_offsets":[0,0]}}')}, "'velocity'.*more than 64 bits can count"),
}


def tamper(root, changes):
    """The good checkpoint with other contents; the manifest's checksums are theirs."""
    shutil.rmtree(root / "out", ignore_errors=True)
    shutil.copytree(root / "good", root / "out")
    for manifest_path in root.glob("out/checkpoints/*/manifest.json"):
        manifest = json.loads(manifest_path.read_text())
        for name, change in changes.items():
            content = change((manifest_path.parent / name).read_bytes())
            (manifest_path.parent / name).write_bytes(content)
            manifest["files"][name] = {"bytes": len(content), "crc32c": crc32c(content)}
        manifest_path.write_text(json.dumps(manifest))


# Running ---------------------------------------------------------------------------------------------


PATIENCE = 20  # how much longer than its processor time a process may take on a machine that is busy


def set_limits(seconds):
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Result:
    """One process with little memory: its exit status, output, seconds of processor time, and megabytes at most."""

    def __init__(self, program, *words, within):
        began = time.time()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen([program, *words], preexec_fn=lambda: set_limits(within), stdout=output, stderr=subprocess.STDOUT)
            self.late = False
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    break
                if time.time() - began > PATIENCE * within and not self.late:
                    self.late = True
                    process.kill()
                time.sleep(0.02)
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            self.output = output.read().decode(errors="replace")
        self.status, self.megabytes = process.returncode, usage.ru_maxrss // 1024
        self.seconds = usage.ru_utime + usage.ru_stime
        self.late = self.late or self.status == -signal.SIGXCPU or (self.status == -signal.SIGKILL and self.seconds >= within)

    def check(self, expected):
        """Returns what is wrong with it; "" for a good error."""
        if self.late:
            return "no error in time"
        if self.status < 0:
            return f"ended by signal {-self.status}"
        if self.megabytes * MEGABYTE > LIMIT:
            return f"took {self.megabytes} MB"
        if self.status == 0:
            return "no error"
        if re.search("bad_alloc|out of memory|no memory|terminate called", self.output):
            return "the memory was used up"
        return "" if re.search(expected, self.output) else "another error"


def run_bombs(options, root, report):
    for name, (make, expected) in BOMBS.items():
        if options.only in (None, name):
            folder = root / "bomb"
            folder.mkdir()
            (folder / "png").symlink_to(root / "png")
            shutil.copy(root / "good.npy", folder)
            made = make(folder)
            (folder / "job.json").write_text(made if isinstance(made, str) else json.dumps(made))
            report(name, Result(options.program, "train", folder / "job.json", within=options.within), expected)
            shutil.rmtree(folder)


def run_checkpoints(options, root, report):
    if options.only in BOMBS:
        return

    def whole_job(steps):
        made = images(root)
        made["train"]["steps"] = steps
        made["evaluation"] = {"pipeline": made["pipeline"]}
        return json.dumps(made)
    (root / "job.json").write_text(whole_job(4))
    good = Result(options.program, "train", root / "job.json", within=600)
    if good.status != 0:
        sys.exit(f"bombs: a good job fails: {good.output}")
    shutil.copytree(root / "out", root / "good")
    (root / "job.json").write_text(whole_job(8))
    for name, (changes, expected) in CHECKPOINTS.items():
        for words in (["train", root / "job.json", "--resume"], ["eval", root / "job.json"], ["export", root / "job.json", root / "a.onnx"]):
            title = f"{name}, {words[0]}"
            if options.only in (None, name, title):
                tamper(root, changes)
                harmless = words[0] != "train" and "pipeline.json" in changes  # which only training reads
                report(title, Result(options.program, *words, within=options.within), expected, harmless)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("painter")
    parser.add_argument("--only", help="only the bomb of this name")
    parser.add_argument("--within", type=int, default=30, help="seconds of processor time that an error may take")
    options = parser.parse_args()
    counts, failures = {"errors": 0, "harmless": 0}, []

    def report(name, result, expected, harmless=False):
        wrong = result.check(expected)
        fine = harmless and result.status == 0 and not result.late and result.megabytes * MEGABYTE <= LIMIT
        counts["harmless" if fine else "errors"] += 1
        print(f"{'FAILED' if wrong and not fine else 'ok'}: {name}: {result.seconds:.1f} s, {result.megabytes} MB{': ' + wrong if wrong and not fine else ''}", flush=True)
        if wrong and not fine:
            failures.append(name)
            print("    " + result.output[-600:].replace("\n", "\n    "), flush=True)

    root = pathlib.Path(tempfile.mkdtemp(prefix="echotrain-bombs-"))
    try:
        subprocess.run([options.painter, root / "png", "40", "1"], check=True)
        (root / "good.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (64, 4), }".ljust(117)
                                        + b"\n" + bytes(1024))
        run_bombs(options, root, report)
        run_checkpoints(options, root, report)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if failures:
        sys.exit(f"bombs: {len(failures)} failed, the first is '{failures[0]}' (--only \"{failures[0]}\")")
    if sum(counts.values()) == 0:
        sys.exit(f"bombs: there is no bomb '{options.only}'")
    print(f"passed: {counts['errors']} were errors, {counts['harmless']} were not looked at")


if __name__ == "__main__":
    main()
