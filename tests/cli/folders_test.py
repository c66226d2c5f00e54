#!/usr/bin/env python3
"""What init, train and predict make of strangers' folders. The operands are those of cli_test.py.

    folders_test.py ECHOTRAIN PAINTER TEXTS JOB
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from support import png, runner

PROGRAM, PAINTER = map(os.path.abspath, sys.argv[1:3])
run = runner(PROGRAM)


def gray(width, height):
    return png([[(x * y) % 256 for x in range(width)] for y in range(height)])


class Folders(unittest.TestCase):
    """What lies in strangers' folders: init names it and its job trains; predict gives each file an answer or a reason."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        subprocess.run([PAINTER, cls.root / "png", "200", "1"], check=True)
        for digit in range(3, 10):
            shutil.rmtree(cls.root / "png" / str(digit))
        cls.image = sorted((cls.root / "png" / "0").iterdir())[0]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def copy(self, name):
        shutil.copytree(self.root / "png", self.root / name)
        return self.root / name

    def init(self, folder, *more, warnings=None):
        job = self.root / f"{folder.name}.json"
        result = run("init", folder, job, "--overwrite", *more, cwd=self.root)
        self.assertEqual(result.returncode, 0, result.stderr)
        if warnings is None:
            self.assertEqual(result.stderr, "")
        else:
            self.assertRegex(result.stderr, r"\Aechotrain: .*" + warnings + r".*\n\Z", "each warning once")
        return job, result.stdout

    def train(self, job):
        result = run("train", job, "--set", "train.steps=4", cwd=self.root)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def predict(self, job, *files):
        return run("predict", job, *files, cwd=self.root)

    def test_stray_and_damaged_files(self):
        folder = self.copy("mess")
        whole = self.image.read_bytes()
        strays = {"0/notes.txt": b"hello", "0/broken.png": whole[:60], "1/empty.jpg": b"", "1/lies.png": b"GIF89a",
                  "2/flipped.png": whole[:70] + bytes([whole[70] ^ 255]) + whole[71:], "2/no_extension": whole}
        for name, data in strays.items():
            (folder / name).write_bytes(data)
        (folder / "2" / "UPPER.PNG").write_bytes(whole)
        (folder / "README.md").write_text("mine")
        (folder / "nothing").mkdir()
        (folder / "2" / "loop").symlink_to("loop")
        job, told = self.init(folder, warnings=r"beside its samples.*'0/notes.txt' .*'2/loop' .*'2/no_extension' ")
        for name in ("broken.png", "empty.jpg", "lies.png", "flipped.png"):
            self.assertIn(name, told)
        self.assertIn("README.md", told)
        self.assertIn("'nothing'", told)
        self.train(job)
        result = self.predict(job, folder)
        self.assertEqual(result.returncode, 1, "some files are damaged")
        self.assertIn("UPPER.PNG: ", result.stdout)
        for name in ("broken.png", "empty.jpg", "lies.png", "flipped.png"):
            self.assertIn(f"/{name}': ", result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 4, result.stderr)

    def test_each_set_has_its_own_share_of_damaged_images(self):
        for damaged, whole in (("train", "validation"), ("validation", "train")):
            folder = self.root / f"damaged_{damaged}"
            for name in ("train", "validation"):
                shutil.copytree(self.root / "png", folder / name)
            for digit in range(3):
                files = sorted((folder / damaged / str(digit)).glob("*.png"))
                for path in files[:len(files) // 4]:
                    path.write_bytes(path.read_bytes()[:60])
            spec = json.loads(self.init(folder)[0].read_text())
            shares = {"train": spec["pipeline"]["max_bad_share"], "validation": spec["evaluation"]["pipeline"]["max_bad_share"]}
            self.assertEqual(shares[whole], 0.1)
            self.assertAlmostEqual(shares[damaged], 0.5, delta=0.1)

    def test_a_fixed_number_of_images_is_looked_at(self):
        folder = self.root / "many"
        for name in ("a", "b"):
            (folder / name).mkdir(parents=True)
            for i in range(600):
                os.link(self.image, folder / name / f"{i}.png")
        for _ in range(2):
            _, told = self.init(folder)
            self.assertIn("looked at 1000 of 1080 images; the others are counted and not decoded", told)
            self.assertIn("120 images to evaluate on", told)

    def shards(self, name, *prefixes):
        folder = self.root / name
        for prefix in prefixes:
            packed = run("pack", self.root / "png", folder / prefix)
            self.assertEqual(packed.returncode, 0, packed.stderr)
        return folder

    def sets_of(self, name, *prefixes):
        """The shards that the job trains and evaluates on."""
        job = json.loads(self.init(self.shards(name, *prefixes))[0].read_text())
        held_out = job.get("evaluation")
        return [pipeline and pipeline["stages"][0]["pattern"].removeprefix("${data}/").removesuffix(".tar.zst")
                for pipeline in (job["pipeline"], held_out and held_out["pipeline"])]

    def test_shards_are_named_by_their_use_and_may_have_a_common_name(self):
        for prefixes, expected in ((("train", "test"), ["train-*", "test-*"]),
                                   (("digits",), ["digits-*", None]),
                                   (("digits-train", "digits-test"), ["digits-train-*", "digits-test-*"]),
                                   (("digits-train", "other-test"), ["digits-train-*", None]),
                                   (("a-train", "a-val", "test", "b"), ["a-train-*", "a-val-*"]),
                                   (("a-train", "validation", "a-test"), ["a-train-*", "validation-*"]),
                                   (("train", "train-small", "test"), ["train-[0-9]*", "test-*"])):
            self.assertEqual(self.sets_of("-".join(prefixes), *prefixes), expected)
        for prefixes, expected in ((("a-train", "b-train", "c"), r"holds 2 sets \(a-train, b-train\) of shards"),
                                   (("a", "b"), r"holds 2 sets \(a, b\) of shards"),
                                   (("test",), "holds no set of shards to train on")):
            result = run("init", self.shards("wrong_" + "-".join(prefixes), *prefixes), self.root / "wrong.json")
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, expected)
            self.assertIn("train-* or NAME-train-*", result.stderr)
            self.assertIn("validation-*, valid-*, val-* or test-*", result.stderr)

    def test_of_many_bad_records_the_first_are_shown(self):
        folder = self.copy("bad")
        for i in range(50):
            (folder / "0" / f"bad{i}.png").write_bytes(self.image.read_bytes()[:60])
        job, _ = self.init(folder)
        lines = run("train", job, "--set", "train.steps=40", cwd=self.root).stderr.splitlines()
        self.assertEqual(sum(line.startswith("echotrain: bad record") for line in lines), 20, lines)
        self.assertIn("echotrain: many bad records; further ones are counted and not shown", lines)

    def test_predictions_leave_out_augmentations(self):
        folder = self.root / "colours"
        for name, value in (("red", 0), ("green", 1)):
            (folder / name).mkdir(parents=True)
            for i in range(20):
                row = [250 - i if x % 3 == value else 30 for x in range(3 * 24)]
                (folder / name / f"{i}.png").write_bytes(png([row] * 24, channels=3))
        job, _ = self.init(folder)
        spec = json.loads(job.read_text())
        del spec["evaluation"]
        stages = spec["pipeline"]["stages"]
        stages.insert(3, {"stage": "grayscale", "probability": 0.5})
        job.write_text(json.dumps(spec))
        self.train(job)
        result = self.predict(job, *[folder / "red" / "0.png"] * 20)
        self.assertEqual(result.returncode, 0, result.stderr)
        answers = {line for line in result.stdout.splitlines() if ".png: " in line}
        self.assertEqual(len(answers), 1, "one image has one answer")

    def test_images_of_every_size_in_any_order(self):
        job, _ = self.init(self.copy("uniform"))
        self.train(job)
        sizes = []
        for width, height in ((28, 28), (7, 90), (200, 3), (1, 1), (64, 64)):
            path = self.root / f"{width}x{height}.png"
            path.write_bytes(gray(width, height))
            sizes.append(path)
        for files in (sizes, sizes[::-1], sizes[1:2]):
            result = self.predict(job, *files)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertEqual(len(re.findall(r"\.png: ", result.stdout)), len(files))

    def test_a_job_that_does_not_resize(self):
        job, _ = self.init(self.copy("as_stored"))
        self.train(job)
        text = job.read_text()
        spec = json.loads(text)
        stages = spec["evaluation"]["pipeline"]["stages"]
        spec["evaluation"]["pipeline"]["stages"] = [row for row in stages if row["stage"] not in ("resize", "center_crop")]
        job.write_text(json.dumps(spec))
        other = self.root / "other.png"
        other.write_bytes(gray(64, 64))
        answers = {}
        for files in ([self.image, other], [other, self.image], [other]):
            result = self.predict(job, *files)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            for line in result.stdout.splitlines():
                if ".png: " in line:
                    file, answer = line.split(": ")
                    self.assertEqual(answers.setdefault(file, answer), answer, "whatever comes before it")

    def test_shards_without_validation(self):
        self.assertEqual(run("pack", self.root / "png", self.root / "shards" / "train").returncode, 0)
        job, told = self.init(self.root / "shards")
        self.assertIn("no validation set", told)
        self.train(job)
        result = self.predict(job, self.image)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("prepared as for training, without its random stages", result.stderr)
        tuned = run("tune-pipeline", job, "--seconds", "0.1", "--out", self.root / "tuned.json", cwd=self.root)
        self.assertEqual(tuned.returncode, 0, tuned.stderr)

    def test_folders_beside_shards_are_named(self):
        folder = self.copy("both")
        self.assertEqual(run("pack", self.root / "png", self.root / "packed" / "train").returncode, 0)
        for path in (self.root / "packed").iterdir():
            shutil.copy(path, folder)
        self.assertIn("the shards train-* are used, not the 3 folders (0, 1, 2) beside them", self.init(folder)[1])

    def test_sets_too_small_to_hold_out(self):
        folder = self.root / "tiny"
        for name in ("a", "b"):
            (folder / name).mkdir(parents=True)
            shutil.copy(self.image, folder / name / "1.png")
        job, told = self.init(folder)
        self.assertIn("nothing to hold out", told)
        self.assertIn("add images until a class has two", told)
        self.assertEqual(json.loads(job.read_text())["pipeline"]["stages"][-2], {"stage": "batch", "size": 2})
        self.train(job)
        self.assertEqual(self.predict(job, self.image).returncode, 0)
        shutil.rmtree(folder / "b")
        (folder / "b").mkdir()
        self.assertIn("one class only, and nothing to tell apart: each class needs a folder", run("init", folder, self.root / "no.json").stderr)

    def test_what_is_no_file_is_said_at_once(self):
        job, _ = self.init(self.copy("plain"))
        self.train(job)
        (self.root / "empty").mkdir()
        (self.root / "loop").symlink_to("loop")
        os.mkfifo(self.root / "pipe.png")
        for name, expected in (("pipe.png", "not a regular file"), ("/dev/zero", "not a regular file"), ("empty", "is an empty folder"),
                               ("loop", "Too many levels of symbolic links"), ("nowhere.png", "No such file or directory")):
            result = self.predict(job, self.root / name)
            self.assertEqual(result.returncode, 1, name)
            self.assertIn(expected, result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
